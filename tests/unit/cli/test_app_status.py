"""What is shown of hosts: to people in two tables that fit 80 columns, and to programs as JSON."""

from __future__ import annotations

import json

import pytest

from rocketray.cli import output
from rocketray.cli.app_status import show_hosts
from rocketray.topology.agent import AgentStatistics
from rocketray.topology.host import HostStatus
from rocketray.topology.host_failure import HostFailure
from rocketray.topology.hosting import Host

FAILURE = HostFailure("ValueError", "no database", "/apps/shop.py:12", 1_790_000_000_000)
AGENT = AgentStatistics(
    name="handle_payments_of_customers",
    group="shop-handle_payments_of_customers",
    batches=9,
    received=1_200,
    finished=1_199,
    failures=3,
    sent_back=2,
    dead_lettered=1,
)
STATUS = HostStatus("shop:app", 4711, True, (AGENT, AGENT), (("Orders", 0), ("Orders", 2)))
HOSTS = [
    Host("shop", 0, "running", 2, STATUS, FAILURE),
    Host("shop", 1, "restarting", 7, None, FAILURE),
]


def test_people_see_hosts_agents_and_last_errors_within_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    show_hosts(HOSTS, as_json=False)
    shown = capsys.readouterr().out
    when = output.as_time(FAILURE.time_ms)
    hosts, agents, *errors = shown.split("\n\n")
    assert "shop     1     -  restarting         7  -" in hosts
    assert "Orders 0,2" in hosts
    assert agents.count("1200") == 2
    assert errors == [
        f"shop host 0 failed at {when}: ValueError: no database (/apps/shop.py:12)",
        f"shop host 1 failed at {when}: ValueError: no database (/apps/shop.py:12)\n",
    ]
    assert max(map(len, f"{hosts}\n{agents}".splitlines())) <= 80


def test_programs_see_the_last_error_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    show_hosts([*HOSTS, Host("other", 0, "starting", 0, None)], as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["state"], each["restarts"], each["pid"]) for each in found] == [
        ("running", 2, 4711),
        ("restarting", 7, None),
        ("starting", 0, None),
    ]
    assert [each["lastError"] for each in found] == [
        *2
        * [
            {
                "type": "ValueError",
                "message": "no database",
                "place": "/apps/shop.py:12",
                "time": FAILURE.time_ms,
            }
        ],
        None,
    ]

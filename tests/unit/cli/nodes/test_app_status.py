"""What is shown of hosts: to people in two tables that fit 80 columns, and to programs as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rocketray.broker.shards.shard_api import ScrubState
from rocketray.cli.nodes.app_status import (
    failures_of,
    groups_of,
    host_fields,
    idle_instances,
    queues_of,
    show_groups,
    show_hosts,
    show_problems,
    show_scrubs,
    show_unflushed,
    without_hosts,
)
from rocketray.cli.terminal import output
from rocketray.filters.counters import NO_COUNTERS
from rocketray.filters.subscription import Subscription
from rocketray.groups.failing import FailingMessage
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.hosting.host_failure import HostFailure
from rocketray.hosting.host_plan import HostPlan
from rocketray.hosting.host_status import Host, HostStatus
from rocketray.runtime.process_logs.log_line import MessagePlace
from rocketray.services.health.troubles import TroubleKind
from rocketray.store.recovery.problem import Problem
from rocketray.topology.app.agent_statistics import AgentStatistics
from rocketray.topology.app.loop_stall import LoopStall
from rocketray.topology.app.sink_statistics import SinkState, SinkStatistics
from rocketray.views.trouble_records import troubles_of_hosts

FAILURE = HostFailure("ValueError", "no database", "/apps/shop.py:12", 1_790_000_000_000, "node-2")
AGENT = AgentStatistics(
    name="handle_payments_of_customers",
    group="shop-handle_payments_of_customers",
    batches=9,
    received=1_200,
    finished=1_199,
    failures=3,
    sent_back=2,
    dead_lettered=1,
    decode_failures=7,
)
GROUP = GroupDescription(
    AGENT.group,
    "Orders",
    Subscription.tags("*"),
    dict.fromkeys(range(4), 0),
    {},
    {},
    replace(NO_COUNTERS, evaluation_errors=60, predicate_errors=4),
    0,
    failing={2: FailingMessage(172, 7, 17, "ValueError: no number")},
)
STATUS = HostStatus(
    HostPlan("shop:app", "trade"),
    "node-1",
    4711,
    True,
    (AGENT, AGENT),
    (("Orders", 0), ("Orders", 2)),
    logs=("/logs/worker.out", "/logs/worker.err"),
)
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
    hosts, agents, logs, *errors = shown.split("\n\n")
    assert "shop     1  -           -  restarting         7  -" in hosts
    assert "shop     0  node-1   4711  running" in hosts
    assert "Orders 0,2" in hosts
    assert agents.count("1200") == 2
    agent = "shop host 0 agent handle_payments_of_customers: "
    assert logs.split("\n") == [
        "what they print and log: rocketray logs shop, with --data DIR on the node's machine",
    ]
    assert errors == [
        f"shop host 0 failed at {when} on node-2: ValueError: no database (/apps/shop.py:12)",
        f"shop host 1 failed at {when} on node-2: ValueError: no database (/apps/shop.py:12)",
        f"{agent}7 failures to decode a message",
        f"{agent}7 failures to decode a message\n",
    ]
    assert max(map(len, f"{hosts}\n{agents}".splitlines())) <= 80


def test_what_blocks_a_loop_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    place = MessagePlace("Orders", 0, 17, None, "7F00")
    stall = LoopStall(FAILURE.time_ms, 12.34, False, "agent charge", place, "/apps/shop.py:12 in f")
    host = Host("shop", 0, "running", 0, replace(STATUS, stall=stall))
    show_hosts([host], as_json=False)
    said = "agent charge has blocked the loop for 12.3 s at /apps/shop.py:12 in f"
    when = output.as_time(FAILURE.time_ms)
    shown = f"shop host 0 at {when}: {said} [Orders queue 0 offset 17 id 7F00]"
    assert shown in capsys.readouterr().out
    record = host_fields(host)
    assert record["stall"] == {
        "time": FAILURE.time_ms,
        "seconds": 12.34,
        "isOver": False,
        "who": "agent charge",
        "frame": "/apps/shop.py:12 in f",
        "topic": "Orders",
        "queueId": 0,
        "queueOffset": 17,
        "lastQueueOffset": None,
        "messageId": "7F00",
        "text": f"{said} [Orders queue 0 offset 17 id 7F00]",
    }
    (trouble,) = troubles_of_hosts([record], None)
    assert (trouble.kind, trouble.topic) == (TroubleKind.APP, "Orders")
    assert trouble.text.startswith("host 0 of app shop: agent charge has blocked the loop for 12.3")
    over = replace(STATUS, stall=replace(stall, is_over=True))
    assert troubles_of_hosts([host_fields(replace(host, status=over))], None) == []


def test_a_host_that_does_not_answer_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    show_hosts([Host("shop", 2, "silent", 0, None)], as_json=False)
    said = "shop host 2: its queues and counters are unknown, because it did not answer within 5 s"
    assert said in capsys.readouterr().out


def test_programs_see_the_logs_and_what_did_not_decode(capsys: pytest.CaptureFixture[str]) -> None:
    show_hosts(HOSTS[:1], as_json=True)
    host = json.loads(capsys.readouterr().out)
    assert (host["machine"], host["path"]) == ("node-1", "shop:app")
    assert host["logs"] == ["/logs/worker.out", "/logs/worker.err"]
    assert host["agents"][0]["decodeFailures"] == 7


def test_groups_are_shown_by_name_and_topic_where_something_is_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    well = replace(GROUP, topic="Payments", counters=NO_COUNTERS, failing={})
    other = replace(GROUP, group="audit", failing={})
    show_groups([GROUP, well, other], as_json=False)
    failed = "the filter failed on 64 messages; see: rocketray filter stats"
    held = "queue 2 is held at offset 172: attempt 7 of 17, ValueError: no number"
    assert capsys.readouterr().out.splitlines() == [
        "",
        f"group audit, topic Orders: {failed}",
        "",
        f"group {AGENT.group}, topic Orders: {held}",
        "",
        f"group {AGENT.group}, topic Orders: {failed}",
    ]
    show_groups([GROUP, well, other], as_json=True)
    audit, payments = map(json.loads, capsys.readouterr().out.splitlines())
    assert audit == {"group": "audit", "topic": "Orders", "filterErrors": 64, "held": []}
    assert payments["held"] == [
        {
            "queueId": 2,
            "queueOffset": 172,
            "attempt": 7,
            "lastAttempt": 17,
            "reason": "ValueError: no number",
        }
    ]
    assert groups_of(HOSTS, [GROUP, well, other]) == [GROUP, well]


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
                "machine": "node-2",
            }
        ],
        None,
    ]


def test_the_worst_queue_of_each_topic_is_shown_that_is_not_on_disk(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_unflushed({"T/0": 0}, as_json=False)
    assert capsys.readouterr().out == "\nall stored messages are on disk\n"
    ages = {"T/0": 430, "T/10": 61_900, "T/2": 0, "A/0": 120, "%RETRY%g/1": None, "A/1": 90}
    show_unflushed(ages, as_json=False)
    empty, head, _, *rows = capsys.readouterr().out.splitlines()
    assert (empty, head.split()) == (
        "",
        ["topic", "queue", "oldest", "message", "not", "on", "disk"],
    )
    assert [row.split(maxsplit=2) for row in rows] == [
        ["%RETRY%g", "1", "unknown: its process does not answer"],
        ["T", "10", "61.9 s"],
        ["A", "0", "0.1 s"],
    ]
    show_unflushed(ages, as_json=True)
    places = json.loads(capsys.readouterr().out)["unflushed"]
    assert places[0] == {"topic": "%RETRY%g", "queueId": 1, "ageMs": None}
    assert [(each["topic"], each["queueId"], each["ageMs"]) for each in places[1:]] == [
        ("T", 10, 61_900),
        ("T", 0, 430),
        ("A", 0, 120),
        ("A", 1, 90),
    ]


def test_when_the_messages_of_a_topic_were_verified_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_scrubs({"T/0": ScrubState("/data")}, as_json=False)
    assert capsys.readouterr().out == "", "no log file is complete yet"
    problem = Problem("commitlog/0", 90, "these 9 bytes have no complete record")
    first = ScrubState("/data", 1_700_000_000_000, 1_800_000_000_000, 30, 90, (problem,))
    scrubs = {
        "T/10": replace(first, verified_ms=1_600_000_000_000),
        "T/0": first,
        "New/0": ScrubState("/data", None, 1_800_000_000_000, 0, 10),
        "Silent/0": None,
        "Empty/0": ScrubState("/data"),
    }
    show_scrubs(scrubs, as_json=False)
    _, head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["topic", "last", "verified", "under", "way", "damaged", "places"]
    assert [row.split() for row in rows] == [
        ["New", "never", "0", "%", "0"],
        ["Silent", "unknown:", "a", "process", "does", "not", "answer", "-"],
        ["T", *str(output.as_time(1_600_000_000_000)).split(), "33", "%", "2"],
    ]
    show_scrubs(scrubs, as_json=True)
    lines = json.loads(capsys.readouterr().out)["verified"]
    assert [line["topic"] for line in lines] == ["Empty", "New", "Silent", "T", "T"]
    assert lines[-1] == {
        "topic": "T",
        "queueId": 10,
        "verifiedMs": 1_600_000_000_000,
        "begunMs": 1_800_000_000_000,
        "doneBytes": 30,
        "allBytes": 90,
        "damage": [{"file": "/data/commitlog/0", "offset": 90, "problem": problem.what}],
    }


def test_problems_of_the_node_are_lines_below_the_tables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_problems([], as_json=False)
    assert capsys.readouterr().out == ""
    show_problems(["a: damaged; restore it", "b: closed"], as_json=False)
    assert capsys.readouterr().out == "\nproblem: a: damaged; restore it\nproblem: b: closed\n"
    show_problems(["a: damaged"], as_json=True)
    assert json.loads(capsys.readouterr().out) == {"problem": "a: damaged"}


def test_an_app_that_runs_by_itself_is_not_said_to_be_down() -> None:
    assert without_hosts([]).startswith("no app is up")
    idle = GroupDescription("audit", "T", Subscription.tags("*"), {}, {}, {}, NO_COUNTERS, 0)
    assert without_hosts([idle]).startswith("no app is up")
    living = replace(idle, group="trade-pay", members={"m": [0]})
    assert "groups have members: trade-pay; they belong" in without_hosts([idle, living])


def test_members_of_before_a_restart_are_not_said_to_run() -> None:
    tags = Subscription.tags("*")
    idle = GroupDescription("audit", "T", tags, {}, {}, {}, NO_COUNTERS, 0)
    members = {"m": [0], "n": [1]}
    silent = replace(idle, group="shop-pay", members=members, unheard=frozenset(members))
    said = without_hosts([idle, silent])
    assert said.startswith("no app is up")
    assert "not reported since the node started: shop-pay; they are removed" in said
    half = replace(silent, unheard=frozenset("m"))
    assert "groups have members: shop-pay; they belong" in without_hosts([half])


def test_more_instances_than_queues_are_warned_about() -> None:
    others = [
        replace(GROUP, topic="%RETRY%g", offsets={0: 0}),
        replace(GROUP, topic="Prices", offsets={0: 0}, is_broadcast=True),
        replace(GROUP, group="audit", topic="Trade", offsets={0: 0}),
    ]
    queues = queues_of(HOSTS, [GROUP, *others])
    assert idle_instances(queues, 4) == []
    (line,) = idle_instances(queues, 6)
    assert line.startswith(
        "topic Orders has 4 queues, and a queue is read by one instance at a time"
    )
    assert "2 of the 6 instances get none of its messages; run 4, or" in line
    assert line.endswith("rocketray topics alter Orders --queues 6")


LAKE = SinkStatistics("lake", "Orders", SinkState.RUNNING, 0, 7, 1000, 2500.6, 40)
BROKEN = SinkStatistics(
    "broken", "Orders", SinkState.RESTARTING, 3, error="ValueError: no bucket", place="/shop.py:7"
)
LAKES = Host("shop", "sinks", "running", 0, replace(STATUS, agents=(), sinks=(LAKE, BROKEN)))


def test_people_see_the_sinks_and_why_one_failed(capsys: pytest.CaptureFixture[str]) -> None:
    show_hosts([LAKES], as_json=False)
    hosts, sinks, _logs, failed = capsys.readouterr().out.split("\n\n")
    assert "shop  sinks  node-1" in hosts
    assert sinks.splitlines()[2:] == [
        "shop  lake    Orders  running         7  1000    2501      40         0",
        "shop  broken  Orders  restarting      -     -       -       -         3",
    ]
    assert failed == ("shop sink broken failed and restarts: ValueError: no bucket (/shop.py:7)\n")


def test_programs_see_the_sinks(capsys: pytest.CaptureFixture[str]) -> None:
    show_hosts([LAKES], as_json=True)
    host = json.loads(capsys.readouterr().out)
    assert (host["host"], host["agents"]) == ("sinks", [])
    assert host["sinks"][1] == {
        "sink": "broken",
        "topic": "Orders",
        "state": "restarting",
        "restarts": 3,
        "batchId": None,
        "batchRows": None,
        "rowsPerS": None,
        "lag": None,
        "error": "ValueError: no bucket",
        "place": "/shop.py:7",
    }


def test_a_failure_is_told_once_while_up_waits() -> None:
    failed = Host("shop", 0, "restarting", 1, None, FAILURE)
    [host, sink] = failures_of([failed, LAKES])
    assert host[2].startswith("host 0 failed and starts again: ValueError: no database")
    assert sink[2] == "sink broken failed and restarts: ValueError: no bucket (/shop.py:7)"
    again = replace(LAKES, status=replace(STATUS, sinks=(replace(BROKEN, restarts=4),)))
    assert failures_of([again])[0][1] != sink[1]

"""``rocketray status`` over a node in this process, on which groups run that no host belongs to."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.harness.command_server import run_here
from support.harness.patience import until
from support.nodes.apps import make_app, put, running
from support.nodes.local_node import LocalNode

from rocketray.broker.retries.dead_letter_api import LetterBox
from rocketray.broker.shards.shard_api import ScrubState
from rocketray.cli.nodes import status
from rocketray.cli.nodes.trouble_status import show_troubles
from rocketray.filters.subscription import Subscription
from rocketray.hosting import apps_service
from rocketray.messaging.consumers import member as member_module
from rocketray.services.admin.dead_letter_service import DeadLetterService
from rocketray.services.health.node_readings import NodeReadings
from rocketray.services.health.troubles import HealthReadings


@pytest.fixture(autouse=True)
def no_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray, which would be asked for hosts, does not run here."""
    monkeypatch.setattr(apps_service, "find_hosts", lambda *_: [])


def connect_to(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the commands of this process use *node*."""

    def unflushed() -> dict[str, int]:
        processes = node.processes.values()
        return {place: age for each in processes for place, age in each.reports.unflushed().items()}

    def scrubs() -> dict[str, ScrubState]:
        processes = node.processes.values()
        return {
            place: scrub for each in processes for place, scrub in each.reports.scrubs().items()
        }

    monkeypatch.setattr(node, "unflushed", unflushed, raising=False)
    monkeypatch.setattr(node, "scrubs", scrubs, raising=False)
    monkeypatch.setattr(status, "ask", lambda _data: nullcontext(node))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNode]:
    monkeypatch.setattr(member_module, "HEARTBEAT_INTERVAL_S", 0.02)
    with LocalNode(tmp_path) as local:
        connect_to(local, monkeypatch)
        local.letters = DeadLetterService(local)
        local.topics.ensure("T", 1)
        yield local


def test_a_filter_that_fails_is_shown_of_a_member_of_a_client(node: LocalNode) -> None:
    for amount in ("200", "abc", "12a"):
        put(node, "T", [b"x"], properties={"amount": amount})
    with (
        node.consumer("audit", "T", Subscription.sql("amount > 100")) as member,
        node.consumer("healthy", "T", Subscription.tags("*")),
    ):
        while node.groups.all()[0].counters.errors < 2:
            member.poll(0.1)
        for process in node.processes.values():
            process.flush()
        *lines, verified = run_here("status", "--over", "0", "--json").lines()
        assert lines == [
            {"group": "audit", "topic": "T", "filterErrors": 2, "held": []},
            {"unflushed": []},
        ]
        assert {each["topic"] for each in verified["verified"]} >= {"T"}
        shown = run_here("status", "--over", "0").out
    first, *complaints = shown.removesuffix("\n").split("\n\n")
    assert "groups have members: audit, healthy;" in first
    assert complaints == [
        "group audit, topic T: the filter failed on 2 messages; see: rocketray filter stats",
        "all stored messages are on disk",
    ]


def test_of_an_app_it_says_what_it_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    readings = HealthReadings(NodeReadings("c", 12, {}), letters=[LetterBox("other", "T", 1, 0)])
    show_troubles(readings, [], [], as_json=False)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == (
        "nothing is wrong; looked at: 0 topics, 0 groups, 0 hosts of apps; see the others with: "
        "rocketray status"
    )


def test_it_begins_with_what_is_wrong_and_says_so_if_nothing_is(node: LocalNode) -> None:
    node.topics.ensure("%DLQ%audit", 1)
    well = run_here("status").out.splitlines()
    assert well[0] == "nothing is wrong; looked at: 2 topics, 0 groups, 0 hosts of apps"
    put(node, "%DLQ%audit", [b"letter"])
    node.state.problems.note("clock", "the clock is off")
    wrong = run_here("status").out.splitlines()
    assert wrong[:2] == [
        "node: the clock is off",
        "letters: 1 dead letter of group audit waits for a decision",
    ]
    assert wrong[2].startswith("    see them with: rocketray dlq show audit; ")
    assert wrong[3] == ""
    assert "problem: the clock is off" not in wrong, "it is said once"
    found = [line["trouble"] for line in run_here("status", "--json").lines() if "trouble" in line]
    assert [(one["kind"], one["severity"], one["group"]) for one in found] == [
        ("node", "error", None),
        ("letters", "warning", "audit"),
    ]


def test_a_queue_that_is_held_is_shown_of_an_app_that_runs_by_itself(node: LocalNode) -> None:
    put(node, "T", [b"good", b"bad"])

    async def scenario() -> None:
        app, topic = make_app(node)

        @app.agent(topic, ordered=True, suspend=0.05)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if value == b"bad":
                    raise ValueError("no such account")

        async with running(app):
            await until(lambda: any(each.failing for each in node.groups.all()))
            [group, *_] = (
                await asyncio.to_thread(run_here, "status", "--over", "0", "--json")
            ).lines()
            shown = (await asyncio.to_thread(run_here, "status", "--over", "0")).out
            alone = (await asyncio.to_thread(run_here, "status", "app", "--json")).lines()
            told = (await asyncio.to_thread(run_here, "status", "app")).out
            unknown = await asyncio.to_thread(run_here, "status", "other")
        [held] = group.pop("held")
        assert group == {"group": "app-reader", "topic": "T", "filterErrors": 0}
        assert (held["queueId"], held["queueOffset"]) == (0, 1)
        assert held["reason"] == "ValueError: no such account"
        assert "\n\ngroup app-reader, topic T: queue 0 is held at offset 1: attempt " in shown
        assert "ValueError: no such account\n" in shown
        [program] = [line for line in alone if "program" in line]
        assert program["processes"] == [{"machine": socket.gethostname(), "pid": os.getpid()}]
        assert program["groups"] == ["app-reader"]
        assert f"app app runs as a program, not by rocketray up: pid {os.getpid()} on " in told
        assert told.startswith(
            "held: group app-reader is held in queue 0 of topic T, at offset 1: "
        )
        assert unknown.code == 1
        assert "app 'other' is not up" in unknown.err
        assert "look at the groups that have members: app-reader" in unknown.err

    asyncio.run(scenario())


def test_where_groups_are_closed_status_shows_why_and_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").mkdir()
    for suffix in ("", ".bak"):
        (tmp_path / "config" / f"groups.json{suffix}").write_bytes(b"\0\0{")
    with LocalNode(tmp_path) as node:
        connect_to(node, monkeypatch)
        node.state.problems.note("other", "something else is wrong")
        shown, for_programs = (
            run_here("status", "--over", "0"),
            run_here("status", "--over", "0", "--json"),
        )
    assert (shown.code, shown.err) == (for_programs.code, for_programs.err) == (1, "")
    first, *flushed, empty, closed, other = shown.out.splitlines()
    assert flushed[:2] == ["", "all stored messages are on disk"]
    assert flushed[2:] == []
    assert first == "no app was started with rocketray up, and consumer groups are closed"
    assert empty == ""
    assert closed.startswith("problem: consumer groups are closed")
    assert str(tmp_path / "config" / "groups.json") in closed
    assert "damaged" in closed
    assert other == "problem: something else is wrong"
    assert for_programs.out.count('{"problem": "') == 2

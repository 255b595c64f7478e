"""What a group's members tell of themselves: release, machine, process, and since when they joined."""

from __future__ import annotations

import os
import pickle
import socket
from dataclasses import fields, replace
from typing import Any

import pytest
from support.models.heartbeats import PAY, beat, restarted

from rocketray import __version__
from rocketray.groups.group_descriptions import MemberDescription
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import Heartbeat
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.messaging.consumers.member_session import MemberSession
from rocketray.views.node_records import members_record

pytestmark = pytest.mark.proves(
    "groups", "A member's release, process and joining time are known, or said to be unknown"
)
TOLD = {"release": "1.2.3", "machine": "web1", "pid": 4711}
WALL_MS = 1_800_000_000_000


def told(member: str, held: set[int] | None = None, **more: Any) -> Heartbeat:
    return replace(beat(member, held), **{**TOLD, **more})


def described(registry: GroupRegistry, now_ms: int) -> dict[str, MemberDescription]:
    [group] = registry.describe({"Topic": 2}, now_ms)
    assert group.clients.keys() == group.members.keys()
    return group.clients


def as_sent_by_an_earlier_release(beat: Heartbeat) -> Heartbeat:
    """The heartbeat of a release whose class has no process yet."""

    class Earlier:
        def __reduce__(self) -> Any:
            values = [getattr(beat, each.name) for each in fields(beat)]
            return object.__new__, (Heartbeat,), values[: -len(TOLD)]

    found = pickle.loads(pickle.dumps(Earlier()))
    assert isinstance(found, Heartbeat)
    return found


def test_a_session_tells_its_process_in_each_heartbeat() -> None:
    sent = MemberSession(beat("a"), lambda: 0).leave()
    assert (sent.release, sent.machine) == (__version__, socket.gethostname())
    assert sent.pid == os.getpid()
    assert pickle.loads(pickle.dumps(sent)) == sent


def test_a_member_is_described_by_its_last_heartbeat_and_by_when_it_joined() -> None:
    registry = GroupRegistry()
    registry.heartbeat(told("a"), 2, 10, WALL_MS)
    registry.heartbeat(told("a", {0, 1}), 2, 1010, WALL_MS + 1000)
    assert described(registry, 1310) == {
        "a": MemberDescription("1.2.3", "web1", 4711, WALL_MS, 300, PAY, [0, 1])
    }


def test_a_heartbeat_of_an_earlier_release_is_taken_and_what_it_lacks_is_unknown() -> None:
    registry = GroupRegistry()
    sent = told("a")
    assert registry.heartbeat(as_sent_by_an_earlier_release(sent), 2, 0, WALL_MS).granted == {
        0: -1,
        1: -1,
    }
    found = described(registry, 0)["a"]
    assert (found.release, found.machine, found.pid, found.joined_ms) == ("", "", 0, WALL_MS)
    [group] = registry.describe({"Topic": 2}, 0)
    [record] = members_record(group)["members"]
    assert [record[key] for key in ("release", "machine", "pid")] == [None, None, None]


def test_a_restarted_coordinator_knows_the_process_and_when_it_joined() -> None:
    before = GroupRegistry()
    before.heartbeat(told("a"), 2, 0, WALL_MS)
    after = restarted(before, 50)
    assert described(after, 60) == {
        "a": MemberDescription("1.2.3", "web1", 4711, WALL_MS, None, None, [])
    }, "no heartbeat came since"
    after.heartbeat(told("a", {0, 1}), 2, 70, WALL_MS + 70)
    found = described(after, 75)["a"]
    assert (found.joined_ms, found.silent_ms, found.subscription) == (WALL_MS, 5, PAY)


def test_of_groups_that_an_earlier_release_saved_the_joining_time_stays_unknown() -> None:
    before = GroupRegistry()
    before.heartbeat(told("a"), 2, 0, WALL_MS)
    tables = before.to_json()
    [member] = tables["memberships"]["Topic@group"]["members"].values()
    for key in ("joinedMs", "release", "machine", "pid"):
        del member[key]
    after = GroupRegistry()
    after.load(tables, 50)
    found = described(after, 60)["a"]
    assert (found.joined_ms, found.release, found.pid) == (None, "", 0)
    after.saved()
    after.heartbeat(told("a"), 2, 70, WALL_MS + 70)
    assert after.must_save, "the release that the member tells now"
    found = described(restarted(after, 80), 80)["a"]
    assert (found.joined_ms, found.release, found.pid) == (None, "1.2.3", 4711)


def test_who_was_gone_joins_again_and_another_process_of_the_name_joins_anew() -> None:
    registry = GroupRegistry()
    registry.heartbeat(told("a"), 2, 0, WALL_MS)
    back_ms = SESSION_TIMEOUT_MS + 1
    registry.heartbeat(told("a"), 2, back_ms, WALL_MS + back_ms)
    assert described(registry, back_ms)["a"].joined_ms == WALL_MS + back_ms
    registry.heartbeat(told("a", instance="i2", pid=1), 2, back_ms + 5, WALL_MS + back_ms + 5)
    found = described(registry, back_ms + 5)["a"]
    assert (found.joined_ms, found.pid) == (WALL_MS + back_ms + 5, 1)


def test_members_are_counted_by_release() -> None:
    registry = GroupRegistry()
    registry.heartbeat(told("a"), 2, 0)
    registry.heartbeat(told("b", release="1.3.0"), 2, 1)
    registry.heartbeat(told("c"), 2, 2)
    registry.heartbeat(as_sent_by_an_earlier_release(beat("d")), 2, 3)
    [group] = registry.describe({"Topic": 2}, 4)
    record = members_record(group)
    assert record["releases"] == {"1.2.3": 2, "1.3.0": 1, "unknown": 1}
    assert [each["clientId"] for each in record["members"]] == ["a", "b", "c", "d"]

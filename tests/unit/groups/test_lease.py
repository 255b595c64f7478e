"""A member that the coordinator does not answer hands out nothing, and says so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.nodes.apps import numbers, put
from support.nodes.local_node import LocalNode

from rocketray.errors import ConfigError, ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.groups_api import SessionsApi
from rocketray.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.groups.lease import LEASE_MS, SESSION_TIMEOUT_MS, Lease
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.runtime.clock import system_clock_ms

ALL = Subscription.tags("*")


class Clock:
    now_ms = 1000

    def __call__(self) -> int:
        return self.now_ms


class CutOffNode(LocalNode):
    """Its coordinator can be cut off from the members."""

    is_cut_off = False

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.sessions = _CutOffSessions(self, self.sessions)


class _CutOffSessions:
    def __init__(self, node: CutOffNode, sessions: SessionsApi) -> None:
        self._node = node
        self._sessions = sessions
        self.leave = sessions.leave

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        if self._node.is_cut_off:
            raise ShardUnavailableError("the coordinator", "cut off by the test")
        return self._sessions.heartbeat(beat)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CutOffNode]:
    with CutOffNode(tmp_path) as local:
        local.topics.ensure("T", 1)
        yield local


def bodies(member: GroupConsumer, count: int, polls: int = 200) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count and polls:
        polls -= 1
        found += [body for batch in member.poll(0.1) for body in batch.bodies()]
    return found


def test_a_lease_counts_from_when_the_question_was_asked() -> None:
    clock = Clock()
    lease = Lease(clock)
    running = [lease.is_running]
    asked_ms = lease.asked_at()
    clock.now_ms += 500
    lease.renew(asked_ms)
    for ms in (LEASE_MS - 501, 1):
        clock.now_ms += ms
        running.append(lease.is_running)
    assert running == [False, True, False]
    assert LEASE_MS < SESSION_TIMEOUT_MS


@pytest.mark.proves("groups", "A member without a lease delivers nothing")
def test_a_member_without_a_lease_hands_out_nothing_until_it_is_answered(
    node: CutOffNode, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with GroupConsumer(node, "g", "T", ALL, clock_ms=clock) as member:
        put(node, "T", numbers(3))
        assert bodies(member, 3) == numbers(3)
        node.is_cut_off = True
        clock.now_ms += LEASE_MS
        put(node, "T", numbers(2, first=3))
        with caplog.at_level(logging.WARNING):
            assert bodies(member, 1, polls=5) == []
        assert "pauses delivery: the coordinator did not answer for 8 s" in caplog.text
        assert member.assignment() == {("T", 0)}, "it may still be its own"
        node.is_cut_off = False
        assert bodies(member, 2) == numbers(2, first=3)
        assert "resumes" in caplog.text


@pytest.mark.proves("groups", "A member that returns resumes at the group's offsets")
def test_a_member_that_was_taken_for_dead_goes_on_where_the_group_stands(node: CutOffNode) -> None:
    clock = Clock()
    with GroupConsumer(node, "g", "T", ALL, clock_ms=clock, client_id="one") as member:
        put(node, "T", numbers(4))
        assert bodies(member, 4) == numbers(4)
        node.is_cut_off = True
        clock.now_ms += LEASE_MS
        other = Heartbeat("g", "T", ALL, "two", "life", frozenset())
        later_ms = system_clock_ms() + SESSION_TIMEOUT_MS + 1
        assert node.state.registry.heartbeat(other, 1, later_ms).granted.keys() == {0}
        node.state.leave(replace(other, held=frozenset({0}), commits={0: 2}))
        node.is_cut_off = False
        assert bodies(member, 2) == numbers(2, first=2), "what another one had begun is not skipped"


def test_a_member_whose_coordinator_fails_in_an_unknown_way_says_so(
    node: CutOffNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.consumer("g", "T", ALL) as member:

        def fail(_beat: Heartbeat) -> HeartbeatReply:
            raise KeyError("what nobody thought of")

        monkeypatch.setattr(node.sessions, "heartbeat", fail)
        member.beat()
        with pytest.raises(StreamError, match="what nobody thought of"):
            member.poll(0)


@pytest.mark.parametrize("name", ["a\n", "n" * 256])
def test_a_member_cannot_be_called_anything(node: CutOffNode, name: str) -> None:
    with pytest.raises(ConfigError, match="1 to 255 printable"):
        node.consumer("g", "T", ALL, client_id=name)

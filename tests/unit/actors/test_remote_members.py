"""The limits on members on other nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.local_node import LocalNode

from rocketray.actors import remote_members
from rocketray.actors.gateway import GATEWAY_THREADS
from rocketray.actors.remote_members import MEMBERS_MAX, JoinRequest, RemoteMembers
from rocketray.errors import ShardUnavailableError, StreamError, UnknownMemberError
from rocketray.filters.subscription import Subscription

REQUEST = JoinRequest("g", "Trade", Subscription.tags("*"), {})


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.create_topic("Trade", 4)
        yield node


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_no_more_members_than_the_limit_join(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_members, "MEMBERS_MAX", 2)
    members = node.gateway
    first, _ = members.join(REQUEST), members.join(REQUEST)
    with pytest.raises(StreamError, match="2 members on other nodes read through this node"):
        members.join(REQUEST)
    members.leave(first, {})
    members.join(REQUEST)
    with pytest.raises(StreamError, match="is the limit"):
        members.join(REQUEST)


def test_a_join_that_fails_takes_no_place(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_members, "MEMBERS_MAX", 1)
    bad = JoinRequest("g", "Nowhere", Subscription.tags("*"), {})
    for _ in range(3):
        with pytest.raises(StreamError, match="Nowhere"):
            node.gateway.join(bad)
    node.gateway.join(REQUEST)


def test_a_poll_does_not_wait_longer_than_the_limit_whatever_is_asked(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_members, "POLL_MAX_S", 0.05)
    name = node.gateway.join(REQUEST)
    for timeout_s in (1e9, float("inf"), float("nan"), -1.0):
        assert node.gateway.poll(name, timeout_s).frames == []


def test_all_members_in_polls_leave_threads_for_what_answers_at_once(node: LocalNode) -> None:
    assert GATEWAY_THREADS >= MEMBERS_MAX + 50
    members = RemoteMembers(node._join, time.monotonic)
    name = members.join(REQUEST)
    wait_until(lambda: len(members.poll(name, 0).assignment) == 4)
    waiting = threading.Thread(target=members.poll, args=(name, 15.0))
    waiting.start()
    wait_until(members._find(name)._polling.locked)
    with pytest.raises(ShardUnavailableError, match="a poll of this member waits"):
        members.poll(name, 15.0)  # takes no second thread
    assert members.commit(name, {}) > 0
    members.leave(name, {})
    waiting.join()
    with pytest.raises(UnknownMemberError):
        members.poll(name, 0)

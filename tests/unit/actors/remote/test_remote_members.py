"""The node's side of members on other nodes: limits, leases, and queues that change hands."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.local_node import LocalNode

from rocketray.actors.cluster.gateway_actor import GATEWAY_THREADS
from rocketray.actors.consumers.member import GroupConsumer
from rocketray.actors.remote import proxy_member, remote_members
from rocketray.actors.remote.remote_calls import JoinRequest, PollReply
from rocketray.actors.remote.remote_members import MEMBERS_MAX, SILENCE_S, RemoteMembers
from rocketray.actors.topics.consumed_batch import ConsumedBatch
from rocketray.errors import ShardUnavailableError, StreamError, UnknownMemberError
from rocketray.filters.subscription import Subscription
from rocketray.store.reading.packed_records import unpack_records

ALL = Subscription.tags("*")
REQUEST = JoinRequest("g", "Trade", ALL, {})


class Link:
    """A member's calls, in the order in which it makes them."""

    def __init__(self, members: RemoteMembers) -> None:
        self.name = uuid.uuid4().hex
        members.join(self.name, REQUEST)
        self._members = members
        self._received = 0

    def poll(self, timeout_s: float = 0.1) -> PollReply:
        reply = self._members.poll(self.name, timeout_s, self._received)
        self._received = reply.number
        return reply

    def lease_ms(self) -> int:
        return self._members.commit(self.name, {}).lease_ms


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
    for name in ("first", "second", "first"):
        members.join(name, REQUEST)
    with pytest.raises(StreamError, match="2 members on other nodes read through this node"):
        members.join("third", REQUEST)
    members.leave("first", {})
    members.join("third", REQUEST)
    with pytest.raises(StreamError, match="is the limit"):
        members.join("first", REQUEST)


def test_a_join_that_fails_takes_no_place(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_members, "MEMBERS_MAX", 1)
    bad = JoinRequest("g", "Nowhere", Subscription.tags("*"), {})
    for _ in range(3):
        with pytest.raises(StreamError, match="Nowhere"):
            node.gateway.join("bad", bad)
    node.gateway.join("good", REQUEST)


def test_a_poll_does_not_wait_longer_than_the_limit_whatever_is_asked(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_members, "POLL_MAX_S", 0.05)
    name = Link(node.gateway).name
    for timeout_s in (1e9, float("inf"), float("nan"), -1.0):
        assert node.gateway.poll(name, timeout_s, 0).frames == []


def test_all_members_in_polls_leave_threads_for_what_answers_at_once(node: LocalNode) -> None:
    assert GATEWAY_THREADS >= MEMBERS_MAX + 50
    members = RemoteMembers(node._join, time.monotonic)
    link = Link(members)
    wait_until(lambda: len(link.poll().assignment) == 4)
    waiting = threading.Thread(target=link.poll, args=(15.0,))
    waiting.start()
    wait_until(members._find(link.name)._polling.locked)
    with pytest.raises(ShardUnavailableError, match="this member has a waiting poll"):
        link.poll(15.0)  # takes no second thread
    assert link.lease_ms() > 0
    members.leave(link.name, {})
    waiting.join()
    with pytest.raises(UnknownMemberError):
        link.poll()


def test_a_silent_member_is_given_up(node: LocalNode) -> None:
    now = time.monotonic()
    members = RemoteMembers(node._join, lambda: now)
    link = Link(members)
    now += SILENCE_S
    members.sweep()
    link.lease_ms()  # it lives
    now += SILENCE_S + 0.1
    members.sweep()
    with pytest.raises(UnknownMemberError, match="join again"):
        link.poll()
    assert node.groups.all()[0].members == {}


def test_no_lease_is_answered_to_a_member_whose_sweep_has_begun(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    members = RemoteMembers(node._join, lambda: now)
    first, second = Link(members), Link(members)
    swept: list[Link] = []
    answered: list[Link] = []

    def close(proxy: proxy_member.ProxyMember) -> None:
        """The first that is swept takes its time, and the other one lives again meanwhile."""
        swept.extend(link for link in (first, second) if proxies[link] is proxy)
        if len(swept) == 1:
            try:
                second.lease_ms()
                answered.append(second)
            except UnknownMemberError:
                pass
        really_close(proxy)

    proxies = {link: members._find(link.name) for link in (first, second)}
    really_close = proxy_member.ProxyMember.close
    monkeypatch.setattr(proxy_member.ProxyMember, "close", close)
    now += SILENCE_S + 0.1
    members.sweep()
    assert set(swept).isdisjoint(answered)
    assert first in swept
    members.close()


def test_a_sweep_ends_all_that_are_silent_also_while_the_coordinator_is_away(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    members = RemoteMembers(node._join, lambda: now)
    links = Link(members), Link(members)

    def leave(_beat: object) -> None:
        raise ShardUnavailableError("or coordinator", 1000, "away in the test")

    monkeypatch.setattr(node.sessions, "leave", leave)
    now += SILENCE_S + 0.1
    members.sweep()
    for link in links:
        with pytest.raises(UnknownMemberError):
            link.poll()


def test_a_member_that_leaves_gets_no_lease_any_more(node: LocalNode) -> None:
    link = Link(node.gateway)
    left = node.gateway._find(link.name)  # by a commit that came before it left
    node.gateway.leave(link.name, {})
    assert left.commit({}).lease_ms == 0


def test_a_revoke_bounds_the_lease_until_the_member_gives_up_or_joins_again(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    members = RemoteMembers(node._join, lambda: now_s)
    link = Link(members)
    wait_until(lambda: len(link.poll().assignment) == 4)

    monkeypatch.setattr(proxy_member, "REVOKE_TIMEOUT_S", 6.0)
    with node.consumer("g", "Trade", ALL):
        wait_until(lambda: link.poll().revoked)
        wait_until(lambda: link.lease_ms() <= 6000)
        members.give_up(link.name, 0, {})
        assert link.lease_ms() <= 6000, "that was another revocation"
        members.give_up(link.name, 1, {})
        wait_until(lambda: link.lease_ms() > 6000)
    wait_until(lambda: len(link.poll().assignment) == 4)

    monkeypatch.setattr(proxy_member, "REVOKE_TIMEOUT_S", 0.2)
    with node.consumer("g", "Trade", ALL) as near:
        wait_until(lambda: near.poll(0) == [] and near.assignment())
        assert link.lease_ms() == 200
        now_s = 0.2
        assert link.lease_ms() == 0
        members.give_up(link.name, 2, {})
        assert link.lease_ms() == 0, "what it says late is not heard"
        members.leave(link.name, {})
        assert Link(members).lease_ms() > 0
        members.close()


def test_a_full_backlog_does_not_keep_queues_from_their_next_owner(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_member, "FRAME_BYTES", 1000)
    with node.producer() as producer:
        for number in range(400):
            producer.send_async("Trade", b"%d" % number, queue_id=number % 4)
    link = Link(node.gateway)
    backlog = node.gateway._find(link.name)._backlog
    wait_until(lambda: not backlog.wait_for_room(0))
    with node.consumer("g", "Trade", ALL) as near:
        wait_until(lambda: node.gateway.commit(link.name, {}).revoked)
        reply = link.poll(0)
        assert len(reply.revoked) == 2
        assert reply.assignment.isdisjoint(reply.revoked)
        frames = [unpack_records(frame).reader.queue_id for frame in reply.frames]
        assert reply.revoked.isdisjoint(frames)
        node.gateway.give_up(link.name, reply.revocation, {})
        wait_until(lambda: sum(map(len, near.poll(0))) and len(near.assignment()) == 2)


def test_a_poll_that_waits_hears_at_once_that_its_proxy_failed(node: LocalNode) -> None:
    link = Link(node.gateway)
    wait_until(lambda: len(link.poll().assignment) == 4)
    node.topics.delete("Trade")
    with pytest.raises(StreamError, match="Trade"):
        link.poll(15.0)


def test_a_proxy_goes_on_when_a_part_of_the_node_was_away_for_a_moment(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = iter([True, True])
    really_poll = GroupConsumer.poll

    def poll(*arguments: Any) -> list[ConsumedBatch]:
        if next(away, False):
            raise ShardUnavailableError("filter", 10, "away in the test")
        return really_poll(*arguments)

    monkeypatch.setattr(GroupConsumer, "poll", poll)
    with node.producer() as producer:
        producer.send("Trade", b"body", queue_id=0)
    link = Link(node.gateway)
    wait_until(lambda: link.poll().frames)
    assert next(away, None) is None


def test_a_join_that_is_asked_for_twice_makes_one_proxy(node: LocalNode) -> None:
    made: list[GroupConsumer] = []
    is_second_here = threading.Event()

    def join(request: JoinRequest) -> GroupConsumer:
        is_second_here.wait(60)
        time.sleep(0.1)  # it waits for the first
        made.append(node._join(request))
        return made[-1]

    members = RemoteMembers(join, time.monotonic)
    first = threading.Thread(target=members.join, args=("far", REQUEST))
    first.start()
    is_second_here.set()
    members.join("far", REQUEST)
    first.join()
    members.join("far", REQUEST)
    assert len(made) == 1
    assert len(node.groups.all()[0].members) == 1
    members.close()

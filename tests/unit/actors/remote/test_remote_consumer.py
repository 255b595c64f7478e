"""Members as if on another node: what an ordinary member does, over calls."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.local_node import LocalNode

from rocketray.actors.consumers import member as member_module
from rocketray.actors.groups.failing import FailingMessage
from rocketray.actors.remote import long_poll, proxy_member, remote_consumer
from rocketray.actors.remote.remote_calls import CommitReply, PollReply
from rocketray.actors.remote.remote_consumer import Member, RemoteGroupConsumer
from rocketray.actors.remote.remote_members import RemoteMembers
from rocketray.actors.topics.consumed_batch import ConsumedBatch
from rocketray.errors import (
    FilterError,
    ShardUnavailableError,
    SubscriptionConflictError,
    UnknownMemberError,
)
from rocketray.filters.subscription import Subscription
from rocketray.store.reading.packed_records import pack_records

ALL = Subscription.tags("*")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.create_topic("Trade", 4)
        yield node


def send(node: LocalNode, count: int, size: int = 10) -> None:
    with node.producer() as producer:
        for number in range(count):
            tag = "odd" if number % 2 else "even"
            body = b"%d" % number
            producer.send_async("Trade", body.ljust(size), tags=tag, queue_id=number % 4)


def receive(member: Member, count: int, *, commit: bool = True) -> list[ConsumedBatch]:
    found: list[ConsumedBatch] = []
    deadline = time.monotonic() + 60
    while sum(map(len, found)) < count and time.monotonic() < deadline:
        for batch in member.poll(0.2):
            found.append(batch)
            if commit:
                member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
    assert sum(map(len, found)) >= count
    return found


def numbers(batches: list[ConsumedBatch]) -> list[int]:
    return sorted(int(body) for batch in batches for body in batch.bodies())


def test_a_remote_member_gets_what_matches_and_its_commits_count(node: LocalNode) -> None:
    send(node, 1000)
    with node.remote_consumer("g", "Trade", Subscription.tags("odd")) as member:
        batches = receive(member, 500)
        assert numbers(batches) == list(range(1, 1000, 2))
        assert {message.tags for batch in batches for message in batch.messages()} == {"odd"}
        assert member.assignment() == {("Trade", queue_id) for queue_id in range(4)}
    [group] = node.groups.all()
    assert (group.offsets[1], group.offsets[3]) == (250, 250)
    with node.remote_consumer("g", "Trade", Subscription.tags("odd")) as member:
        assert sum(map(len, member.poll(1.0))) == 0, "what was committed does not come again"


def test_the_message_at_which_a_remote_member_holds_a_queue_is_known(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_module, "HEARTBEAT_INTERVAL_S", 0.02)
    monkeypatch.setattr(remote_consumer, "_COMMIT_INTERVAL_S", 0.02)
    failing = FailingMessage(3, 2, 17, "ValueError: odd")
    with node.remote_consumer("g", "Trade", ALL) as member:
        member.poll(0.1)
        for expected in ({1: failing}, {}):
            member.report_failing(expected)
            deadline = time.monotonic() + 60
            while node.groups.all()[0].failing != expected and time.monotonic() < deadline:
                time.sleep(0.01)
            assert node.groups.all()[0].failing == expected


def test_large_messages_come_in_frames_of_a_bounded_size(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_member, "FRAME_BYTES", 10_000)
    send(node, 200, size=3000)
    with node.remote_consumer("g", "Trade", ALL) as member:
        batches = receive(member, 200)
        assert numbers(batches) == list(range(200))
        assert max(map(len, batches)) <= 3
        for queue_id in range(4):
            offsets = [one.next_queue_offset for one in batches if one.queue_id == queue_id]
            assert offsets == sorted(offsets)
    [group] = node.groups.all()
    assert list(group.offsets.values()) == [50] * 4


def test_queues_are_handed_over_between_remote_and_near_members(node: LocalNode) -> None:
    send(node, 100)
    with node.remote_consumer("g", "Trade", ALL) as far:
        seen = numbers(receive(far, 100))
        revoked: list[tuple[str, int]] = []

        def on_revoke(queues: frozenset[tuple[str, int]]) -> None:
            revoked.extend(queues)

        far.on_revoke = on_revoke
        with node.consumer("g", "Trade", ALL) as near:
            deadline = time.monotonic() + 60
            while len(near.assignment()) < 2 and time.monotonic() < deadline:
                assert all(not len(batch) for batch in far.poll(0.05))
                assert all(not len(batch) for batch in near.poll(0.05))
            assert sorted(revoked) == sorted(near.assignment())
            assert far.assignment().isdisjoint(near.assignment())
            send(node, 40)
            got = numbers(receive(far, 20))
            while len(got) < 40 and time.monotonic() < deadline:
                for batch in near.poll(0.1):
                    got += [int(body) for body in batch.bodies()]
    assert seen == list(range(100))
    assert sorted(got) == list(range(40)), "none is lost or repeated"


def test_a_member_that_was_given_up_joins_again_and_loses_nothing(node: LocalNode) -> None:
    send(node, 40)
    with node.remote_consumer("g", "Trade", ALL) as member:
        first = receive(member, 40, commit=False)
        lost: list[frozenset[tuple[str, int]]] = []
        member.on_revoke = lost.append
        node.gateway.close()  # as if its process had died
        send(node, 4)
        again = receive(member, 44)
    assert numbers(first) == list(range(40))
    assert numbers(again) == sorted([*range(40), *range(4)]), "nothing was committed before"
    assert lost[0] == {("Trade", queue_id) for queue_id in range(4)}


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_member_that_does_not_poll_has_no_lease_when_its_queues_go_to_another(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_member, "LEASE_MS", 800)
    monkeypatch.setattr(proxy_member, "REVOKE_TIMEOUT_S", 1.0)
    monkeypatch.setattr(remote_consumer, "_COMMIT_INTERVAL_S", 0.05)
    monkeypatch.setattr(long_poll, "LONG_POLL_S", 0.1)
    with node.remote_consumer("g", "Trade", ALL) as far:
        wait_until(lambda: far.poll(0.1) == [] and far.assignment())
        with node.consumer("g", "Trade", ALL) as near:
            wait_until(lambda: near.poll(0) == [] and near.assignment())
            assert not far.is_leased
            assert far.needs_rebalance
            wait_until(lambda: far.poll(0.1) == near.poll(0) and far.is_leased and far.assignment())
            assert far.assignment().isdisjoint(near.assignment())


def test_a_member_that_takes_nothing_still_gives_up_queues_at_once(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_member, "FRAME_BYTES", 10_000)
    monkeypatch.setattr(proxy_member, "REVOKE_TIMEOUT_S", 60.0)
    monkeypatch.setattr(remote_consumer, "_COMMIT_INTERVAL_S", 0.05)
    send(node, 400, size=3000)
    with node.remote_consumer("g", "Trade", ALL) as far:
        seen = numbers(receive(far, 1))
        wait_until(lambda: len(far._long_poll.waiting()) > 2)
        with node.consumer("g", "Trade", ALL) as near:
            wait_until(lambda: far.needs_rebalance)
            assert far.is_leased
            assert far.poll(0) == [], "what waits is not handed out first"
            lost = {
                queue_id for queue_id in range(4) if ("Trade", queue_id) not in far.assignment()
            }
            assert len(lost) == 2
            near_batches = receive(near, 1)
            assert near.assignment() == {("Trade", queue_id) for queue_id in lost}
            rest = 400 - len(seen) - sum(map(len, near_batches))
            while rest > 0:
                of_near, of_far = near.poll(0.05), far.poll(0)
                assert lost.isdisjoint(batch.queue_id for batch in of_far)
                near_batches += of_near + of_far
                rest -= sum(map(len, of_near + of_far))
            got = numbers(near_batches)
    assert sorted(seen + got) == list(range(400)), "none is lost or repeated"


class LosingGateway:
    """Loses the replies that the test wants lost, once they were made."""

    def __init__(self, members: RemoteMembers) -> None:
        self._members = members
        self.polls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._members, name)

    def poll(self, name: str, timeout_s: float, received: int) -> PollReply:
        reply = self._members.poll(name, timeout_s, received)
        self.polls += 1
        if self.polls % 2:
            raise ShardUnavailableError("gateway", 0, "the reply was lost by the test")
        return reply


def test_no_message_is_lost_with_a_reply(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_member, "FRAME_BYTES", 10_000)
    monkeypatch.setattr(long_poll, "_RETRY_S", 0.01)
    send(node, 200, size=3000)
    gateway = LosingGateway(node.gateway)
    with RemoteGroupConsumer(gateway, "g", "Trade", ALL) as member:
        assert numbers(receive(member, 200)) == list(range(200))
    assert gateway.polls > 2


class LosingCounts:
    """Loses every second reply to counts of returned messages, once they were taken."""

    def __init__(self, members: RemoteMembers) -> None:
        self._members = members
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._members, name)

    def count_returns(self, name: str, sent_back: int, dead_lettered: int) -> None:
        self._members.count_returns(name, sent_back, dead_lettered)
        self.calls += 1
        if self.calls % 2:
            raise ShardUnavailableError("gateway", 0, "the reply was lost by the test")


def test_returned_messages_count_once_though_a_reply_is_lost(node: LocalNode) -> None:
    gateway = LosingCounts(node.gateway)
    with RemoteGroupConsumer(gateway, "g", "Trade", ALL) as member:
        member.poll(0.1)
        for sent_back, dead_lettered, counted in (2, 1, (2, 1)), (1, 1, (3, 2)):
            member.count_returns(sent_back=sent_back, dead_lettered=dead_lettered)
            for _ in range(2):
                member.beat()
            until_counted(node, counted)
    assert gateway.calls == 4


def member_counts(node: LocalNode) -> tuple[int, int]:
    (group,) = node.groups.all()
    return group.counters.sent_back, group.counters.dead_lettered


def until_counted(node: LocalNode, counts: tuple[int, int]) -> None:
    deadline = time.monotonic() + 60
    while member_counts(node) != counts:
        assert time.monotonic() < deadline, f"{member_counts(node)} and not {counts}"
        time.sleep(0.01)


class DeafGateway:
    """It does not answer for some time when queues are given up."""

    def __init__(self, members: RemoteMembers) -> None:
        self._members = members
        self.deaf_times = 2

    def __getattr__(self, name: str) -> Any:
        return getattr(self._members, name)

    def give_up(self, name: str, revocation: int, commits: Mapping[int, int], number: int) -> None:
        self.deaf_times -= 1
        if self.deaf_times >= 0:
            raise ShardUnavailableError("gateway", 0, "away in the test")
        self._members.give_up(name, revocation, commits, number)


def test_a_gateway_that_is_away_when_queues_are_given_up_costs_neither_messages_nor_commits(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_member, "FRAME_BYTES", 10_000)
    monkeypatch.setattr(proxy_member, "REVOKE_TIMEOUT_S", 60.0)
    send(node, 400, size=3000)
    gateway = DeafGateway(node.gateway)
    revoked: list[frozenset[tuple[str, int]]] = []
    found: list[ConsumedBatch] = []

    def take(*members: Member) -> int:
        for member in members:
            with contextlib.suppress(ShardUnavailableError):
                for batch in member.poll(0.05):
                    found.append(batch)
                    member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        return sum(map(len, found))

    with RemoteGroupConsumer(gateway, "g", "Trade", ALL) as far:
        far.on_revoke = revoked.append
        wait_until(lambda: take(far))
        with node.consumer("g", "Trade", ALL) as near:
            wait_until(lambda: take(far, near) and len(near.assignment()) == 2)
            wait_until(lambda: take(far, near) >= 400)
            far.on_revoke = None
    assert gateway.deaf_times < 0
    assert len(revoked) == 1
    assert numbers(found) == list(range(400)), "none is lost or repeated"


class LastGateway:
    """It gives one batch with a revocation, hears no answer to that, and lets nobody join again."""

    def __init__(self, frame: bytes) -> None:
        self._frames = [frame]
        self.has_joined = False

    def join(self, *_: object) -> None:
        if self.has_joined:
            raise ShardUnavailableError("gateway", 0, "away in the test")
        self.has_joined = True

    def commit(self, _name: str, _commits: Mapping[int, int], _number: int = 0) -> CommitReply:
        return CommitReply(8000)

    def poll(self, _name: str, _timeout_s: float, received: int) -> PollReply:
        if received:
            time.sleep(0.01)
            return PollReply(received + 1, [], frozenset({0}), 1, frozenset())
        return PollReply(1, self._frames, frozenset({0}), 1, frozenset({1}))

    def give_up(self, *_: object) -> None:
        raise UnknownMemberError("given up in the test")

    def leave_alone(self, *_: object) -> None: ...

    def report_failing(self, *_: object) -> None: ...

    def count_returns(self, *_: object) -> None: ...

    def leave(self, *_: object) -> None: ...


def test_a_member_that_was_given_up_and_cannot_join_again_hands_nothing_out(
    node: LocalNode,
) -> None:
    send(node, 4)
    with node.consumer("g", "Trade", ALL) as near:
        batch = next(one for one in receive(near, 4) if one.queue_id == 0)
        frame = pack_records(batch.reader, batch.entries, batch.next_queue_offset)
    with RemoteGroupConsumer(LastGateway(frame), "g", "Trade", ALL) as member:
        with pytest.raises(ShardUnavailableError, match="away in the test"):
            member.poll(30)
        assert member.assignment() == set()
        assert [member.poll(0.02) for _ in range(5)] == [[]] * 5


class SlowGateway:
    """Its answer to a commit comes when the test lets it come."""

    def __init__(self, members: RemoteMembers) -> None:
        self._members = members
        self.is_asked, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()
        self.log: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._members, name)

    def commit(self, name: str, commits: Mapping[int, int], number: int = 0) -> CommitReply:
        if commits:
            self.is_asked.set()
            self.may_go_on.wait(60)
            self.log.append("commit")
        return self._members.commit(name, commits, number)

    def leave(self, name: str, commits: Mapping[int, int], number: int) -> None:
        self.log.append("leave")
        self._members.leave(name, commits, number)


def test_the_last_word_does_not_overtake_a_commit_that_is_on_its_way(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_consumer, "_COMMIT_INTERVAL_S", 0.05)
    send(node, 40)
    gateway = SlowGateway(node.gateway)
    member = RemoteGroupConsumer(gateway, "g", "Trade", ALL)
    gateway.may_go_on.clear()
    receive(member, 40)
    assert gateway.is_asked.wait(60)
    closing = threading.Thread(target=member.close)
    closing.start()
    closing.join(0.2)
    gateway.may_go_on.set()
    closing.join()
    assert gateway.log[-1] == "leave"
    assert node.groups.all()[0].offsets == dict.fromkeys(range(4), 10)


def test_a_member_has_to_settle_when_it_is_told_to_give_queues_up(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_poll, "LONG_POLL_S", 0.1)
    with node.remote_consumer("g", "Trade", ALL) as far:
        wait_until(lambda: far.poll(0.1) == [] and far.assignment())
        with node.consumer("g", "Trade", ALL) as near:
            wait_until(lambda: far.needs_rebalance)
            assert far.is_leased
            far.poll(0)
            assert len(far.assignment()) == 2
            wait_until(lambda: not far.needs_rebalance)
            wait_until(lambda: near.poll(0) == [] and len(near.assignment()) == 2)


def test_what_keeps_a_member_from_joining_is_said_to_it(node: LocalNode) -> None:
    with node.remote_consumer("g", "Trade", ALL), pytest.raises(SubscriptionConflictError):
        node.remote_consumer("g", "Trade", Subscription.tags("odd"))
    with pytest.raises(FilterError):
        node.remote_consumer("h", "Trade", Subscription.sql("a >"))


def test_a_member_that_was_given_up_while_it_finished_joins_again(node: LocalNode) -> None:
    send(node, 40)
    with node.remote_consumer("g", "Trade", ALL) as member:
        assert numbers(receive(member, 40)) == list(range(40))
        member.on_revoke = lambda _queues: node.gateway.close()  # it takes too long
        with node.consumer("g", "Trade", ALL) as near:
            deadline = time.monotonic() + 60
            while len(near.assignment()) < 2 and time.monotonic() < deadline:
                member.poll(0.05)
                near.poll(0.05)
            member.on_revoke = None
            assert len(near.assignment()) >= 2
            while len(member.assignment()) != 2 and time.monotonic() < deadline:
                member.poll(0.05)
                near.poll(0.05)
            assert member.assignment().isdisjoint(near.assignment())
            assert len(member.assignment()) == 2


class LateGateway:
    """Its first commits are carried out when the test says so: their caller has given them up."""

    def __init__(self, members: RemoteMembers) -> None:
        self._members = members
        self.late: list[Any] = []
        self.is_late = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._members, name)

    def commit(self, name: str, commits: Mapping[int, int], number: int = 0) -> CommitReply:
        if commits and self.is_late:
            self.late.append((name, commits, number))
            raise ShardUnavailableError("gateway", 0, "no answer within 60 s, in the test")
        return self._members.commit(name, commits, number)


def test_a_commit_that_is_carried_out_late_sets_no_offset_back(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RemoteGroupConsumer, "_keep_committing", lambda _member: None)
    send(node, 40)
    gateway = LateGateway(node.gateway)
    with RemoteGroupConsumer(gateway, "g", "Trade", ALL) as member:
        receive(member, 40, commit=False)
        member.commit("Trade", 0, 2)
        member.beat()
        gateway.is_late = False
        member.commit("Trade", 0, 8)
        member.beat()
        for call in gateway.late:
            gateway.commit(*call)
    [group] = [found for found in node.groups.all() if found.group == "g"]
    assert group.offsets[0] == 8

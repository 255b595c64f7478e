"""Members as if on another node: what an ordinary member does, over fetches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.local_node import LocalNode
from support.lossy_calls import LossyCalls

from rocketray.actors.consumers.member import GroupConsumer
from rocketray.actors.groups.subscription_change import QueuePart
from rocketray.actors.remote import fetch_sessions, fetched_streams
from rocketray.actors.remote.fetch_api import POLL_MAX_S, Fetch, FetchedQueue
from rocketray.actors.remote.fetch_sessions import FetchSessions
from rocketray.actors.remote.fetched_streams import FetchedStream, FetchedStreams
from rocketray.actors.topics.consumed_batch import ConsumedBatch
from rocketray.errors import (
    CorruptRecordError,
    FilterError,
    ShardUnavailableError,
    StreamError,
    SubscriptionConflictError,
)
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.store.reading.packed_records import pack_records
from rocketray.testing import Broker

ALL = Subscription.tags("*")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 4)
        yield node


def send(node: LocalNode, count: int, size: int = 10) -> None:
    with node.producer() as producer:
        for number in range(count):
            tag = "odd" if number % 2 else "even"
            body = b"%d" % number
            producer.send_async("Trade", body.ljust(size), tags=tag, queue_id=number % 4)


def receive(member: GroupConsumer, count: int, *, commit: bool = True) -> list[ConsumedBatch]:
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


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_far_member_gets_what_matches_and_its_commits_count(node: LocalNode) -> None:
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


def test_large_messages_come_in_frames_of_a_bounded_size(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "FRAME_BYTES", 10_000)
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


def test_a_poll_returns_no_more_messages_of_a_queue_than_asked_for(node: LocalNode) -> None:
    send(node, 200)
    found: list[ConsumedBatch] = []
    with node.remote_consumer("g", "Trade", ALL) as member:

        def take() -> int:
            found.extend(member.poll(0.1, 7))
            return sum(map(len, found))

        wait_until(lambda: take() == 200)
    assert max(map(len, found)) == 7
    assert numbers(found) == list(range(200))
    for queue_id in range(4):
        of_queue = [one for one in found if one.queue_id == queue_id]
        ends = [one.next_queue_offset for one in of_queue]
        assert ends == list(np.cumsum([len(one) for one in of_queue]))


def test_queues_are_handed_over_between_far_and_near_members(node: LocalNode) -> None:
    send(node, 100)
    with node.remote_consumer("g", "Trade", ALL) as far:
        seen = numbers(receive(far, 100))
        revoked: list[tuple[str, int]] = []
        far.on_revoke = revoked.extend
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


def test_messages_that_wait_do_not_keep_queues_from_their_next_owner(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "FRAME_BYTES", 10_000)
    send(node, 400, size=3000)
    with node.remote_consumer("g", "Trade", ALL) as far:
        batches = receive(far, 1)
        with node.consumer("g", "Trade", ALL) as near:
            wait_until(lambda: far.needs_rebalance)
            after = far.poll(0)
            lost = {
                queue_id for queue_id in range(4) if ("Trade", queue_id) not in far.assignment()
            }
            assert len(lost) == 2
            assert lost.isdisjoint(batch.queue_id for batch in after)
            batches += after
            while sum(map(len, batches)) < 400:
                of_near, of_far = near.poll(0.05), far.poll(0)
                assert lost.isdisjoint(batch.queue_id for batch in of_far)
                batches += of_near + of_far
    assert numbers(batches) == list(range(400)), "none is lost or repeated"


def test_a_gateway_that_dies_costs_no_message_and_no_second_delivery(node: LocalNode) -> None:
    send(node, 40)
    with node.remote_consumer("g", "Trade", ALL) as member:
        lost: list[frozenset[tuple[str, int]]] = []
        member.on_revoke = lost.append
        found = receive(member, 40, commit=False)
        node.gateway.close()  # as if its process had died
        send(node, 40)
        found += receive(member, 40, commit=False)
        member.on_revoke = None
    assert numbers(found) == sorted([*range(40), *range(40)])
    assert not lost


def losing(node: LocalNode, **losses: list[Any]) -> GroupConsumer:
    """A member whose first calls of those names are lost."""
    calls: Any = LossyCalls(lambda: node.gateway)
    calls.losses.update(losses)
    return GroupConsumer(node, "g", "Trade", ALL, streams=FetchedStreams(calls, "g", "Trade"))


def test_no_message_is_lost_with_a_reply(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "FRAME_BYTES", 10_000)
    monkeypatch.setattr(fetch_sessions, "REPLY_BYTES", 30_000)
    monkeypatch.setattr(fetched_streams, "_RETRY_S", 0.01)
    send(node, 200, size=3000)
    with losing(node, fetch=["answer", "twice", "request", "answer", "answer", "twice"]) as member:
        assert numbers(receive(member, 200)) == list(range(200))
        assert not receive(member, 0)


def test_a_queue_that_cannot_be_opened_for_a_while_is_read_later(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    send(node, 40)
    with losing(node, bounds=["request"], attach=["answer"]) as member:
        assert numbers(receive(member, 40)) == list(range(40))
    assert "waits for group g" in caplog.text


def test_what_keeps_a_member_from_joining_is_said_to_it(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.remote_consumer("g", "Trade", ALL), pytest.raises(SubscriptionConflictError):
        node.remote_consumer("g", "Trade", Subscription.tags("odd"))
    with pytest.raises(FilterError):
        node.remote_consumer("h", "Trade", Subscription.where("os.path:exists"))
    monkeypatch.setattr(fetch_sessions, "SESSIONS_MAX", 0)
    with pytest.raises(StreamError, match="0 members on other nodes"):
        node.remote_consumer("g", "Trade", ALL)
    assert all(not group.members for group in node.groups.all())


def test_a_record_that_cannot_be_read_raises_and_keeps_no_other_queue(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_streams, "_RETRY_S", 0.01)
    send(node, 40)
    is_damaged = True

    def pack_or_fail(reader: Any, *rest: Any) -> bytes:
        if is_damaged and reader.queue_id == 2:
            raise CorruptRecordError("log", 7, "damaged by the test")
        return pack_records(reader, *rest)

    monkeypatch.setattr(fetch_sessions, "pack_records", pack_or_fail)
    found: list[ConsumedBatch] = []
    told = 0
    with node.remote_consumer("g", "Trade", ALL) as member:

        def take() -> int:
            nonlocal told
            try:
                found.extend(member.poll(0.1))
            except CorruptRecordError:
                told += 1
            return sum(map(len, found))

        wait_until(lambda: take() == 30 and told > 2)
        is_damaged = False
        wait_until(lambda: take() == 40)
    assert numbers(found) == list(range(40))


def test_the_first_failure_of_a_filter_is_logged_and_all_are_counted(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    with node.producer() as producer:
        for amount in ("200", "abc", "x", "300"):
            producer.send("Trade", b"1", queue_id=1, properties={"amount": amount})
    sql = Subscription.sql("amount >= 100", "rocketmq")
    with node.remote_consumer("audit", "Trade", sql) as member:
        assert sum(map(len, receive(member, 2))) == 2
    failures = [text for text in caplog.messages if "the SQL filter" in text]
    assert len(failures) == 1
    assert "topic Trade queue 1 offset 1, unique key" in failures[0]
    assert node.groups.all()[0].counters.evaluation_errors == 2


def test_offsets_move_on_over_what_the_filter_rejects(node: LocalNode) -> None:
    with node.remote_consumer("g", "Trade", Subscription.tags("never")) as member:
        send(node, 40)
        ends: dict[int, int] = {}

        def take() -> bool:
            for batch in member.poll(0.1):
                assert not len(batch)
                assert batch.messages() == []
                ends[batch.queue_id] = batch.next_queue_offset
            return ends == dict.fromkeys(range(4), 10)

        wait_until(take)


class Stepped:
    """The streams of a member that fetch when the test says so; a broker's gateway answers."""

    def __init__(self, broker: Broker) -> None:
        broker.topics.ensure("Trade", 2)
        self.broker = broker
        self.calls: Any = LossyCalls(lambda: self.gateway)
        self.gateway = FetchSessions(broker.node, lambda: self.now_s)
        self.now_s = 0.0
        self.streams = FetchedStreams(self.calls, "g", "Trade", lambda: self.now_s)

    def send(self, queue_id: int, *bodies: bytes, tags: str = "a") -> None:
        with self.broker.producer() as producer:
            messages = [Message("Trade", body, tags) for body in bodies]
            producer.send_many("Trade", messages, queue_id=queue_id)

    def open(self, queue_id: int, subscription: Subscription = ALL) -> FetchedStream:
        stream = self.streams.open(queue_id, QueuePart(subscription, None), 0)
        stream.attach()
        return stream


@pytest.fixture
def stepped() -> Iterator[Stepped]:
    with Broker() as broker:
        found = Stepped(broker)
        yield found
        found.streams.close()
        found.gateway.close()


def bodies(stream: FetchedStream, max_count: int = 1000) -> list[bytes]:
    taken = stream.take(max_count)
    return [] if taken is None else taken.reader.bodies(taken.entries)


def test_a_queue_that_is_not_taken_is_not_asked_for(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_streams, "CREDIT_BYTES", 1000)
    monkeypatch.setattr(fetch_sessions, "FRAME_BYTES", 1000)
    left, right = stepped.open(0), stepped.open(1)
    stepped.send(0, *[b"x" * 400] * 10)
    asked: list[dict[int, int]] = []
    fetch = stepped.gateway.fetch

    def watch(wanted: Fetch, timeout_s: float) -> dict[int, FetchedQueue]:
        asked.append({at: one.credit_bytes for at, one in wanted.queues.items()})
        return fetch(wanted, timeout_s)

    monkeypatch.setattr(stepped.gateway, "fetch", watch)
    for _ in range(3):
        stepped.streams.step()
    stepped.send(1, b"right")
    stepped.streams.step()
    assert asked[0] == {0: 1000, 1: 1000}
    assert [one[0] for one in asked[-3:]] == [0, 0, 0]
    assert bodies(right) == [b"right"]
    got: list[bytes] = []
    while len(got) < 10:
        got += bodies(left)
        stepped.streams.step()
    assert got == [b"x" * 400] * 10


def test_a_reply_counts_only_for_what_was_asked(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part changed, or the queue was revoked and assigned again, while it was on its way."""
    old, other = stepped.open(0, Subscription.tags("a")), stepped.open(1)
    stepped.send(0, b"1")
    stepped.send(0, b"2", tags="b")
    stepped.send(1, b"other")
    fetch = stepped.gateway.fetch

    def change(wanted: Fetch, timeout_s: float) -> dict[int, FetchedQueue]:
        reply = fetch(wanted, timeout_s)
        old.read_on(QueuePart(Subscription.tags("b"), None))
        old.attach()
        other.stop()
        return reply

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(stepped.gateway, "fetch", change)
        stepped.streams.step()
    again = stepped.open(1)
    assert (bodies(old), bodies(again)) == ([], [])
    stepped.streams.step()
    assert (bodies(old), bodies(again)) == ([b"2"], [b"other"])
    assert other.take(1) is None


def test_a_wait_that_does_not_ask_for_a_queue_is_ended_once(stepped: Stepped) -> None:
    """Real threads: the gateway waits, and time stands still."""
    first = stepped.open(0)
    stepped.streams.start()
    wait_until(lambda: stepped.streams._asked is not None)
    second = stepped.open(1)
    wait_until(lambda: len(asked.queues) == 2 if (asked := stepped.streams._asked) else False)
    rung = stepped.streams.bell.count()
    stepped.send(1, b"second")
    stepped.streams.bell.wait(rung, 60)
    assert bodies(second) == [b"second"]
    assert bodies(first) == []


def test_a_member_that_reads_nothing_keeps_its_session(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_streams, "CREDIT_BYTES", 1000)
    monkeypatch.setattr(fetch_sessions, "FRAME_BYTES", 1000)
    stream = stepped.open(0)
    stepped.send(0, *[b"x" * 400] * 20)
    for _ in range(10):
        stepped.streams.step()
        stepped.now_s += POLL_MAX_S
        stepped.gateway.sweep()
    got: list[bytes] = []
    while len(got) < 20:
        got += bodies(stream)
        stepped.streams.step()
    assert stream.counters().scanned == 20, "no other stream began, and scanned them again"


def test_a_take_makes_no_call_and_a_wait_without_its_queue_is_ended_until_it_returns(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_streams, "CREDIT_BYTES", 1000)
    stream = stepped.open(0)
    stepped.send(0, *[b"x" * 400] * 3)
    stepped.streams.step()
    fetch, woken = stepped.gateway.fetch, []

    def wake(_session: str, number: int) -> None:
        woken.append(number)
        raise RuntimeError("a fault")

    def take_meanwhile(wanted: Fetch, timeout_s: float) -> dict[int, FetchedQueue]:
        assert wanted.queues[0].credit_bytes == 0
        assert bodies(stream, 1) == [b"x" * 400]
        stepped.streams.wake()
        assert woken == [], "there is too little room yet"
        assert bodies(stream) == [b"x" * 400] * 2
        assert woken == [], "the gateway may be away"
        stepped.streams.wake()
        stepped.streams.wake()
        assert woken == [wanted.number] * 2
        return fetch(wanted, timeout_s)

    monkeypatch.setattr(stepped.gateway, "wake", wake)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(stepped.gateway, "fetch", take_meanwhile)
        stepped.streams.step()
    stepped.streams.wake()
    assert len(woken) == 2
    stepped.send(0, b"next")
    stepped.streams.step()
    assert bodies(stream) == [b"next"]


def test_counters_are_summed_over_the_streams_at_the_gateway(stepped: Stepped) -> None:
    stream = stepped.open(0, Subscription.tags("b"))
    stepped.send(0, b"1", b"2")
    stepped.streams.step()
    assert stream.counters() == FilterCounters(2, tag_rejected=2)
    stepped.gateway.close()
    stepped.gateway = FetchSessions(stepped.broker.node, lambda: stepped.now_s)
    stepped.send(0, b"3")
    stepped.streams.step()
    stepped.streams.step()
    assert stream.counters() == FilterCounters(3, tag_rejected=3)
    stream.read_on(QueuePart(ALL, None))
    stream.attach()
    stepped.send(0, b"4")
    stepped.streams.step()
    assert stream.counters().scanned == 7, "nothing was taken, so all is read with the new part"
    stream.stop()
    assert stream.counters().scanned == 7


def test_a_gateway_that_fails_in_another_way_ends_the_fetches_with_its_error(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stepped.open(0)

    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(stepped.gateway, "fetch", fail)
    stepped.streams.start()
    stepped.streams._threads[0].join(60)
    for _ in range(2):
        with pytest.raises(StreamError, match="a fault"):
            stream.take(1)


def test_a_shard_that_is_away_is_told_once_for_each_attempt(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stepped.open(0)
    stepped.send(0, b"1")
    away = ShardUnavailableError("filter", 1000, "away, as the test asked")

    def fail(wanted: Fetch, _timeout_s: float) -> dict[int, FetchedQueue]:
        return {0: FetchedQueue([], wanted.queues[0].position, error=away)}

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(stepped.gateway, "fetch", fail)
        stepped.streams.step()
        stepped.streams.step()  # too early for another attempt
    with pytest.raises(ShardUnavailableError):
        stream.take(1)
    assert stream.take(1) is None
    stepped.streams.step()
    assert stream.take(1) is None
    stepped.now_s += 1
    stepped.streams.step()
    assert bodies(stream) == [b"1"]


def test_a_close_ends_a_fetch_that_waits(node: LocalNode) -> None:
    with node.remote_consumer("g", "Trade", ALL) as member:
        streams = member._streams
        assert isinstance(streams, FetchedStreams)
        wait_until(lambda: streams._asked is not None)
    assert not any(thread.is_alive() for thread in streams._threads)
    assert not [one for one in threading.enumerate() if one.name.startswith("fetch")]

"""Fetches of a member on another node, step by step: what they ask for, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.harness.patience import wait_until
from support.nodes.lossy_calls import LossyCalls

from rocketray.errors import (
    CorruptRecordError,
    InvalidMessageError,
    ShardUnavailableError,
    StoreFullError,
    StreamError,
)
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.groups.filter_plan import QueuePart
from rocketray.message import Message
from rocketray.messaging.remote import fetch_sessions, fetched_streams
from rocketray.messaging.remote.fetch_api import POLL_MAX_S, Fetch, FetchedQueue
from rocketray.messaging.remote.fetch_sessions import FetchSessions
from rocketray.messaging.remote.fetched_streams import FetchedStream, FetchedStreams
from rocketray.testing import Broker

ALL = Subscription.tags("*")


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


def test_a_stream_opened_again_ends_where_it_was_at_least(stepped: Stepped) -> None:
    assert stepped.streams.bounds(0).end == 0
    stepped.send(0, b"1", b"2", b"3")
    part = QueuePart(ALL, None)
    again = stepped.streams.open(0, part, 3)  # as after a move away and back
    assert again.visible() == 3, "a member may commit what it took before"


def bodies(stream: FetchedStream, max_count: int = 1000) -> list[bytes]:
    taken = stream.take_matches(max_count)
    return [] if taken is None else taken.reader.bodies(taken.entries)


def test_many_queues_share_what_a_member_holds(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_streams, "MEMBER_BYTES", 2200)
    first = stepped.open(0)
    assert first.wanted().credit_bytes == 2200
    second = stepped.open(1)
    for queue_id in range(2):
        stepped.send(queue_id, *(b"%100d" % number for number in range(100)))
    stepped.streams.step()
    assert first.wanted().credit_bytes == second.wanted().credit_bytes == 0
    for stream in (first, second):
        assert 550 <= stream._waiting_bytes <= 1100, "its share"
    seen: list[bytes] = []
    while len(seen) < 100:
        seen += bodies(first)
        stepped.streams.step()
    assert seen == [b"%100d" % number for number in range(100)]


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
    assert other.take_matches(1) is None


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
    stepped.send(0, *[b"x" * 200] * 3)
    stepped.streams.step()
    fetch, woken = stepped.gateway.fetch, []

    def wake(_session: str, number: int) -> None:
        woken.append(number)
        raise RuntimeError("a fault")

    def take_meanwhile(wanted: Fetch, timeout_s: float) -> dict[int, FetchedQueue]:
        assert wanted.queues[0].credit_bytes == 0
        assert bodies(stream, 1) == [b"x" * 200]
        stepped.streams.wake()
        assert woken == [], "there is too little room yet"
        assert bodies(stream) + bodies(stream) == [b"x" * 200] * 2
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


@pytest.mark.parametrize(
    "error", [StoreFullError("full, as the test asked"), RuntimeError("as the test asked")]
)
def test_a_gateway_that_fails_in_another_way_is_told_once_for_each_attempt(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(fetched_streams, "_RETRY_S", 0)
    left, right = stepped.open(0), stepped.open(1)
    stepped.send(1, b"1")

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(stepped.gateway, "fetch", fail)
        for _ in range(2):
            stepped.streams.step()
            with pytest.raises(StreamError, match="as the test asked"):
                left.take_matches(1)
            assert (left.take_matches(1), right.take_matches(1)) == (None, None)
        stepped.streams.step()
    stepped.streams.step()
    assert (bodies(left), bodies(right)) == ([], [b"1"])


def test_a_damaged_reply_is_told_for_its_queue_and_asked_for_again(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = stepped.open(0), stepped.open(1)
    stepped.send(0, b"left")
    stepped.send(1, b"right")
    fetch = stepped.gateway.fetch

    def damage(wanted: Fetch, timeout_s: float) -> dict[int, FetchedQueue]:
        reply = fetch(wanted, timeout_s)
        return reply | {0: replace(reply[0], frames=[reply[0].frames[0][:-1]])}

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(stepped.gateway, "fetch", damage)
        stepped.streams.step()
    with pytest.raises(InvalidMessageError):
        left.take_matches(1)
    assert bodies(right) == [b"right"]
    stepped.now_s += 1
    stepped.streams.step()
    assert bodies(left) == [b"left"]


def test_a_part_that_is_read_on_begins_without_the_error_of_the_one_before(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stepped.open(0)
    stepped.send(0, b"1")
    error = CorruptRecordError("log", 7, "damaged by the test")

    def fail(wanted: Fetch, _timeout_s: float) -> dict[int, FetchedQueue]:
        return {0: FetchedQueue([], wanted.queues[0].position, error=error)}

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(stepped.gateway, "fetch", fail)
        stepped.streams.step()
    stream.read_on(QueuePart(Subscription.tags("a"), None))
    assert stream.take_matches(1) is None
    stream.attach()
    stepped.streams.step()
    assert bodies(stream) == [b"1"]


def test_a_shard_that_is_away_is_told_once_for_each_attempt(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stepped.open(0)
    stepped.send(0, b"1")
    away = ShardUnavailableError("actor filter", "away, as the test asked")

    def fail(wanted: Fetch, _timeout_s: float) -> dict[int, FetchedQueue]:
        return {0: FetchedQueue([], wanted.queues[0].position, error=away)}

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(stepped.gateway, "fetch", fail)
        stepped.streams.step()
        stepped.streams.step()  # too early for another attempt
    with pytest.raises(ShardUnavailableError):
        stream.take_matches(1)
    assert stream.take_matches(1) is None
    stepped.streams.step()
    assert stream.take_matches(1) is None
    stepped.now_s += 1
    stepped.streams.step()
    assert bodies(stream) == [b"1"]

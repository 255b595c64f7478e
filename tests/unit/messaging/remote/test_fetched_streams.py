"""Members as if on another node: what an ordinary member does, over fetches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode
from support.nodes.lossy_calls import LossyCalls

from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.errors import (
    CorruptRecordError,
    FilterError,
    StreamError,
    SubscriptionConflictError,
)
from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.remote import fetch_sessions, fetched_streams
from rocketray.messaging.remote.fetched_streams import FetchedStreams
from rocketray.store.reading.packed_records import pack_records

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

    def has_all() -> bool:
        for batch in member.poll(0.2):
            found.append(batch)
            if commit:
                member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        return sum(map(len, found)) >= count

    wait_until(has_all)
    return found


def numbers(batches: list[ConsumedBatch]) -> list[int]:
    return sorted(int(body) for batch in batches for body in batch.bodies())


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

            def are_shared() -> bool:
                assert all(not len(batch) for batch in far.poll(0.05))
                assert all(not len(batch) for batch in near.poll(0.05))
                return len(near.assignment()) >= 2

            wait_until(are_shared)
            assert sorted(revoked) == sorted(near.assignment())
            assert far.assignment().isdisjoint(near.assignment())
            send(node, 40)
            got = numbers(receive(far, 20)) + numbers(receive(near, 20, commit=False))
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


@pytest.mark.proves("groups", "A gateway that dies loses no message and delivers none twice")
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


@pytest.mark.proves("groups", "A lost reply of the gateway loses no message")
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


def test_a_close_ends_a_fetch_that_waits(node: LocalNode) -> None:
    with node.remote_consumer("g", "Trade", ALL) as member:
        streams = member._streams
        assert isinstance(streams, FetchedStreams)
        wait_until(lambda: streams._asked is not None)
    assert not any(thread.is_alive() for thread in streams._threads)
    assert not [one for one in threading.enumerate() if one.name.startswith("fetch")]


def test_a_member_whose_application_fails_at_the_end_leaves_all_the_same(node: LocalNode) -> None:
    def fail(_queues: object) -> None:
        raise RuntimeError("a fault of the application")

    member = node.remote_consumer("g", "Trade", ALL)
    member.on_revoke = fail
    with pytest.raises(RuntimeError):
        member.close()
    streams = member._streams
    assert isinstance(streams, FetchedStreams)
    assert not any(thread.is_alive() for thread in streams._threads)
    assert all(not group.members for group in node.groups.all())

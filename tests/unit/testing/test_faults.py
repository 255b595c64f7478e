"""Faults on request: each does what it says, and loses nothing that was acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketray.errors import ShardUnavailableError, StoreFullError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.runtime.files.paths import consumer_directory
from rocketray.testing import Broker, Clock, Member

ALL = Subscription.tags("*")


@pytest.fixture
def broker(broker: Broker) -> Broker:
    broker.topics.ensure("orders", 1)
    return broker


def send(broker: Broker, *bodies: bytes) -> None:
    with broker.producer() as producer:
        for body in bodies:
            producer.send("orders", body)


def take(member: Member, *, commit: bool = True) -> list[bytes]:
    found = []
    for batch in member.poll():
        found += batch.bodies()
        if commit:
            member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
    return found


def stored(broker: Broker) -> list[bytes]:
    return [message.body for message in broker.stored("orders")]


def test_the_next_appends_fail_and_store_nothing(broker: Broker) -> None:
    broker.faults.fail_appends(2, "orders")
    for body in (b"1", b"2"):
        with pytest.raises(ShardUnavailableError, match="could not store"):
            send(broker, body)
    send(broker, b"3")
    assert stored(broker) == [b"3"]


def test_answers_that_are_lost_leave_the_message_stored_once(broker: Broker) -> None:
    broker.faults.lose_acks(1, "orders")
    send(broker, b"1")
    assert stored(broker) == [b"1"]
    broker.faults.lose_acks(1000, "orders")
    with pytest.raises(ShardUnavailableError, match="reply was lost"):
        send(broker, b"2")
    assert stored(broker) == [b"1", b"2"]


@pytest.mark.proves("producers", "A full disk refuses messages, and groups continue to consume")
def test_a_full_disk_refuses_messages_and_groups_go_on(broker: Broker) -> None:
    member = broker.consumer("g", "orders", ALL)
    send(broker, b"1")
    with broker.faults.disk_full():
        with pytest.raises(StoreFullError):
            send(broker, b"2")
        broker.topics.ensure("payments", 1)
        with pytest.raises(StoreFullError), broker.producer() as producer:
            producer.send("payments", b"3")
        assert take(member) == [b"1"]
    send(broker, b"4")
    assert take(member) == [b"4"]


def test_a_shard_that_is_down_takes_nothing_and_comes_back_whole(broker: Broker) -> None:
    member = broker.consumer("g", "orders", ALL)
    send(broker, b"1")
    with broker.faults.shard_down("orders"):
        with pytest.raises(ShardUnavailableError, match="as the test asked"):
            send(broker, b"2")
        assert take(member) == [b"1"]
    send(broker, b"3")
    assert take(member) == [b"3"]
    assert stored(broker) == [b"1", b"3"]
    assert broker.node.shard_statistics("orders")[0].epoch == 2


def test_a_filter_that_starts_again_goes_on_where_it_stood(broker: Broker) -> None:
    member = broker.consumer("g", "orders", ALL)
    send(broker, b"1")
    broker.faults.restart_filter()
    send(broker, b"2")
    assert take(member) == [b"1", b"2"]


def test_a_filter_starts_again_though_the_topic_of_a_member_that_crashed_is_gone(
    broker: Broker,
) -> None:
    broker.topics.create("gone", 1)
    rings = consumer_directory(broker.data)
    crashed = broker.consumer("g", "gone", Subscription.tags("a"))
    (ring,) = rings.glob("*.match")
    left = ring.read_bytes()
    broker.faults.crash(crashed)
    member = broker.consumer("g", "orders", ALL)
    send(broker, b"1")
    broker.topics.delete("gone")
    ring.write_bytes(left)  # as a killed process leaves it
    broker.faults.restart_filter()
    send(broker, b"2")
    assert take(member) == [b"1", b"2"]


def test_a_coordinator_that_starts_again_forgets_what_it_did_not_save(
    broker: Broker, clock: Clock
) -> None:
    member = broker.consumer("g", "orders", ALL, client_id="a")
    clock.advance(seconds=1)  # it has its queue: offsets are saved when that changes
    send(broker, b"1", b"2")
    take(member)
    assert broker.committed("g", "orders") == {0: 2}
    broker.faults.restart_coordinator()
    assert broker.committed("g", "orders") == {0: 0}
    broker.faults.crash(member)
    clock.advance(seconds=15)
    assert take(broker.consumer("g", "orders", ALL)) == [b"1", b"2"]


def test_a_coordinator_that_starts_again_hears_from_members_what_it_was_told_before(
    broker: Broker, clock: Clock
) -> None:
    member = broker.consumer("g", "orders", ALL)
    send(broker, b"1", b"2")
    take(member)
    broker.faults.restart_coordinator()
    clock.advance(seconds=4)  # too soon for offsets to be saved
    assert broker.committed("g", "orders") == {0: 2}
    broker.faults.crash(member)
    clock.advance(seconds=15)
    assert take(broker.consumer("g", "orders", ALL)) == []


def test_what_a_crashed_member_did_not_commit_comes_again(broker: Broker, clock: Clock) -> None:
    first, second = (broker.consumer("g", "orders", ALL, client_id=name) for name in "ab")
    send(broker, b"1", b"2")
    assert take(first, commit=False) == [b"1", b"2"]
    first.commit("orders", 0, 1)
    clock.advance(seconds=1)
    broker.faults.crash(first)
    with pytest.raises(StreamError, match="crashed"):
        first.poll()
    clock.advance(milliseconds=SESSION_TIMEOUT_MS - 1000)
    assert take(second) == []
    clock.advance(seconds=2)
    assert take(second) == [b"2"]
    first.close()


def test_a_member_whose_heartbeats_are_lost_loses_its_queues(broker: Broker, clock: Clock) -> None:
    first, second = (broker.consumer("g", "orders", ALL, client_id=name) for name in "ab")
    broker.faults.silence(first, seconds=60)
    clock.advance(seconds=12)
    take(second)
    assert len(second.assignment()) == 1
    clock.advance(seconds=60)
    assert take(first) == []
    second.close()
    clock.advance(seconds=2)
    take(first)
    assert len(first.assignment()) == 1


def test_what_is_wrong_on_disk_is_found_when_a_shard_starts(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        broker.topics.ensure("orders", 1)
        send(broker, b"1")
        before = broker.node.shard("orders", 0).writer.store.reads.max_physical_offset
        broker.faults.restart_shard("orders")
        assert broker.node.shard("orders", 0).writer.store.reads.max_physical_offset == before

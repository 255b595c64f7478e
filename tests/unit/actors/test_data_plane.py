"""Producer → shard → filter → member, over shared memory, without Ray."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode

from rocketray.broker.filtering import engine as filter_module
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.errors import (
    ConfigError,
    FilterError,
    FilterSyntaxError,
    InvalidMessageError,
    MessageTooLargeError,
    TopicNotFoundError,
)
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.message import ForwardedMessage, Message, StoredMessage
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.producers import links
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.runtime.files.paths import consumer_directory, producer_rings_directory
from rocketray.runtime.ipc.match_ring import CAPACITY
from rocketray.runtime.ipc.ring import RING_BYTES, SMALL_RING_BYTES


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        yield node


def receive(consumer: GroupConsumer, count: int, *, commit: bool = True) -> list[StoredMessage]:
    """All messages until there are *count* of them; fails when they do not come in time."""
    found: list[StoredMessage] = []

    def has_all() -> bool:
        for batch in consumer.poll(0.2):
            found.extend(batch.messages())
            if commit:
                consumer.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        return len(found) >= count

    wait_until(has_all)
    return found


@pytest.mark.proves("producers", "A stored message is read back as it was sent")
def test_a_message_comes_out_as_it_went_in(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    with node.producer() as producer, node.consumer("g", "Trade", Subscription.tags("*")) as member:
        result = producer.send(
            "Trade", b"body", tags="pay", keys=["k1", "k2"], properties={"region": "eu"}
        )
        (message,) = receive(member, 1)
    assert (message.topic, message.body, message.tags) == ("Trade", b"body", "pay")
    assert message.keys == ["k1", "k2"]
    assert message.properties["region"] == "eu"
    assert message.unique_key == result.message_id
    assert message.offset_message_id == result.offset_message_id
    assert (message.queue_id, message.queue_offset) == (result.queue_id, result.queue_offset)


def test_a_message_that_is_forwarded_keeps_its_identity(node: LocalNode) -> None:
    for topic in ("Trade", "Again"):
        node.topics.ensure(topic, 1)
    with node.producer() as producer:
        first = producer.send("Trade", b"body", tags="pay", keys=["k"])
        message = node.messages.view(first.offset_message_id)
        assert message
        anonymous = ForwardedMessage("Again", b"", {}, 1, ("192.0.2.1", 1))
        forwarded = ForwardedMessage.of(message, topic="Again", reconsume_times=2)
        with pytest.raises(InvalidMessageError, match="was sent to topic 'Trade'"):
            producer.forward("Trade", 0, [forwarded])
        results = producer.forward("Again", 0, [forwarded, anonymous])
        assert [one.queue_offset for one in results] == [0, 1]
        assert results[0].message_id == first.message_id
        assert results[1].message_id == results[1].offset_message_id
        [again] = node.messages.query("Again", "k")
    assert again.offset_message_id == results[0].offset_message_id
    assert (again.body, again.tags, again.reconsume_times) == (b"body", "pay", 2)
    assert again.born_timestamp_ms == message.born_timestamp_ms


@pytest.mark.proves(
    "producers",
    "A one-way send stores messages, and counts those that are not stored",
)
def test_one_way_messages_are_stored_and_those_that_are_not_are_counted(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    with node.producer() as producer:
        for number in range(5000):
            producer.send_oneway("Trade", b"%d" % number)
        producer.flush()
        assert producer.one_way_lost == 0
        assert node.shard_statistics("Trade")[0].messages == 5000
        node.shard("Trade", 0).writer.appends.writable = False
        for number in range(7):
            producer.send_oneway("Trade", b"%d" % number)
        producer.flush()
        assert producer.one_way_lost == 7


@pytest.mark.proves("producers", "Compressed bodies are read back as they were sent")
def test_compressed_bodies_come_out_as_they_went_in(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    bodies = [b"word " * 2000, b"short", bytes(9000)]
    with (
        NodeProducer(node, compression="lz4", compress_over=100) as producer,
        node.consumer("g", "Trade", Subscription.tags("*")) as member,
    ):
        producer.send("Trade", bodies[0])
        producer.send_many("Trade", pa.table({"body": pa.array(bodies[1:], pa.binary())}))
        found = receive(member, 3)
    assert [message.body for message in found] == bodies
    assert [message.sys_flag for message in found] == [0x101, 0, 0x101]
    assert all(message.size < 300 for message in found)


@pytest.mark.proves("producers", "Messages of `send_async` are stored once and in order")
@pytest.mark.parametrize("local", [True, False], ids=["ring", "call"])
def test_every_message_arrives_once_and_in_order(node: LocalNode, local: bool) -> None:
    node.topics.ensure("Trade", 3)
    node.calls.shares_memory = local
    with node.producer() as producer, node.consumer("g", "Trade", Subscription.tags("*")) as member:
        sends = [producer.send_async("Trade", b"%d" % n, queue_id=n % 3) for n in range(5000)]
        found = receive(member, 5000)
        results = [send.result() for send in sends]
    assert len({message.offset_message_id for message in found}) == 5000
    for queue in range(3):
        bodies = [int(message.body) for message in found if message.queue_id == queue]
        assert bodies == list(range(queue, 5000, 3))
    by_id = {message.offset_message_id: message.body for message in found}
    assert all(by_id[r.offset_message_id] == b"%d" % n for n, r in enumerate(results))


def test_tags_are_compared_exactly_where_their_hashes_collide(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    tags = ["Aa", "BB", None, "C"]
    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", b"x", tags[n % 4]) for n in range(40)])
        with node.consumer("g", "Trade", Subscription.tags("Aa || C")) as member:
            found = receive(member, 20)
            time.sleep(0.1)
            assert all(len(batch) == 0 for batch in member.poll(0.0))
    assert [message.tags for message in found] == ["Aa", "C"] * 10


def test_a_full_ring_goes_on_as_soon_as_there_is_room(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filter sleeps while a ring is full; taking from it has to wake it."""
    monkeypatch.setattr(filter_module, "_IDLE_WAIT_S", 3600.0)
    node.topics.ensure("Trade", 1)
    rows = CAPACITY * 2
    with node.producer() as producer, node.consumer("g", "Trade", Subscription.tags("*")) as member:
        producer.send_many("Trade", pa.table({"body": ["x"] * rows}))
        count = 0

        def has_all() -> bool:
            nonlocal count
            time.sleep(0.05)  # a slow member, so that its ring fills
            count += sum(len(batch) for batch in member.poll(1.0, CAPACITY))
            return count >= rows

        wait_until(has_all, lambda: f"{count} of {rows}")
    assert count == rows


def test_sql_selects_on_properties_and_counts_what_fails(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    amounts = ["5", "15", "broken", "20", None, "25"]
    with node.producer() as producer:
        for amount in amounts:
            producer.send("Trade", b"", properties={"amount": amount} if amount else {})
        sql = Subscription.sql("amount BETWEEN 10 AND 20")
        with node.consumer("g", "Trade", sql) as member:
            found = receive(member, 2)
            counters = member.counters()
    assert [message.properties["amount"] for message in found] == ["15", "20"]
    assert counters == FilterCounters(
        6, sql_rejected=3, evaluation_errors=1, delivered=2, not_double=1
    )


def test_a_class_filter_that_fails_stops_its_group_and_says_why(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    with node.producer() as producer:
        producer.send("Trade", b"x", keys=["k1"])
        where = Subscription.where("support.predicates:fails_always")
        with (
            node.consumer("g", "Trade", where) as member,
            pytest.raises(FilterError, match="broken on purpose"),
        ):
            receive(member, 1)


def test_the_offset_moves_over_what_the_filter_left_out(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    with (
        node.producer() as producer,
        node.consumer("g", "Trade", Subscription.tags("no")) as member,
    ):
        producer.send_many("Trade", [Message("Trade", b"", "yes")] * 100)

        def is_over_all() -> bool:
            for batch in member.poll(0.1):
                member.commit("Trade", 0, batch.next_queue_offset)
            return node.state.registry.offsets.get("g", "Trade", 0) == 100

        wait_until(is_over_all)


def test_a_group_goes_on_where_it_committed(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    with node.producer() as producer:
        producer.send_many("Trade", [Message("Trade", b"%d" % n) for n in range(50)])
        with node.consumer("g", "Trade", Subscription.tags("*")) as member:
            (batch,) = member.poll(60.0, 20)
            member.commit("Trade", 0, batch.next_queue_offset)
        with node.consumer("g", "Trade", Subscription.tags("*")) as member:
            rest = receive(member, 30)
    assert [int(message.body) for message in rest] == list(range(20, 50))


def test_two_members_share_the_queues_and_hand_them_over_cleanly(node: LocalNode) -> None:
    node.topics.ensure("Trade", 4)
    with node.producer() as producer:
        first = node.consumer("g", "Trade", Subscription.tags("*"), client_id="a")
        producer.send_many("Trade", [Message("Trade", b"1")] * 3000)
        found = receive(first, 3000)
        second = node.consumer("g", "Trade", Subscription.tags("*"), client_id="b")

        def are_shared() -> bool:
            for member in (first, second):
                assert all(len(batch) == 0 for batch in member.poll(0.05))
            return len(first.assignment()) == len(second.assignment()) == 2

        wait_until(are_shared)
        assert not first.assignment() & second.assignment()
        for queue in range(4):
            producer.send("Trade", b"2", queue_id=queue)
        later = receive(first, 2) + receive(second, 2)
        first.close()
        second.close()
    assert len(found) == 3000
    assert sorted(message.queue_id for message in later) == [0, 1, 2, 3]
    assert {message.body for message in later} == {b"2"}


def test_a_member_that_the_coordinator_refuses_is_told(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.ensure("Trade", 1)

    def refuse(_: object) -> None:
        raise ConfigError("the topic may not be read")

    with node.consumer("g", "Trade", Subscription.tags("*")) as member:
        monkeypatch.setattr(node.sessions, "heartbeat", refuse)
        with pytest.raises(ConfigError, match="may not be read"):
            receive(member, 1)


def test_what_a_dead_member_left_behind_is_removed(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with node.consumer("g", "Trade", Subscription.tags("a")) as member:
        mine = set(consumer_directory(node.data).iterdir())
        (ring,) = (path for path in mine if path.suffix == ".match")
        left = ring.with_name(f"{dead.pid}-left.match")
        shutil.copy(ring, left)
        node.filter.attach_ring(str(left))
        assert node.filter.statistics().streams == 2
        node.filter.sweep()
        assert node.filter.statistics().streams == 1
        assert set(consumer_directory(node.data).iterdir()) == mine
        assert member.assignment() == {("Trade", 0)}


@pytest.mark.proves(
    "producers",
    "`send_many` stores an Arrow table as messages, and returns their results",
)
def test_an_arrow_table_becomes_messages(node: LocalNode) -> None:
    node.topics.ensure("Trade", 2)
    table = pa.table(
        {
            "body": [b"%d" % n for n in range(10_000)],
            "tags": ["even" if n % 2 == 0 else None for n in range(10_000)],
            "keys": [f"k{n}" for n in range(10_000)],
            "amount": [str(n) if n % 3 else None for n in range(10_000)],
        }
    )
    with node.producer() as producer, node.consumer("g", "Trade", Subscription.tags("even")) as c:
        result = producer.send_many("Trade", table, property_columns=["amount"])
        found = receive(c, 5000)
    assert len(result) == sum(result.queues.values()) == 10_000
    for number in (0, 4095, 4096, 9_999):
        one = node.messages.view(result[number].offset_message_id)
        assert one is not None
        assert (one.unique_key, one.body) == (result[number].message_id, b"%d" % number)
        assert (one.queue_id, one.queue_offset) == (result[number][2:4])
    assert sorted(int(message.body) for message in found) == list(range(0, 10_000, 2))
    for message in found:
        number = int(message.body)
        assert message.properties.get("amount") == (str(number) if number % 3 else None)
        assert message.keys == [f"k{number}"]


def test_tables_of_large_rows_go_through_the_ring_too(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.ensure("Trade", 1)
    monkeypatch.setattr(OwnedShard, "append", None)  # the way in by a call
    bodies = [bytes([n]) * 20_000 for n in range(250)]
    with node.producer() as producer, node.consumer("g", "Trade", Subscription.tags("*")) as c:
        assert len(producer.send_many("Trade", pa.table({"body": bodies}))) == 250
        assert [message.body for message in receive(c, 250)] == bodies


@pytest.mark.proves("producers", "A large body is sent by a call")
def test_large_bodies_take_the_other_way_in(node: LocalNode) -> None:
    node.topics.ensure("Large", 1)
    with node.producer() as producer, pytest.raises(InvalidMessageError):
        producer.send("Large", bytes(3 * 1024 * 1024))  # larger than this node's segments
    with node.producer() as producer, pytest.raises(MessageTooLargeError, match="4194305"):
        producer.send("Large", bytes(4 * 1024 * 1024 + 1))


def test_a_producer_of_very_many_queues_has_small_rings_and_sends_large_batches_by_calls(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_LARGE_RINGS", 2)
    node.topics.ensure("Trade", 4)
    bodies = [bytes([queue_id]) * size for queue_id in range(4) for size in (10, 200_000)]
    with node.producer() as producer, node.consumer("g", "Trade", Subscription.tags("*")) as member:
        for body in bodies:
            producer.send("Trade", body, queue_id=body[0])
        rings = [producer_rings_directory(node.data, "Trade", queue_id) for queue_id in range(4)]
        sizes = [path.stat().st_size for ring in rings for path in ring.iterdir()]
        assert [size > RING_BYTES for size in sizes] == [True, True, False, False]
        assert max(sizes[2:]) < 2 * SMALL_RING_BYTES
        assert sorted(one.body for one in receive(member, len(bodies))) == sorted(bodies)


@pytest.mark.proves(
    "producers",
    "An invalid queue id or message is refused before anything is stored",
)
def test_bad_input_is_refused_before_anything_is_stored(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    with node.producer() as producer:
        with pytest.raises(TopicNotFoundError):
            producer.send("Nowhere", b"")
        with pytest.raises(ConfigError, match="queues 0 to 0"):
            producer.send("Trade", b"", queue_id=1)
        with pytest.raises(InvalidMessageError, match="never be matched"):
            producer.send("Trade", b"", tags="a || b")
        with pytest.raises(MessageTooLargeError, match="property string"):
            producer.send("Trade", b"", properties={"a": "x" * 40_000})
        with pytest.raises(ConfigError, match="'memory' or 'disk'"):
            producer.send("Trade", b"", ack="paper")  # type: ignore[arg-type]
    with pytest.raises(FilterSyntaxError):
        node.consumer("g", "Trade", Subscription.sql("a >"))
    assert node.shard("Trade", 0).writer.statistics().max_queue_offset == 0


@pytest.mark.proves("producers", '`ack="disk"` is given after the log was flushed')
def test_a_disk_ack_means_that_the_log_was_flushed(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    with node.producer() as producer:
        producer.send("Trade", b"x" * 500, ack="memory")
        control = node.shard("Trade", 0).writer.control
        assert control.flushed() == 0
        producer.send("Trade", b"x", ack="disk")
    assert control.flushed() == node.shard("Trade", 0).writer.store.reads.max_physical_offset

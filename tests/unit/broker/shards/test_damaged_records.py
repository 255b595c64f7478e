"""Records that were damaged on disk, as those who read queues meet them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.nodes.local_node import LocalNode

from rocketray.broker.fetching.range_reader import BlockFilter
from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.broker.topics.queue_tail import QueueTail
from rocketray.errors import CorruptRecordError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.runtime.files.paths import shard_directory
from rocketray.store.files.store_settings import Salvage
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.reader import QueueReader

pytestmark = pytest.mark.proves(
    "durability",
    "Polled members and consumers by position get an error until the store is recovered, "
    "then all others",
)

BODIES = [b"body %d" % number for number in range(6)]
DAMAGED = (0, 2, 3)
GOOD = [body for number, body in enumerate(BODIES) if number not in DAMAGED]
READINGS: dict[str, Callable[[ConsumedBatch], object]] = {
    "bodies": ConsumedBatch.bodies,
    "messages": ConsumedBatch.messages,
    "arrow": lambda batch: batch.to_arrow(["body"]),
}
SUBSCRIPTIONS = {
    "all": Subscription.tags("*"),
    "tags": Subscription.tags("t || other"),
    "sql": Subscription.sql("a = '1'"),
    "predicate": Subscription.where("support.predicates:body_is_short"),
}


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A node that was stopped, and some of its messages damaged afterwards."""
    with LocalNode(tmp_path) as node, node.producer() as producer:
        node.topics.ensure("T", 1)
        for body in BODIES:
            producer.send("T", body, tags="t", properties={"a": "1"})
    [log] = (shard_directory(tmp_path, "T", 0) / "commitlog").iterdir()
    content = log.read_bytes()
    for number in DAMAGED:
        content = content.replace(BODIES[number], BODIES[number].upper())
    log.write_bytes(content)
    return tmp_path


def receive(node: LocalNode, subscription: Subscription) -> tuple[list[bytes], FilterCounters]:
    """What a new group gets of all six offsets."""
    found: list[bytes] = []
    with node.consumer(subscription.expression_type, "T", subscription) as member:
        for _ in range(100):
            for batch in member.poll(0.1):
                found += batch.bodies()
                if batch.next_queue_offset == len(BODIES):
                    return found, member.counters()
    raise AssertionError(f"stood still after {found}")


@pytest.mark.parametrize("reading", READINGS)
def test_a_member_is_told_which_record_is_damaged(damaged: Path, reading: str) -> None:
    with (
        LocalNode(damaged) as node,
        node.consumer("g", "T", Subscription.tags("*")) as member,
    ):
        [batch] = member.poll(60.0)
        assert len(batch) == len(BODIES)
        with pytest.raises(
            CorruptRecordError, match="physical offset 0: it does not match its CRC"
        ):
            READINGS[reading](batch)


@pytest.mark.parametrize("kind", SUBSCRIPTIONS)
def test_once_the_store_is_recovered_a_group_gets_all_others(damaged: Path, kind: str) -> None:
    MessageStore(shard_directory(damaged, "T", 0), salvage=Salvage.ALL, clock_ms=lambda: 0).close()
    with LocalNode(damaged) as node:
        found, counters = receive(node, SUBSCRIPTIONS[kind])
    assert found == GOOD
    assert counters.scanned == len(BODIES) - 1  # the queue begins at its first whole message
    assert counters.delivered == len(GOOD)


@pytest.mark.parametrize("kind", ["all", "tags", "sql"])
def test_once_the_store_is_recovered_spark_reads_all_others(damaged: Path, kind: str) -> None:
    shard = shard_directory(damaged, "T", 0)
    MessageStore(shard, salvage=Salvage.ALL, clock_ms=lambda: 0).close()
    with QueueReader(shard, "T", 0) as reader:
        chosen = BlockFilter(SUBSCRIPTIONS[kind])
        assert reader.bodies(chosen.select(reader, 0, len(BODIES))) == GOOD


def test_who_reads_by_position_steps_over_what_recovery_found_lost(damaged: Path) -> None:
    MessageStore(shard_directory(damaged, "T", 0), salvage=Salvage.ALL, clock_ms=lambda: 0).close()
    tail = QueueTail(damaged, "T", 0)
    assert [message.body for message in tail.read(0, 100)] == GOOD
    assert [message.body for message in tail.read(2, 2)] == [BODIES[4], BODIES[5]]
    tail.close()

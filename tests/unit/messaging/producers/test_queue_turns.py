"""Messages without a queue leave out the queues of disks that fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.nodes.local_node import LocalNode

from rocketray.broker.shards import shard_threads
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import ShardUnavailableError, StoreFullError
from rocketray.hashing import java_hash_code
from rocketray.message import SHARDING_KEY, Message
from rocketray.messaging.producers import queue_turns
from rocketray.messaging.producers.async_producer import NodeAsyncProducer
from rocketray.messaging.producers.batch import SendResult
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.queue_turns import AVOIDED_S, STAY_MESSAGES, STAY_S, QueueTurns
from rocketray.store.retention import DiskUse

pytestmark = pytest.mark.proves(
    "durability",
    "A joined disk that is full refuses messages, the other disk takes those without a "
    "queue, and it takes messages again when it has room",
)

FAR = "00000000-0000-0000-0000-000000000002"


def test_a_disk_that_failed_is_left_out_for_a_while_unless_all_did() -> None:
    now_s = 100.0
    turns = QueueTurns(lambda: now_s)
    topic = replace(TopicCatalog().with_topic("T", 4).get("T"), disks=("", FAR, "", FAR))
    assert Counter(turns.next(topic) for _ in range(8)) == dict.fromkeys(range(4), 2)
    turns.avoid(FAR)
    assert Counter(turns.next(topic) for _ in range(8)) == {0: 4, 2: 4}
    turns.avoid("")
    assert Counter(turns.next(topic) for _ in range(8)) == dict.fromkeys(range(4), 2)
    now_s += AVOIDED_S
    assert not turns.is_avoided(FAR)
    assert Counter(turns.next(topic) for _ in range(8)) == dict.fromkeys(range(4), 2)


@pytest.mark.proves("producers", "Messages without a key are sent round-robin")
def test_the_turns_of_a_topic_are_its_own() -> None:
    """Else a program that sends to two topics by turns would use every other queue of both."""
    catalog = TopicCatalog().with_topic("Orders", 4).with_topic("Refunds", 2)
    turns, topics = QueueTurns(lambda: 100.0), (catalog.get("Orders"), catalog.get("Refunds"))
    found = [[turns.next(topic) for topic in topics] for _ in range(4)]
    assert found == [[0, 0], [1, 1], [2, 0], [3, 1]]


def test_a_queue_gets_the_single_messages_of_some_milliseconds() -> None:
    now_s = 100.0
    turns = QueueTurns(lambda: now_s)
    topics = TopicCatalog().with_topic("T", 4).with_topic("Other", 2)
    topic, other = topics.get("T"), topics.get("Other")
    assert [turns.of_message(topic) for _ in range(5)] == [0] * 5
    assert turns.of_message(other) in range(2)  # has a queue of its own
    assert [turns.next(topic), turns.of_message(topic)] == [1, 0]  # a batch goes elsewhere
    now_s += STAY_S
    assert {turns.of_message(topic) for _ in range(STAY_MESSAGES)} == {2}
    assert turns.of_message(topic) == 3  # it had its share


def test_a_queue_is_left_before_its_time_if_its_disk_fails_or_it_is_gone() -> None:
    turns = QueueTurns(lambda: 100.0)
    topic = replace(TopicCatalog().with_topic("T", 4).get("T"), disks=("", FAR, "", FAR))
    at = turns.of_message(topic)
    turns.avoid(topic.disk_of(at))
    assert topic.disk_of(turns.of_message(topic)) != topic.disk_of(at)
    assert turns.of_message(TopicCatalog().with_topic("T", 1).get("T")) == 0


def test_messages_that_are_far_apart_go_to_the_queues_in_turn() -> None:
    now_s = 100.0
    turns, topic = QueueTurns(lambda: now_s), TopicCatalog().with_topic("T", 4).get("T")
    found = []
    for _ in range(8):
        found.append(turns.of_message(topic))
        now_s += STAY_S
    assert found == [0, 1, 2, 3, 0, 1, 2, 3]


class HalfAway:
    """A node whose topic has its odd queues on a disk that the cluster cannot reach."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self.asked = 0
        topics: Any = node.topics
        self.topics = type("Topics", (), {"get": lambda _, name: _on_both(topics.get(name))})()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def at(self, disk: str) -> Any:
        if disk:
            self.asked += 1
            raise ShardUnavailableError(f"disk {disk}", "its machine does not answer")
        return self._node


class OfTwoDisks(HalfAway):
    """A node whose topic has its odd queues on another disk, which answers."""

    def at(self, _: str) -> Any:
        return self._node


def _on_both(topic: Any) -> Any:
    return replace(topic, disks=("", FAR) * (topic.queues // 2))


@pytest.fixture
def no_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each single message goes to the next queue."""
    monkeypatch.setattr(queue_turns, "STAY_S", 0.0)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HalfAway]:
    with LocalNode(tmp_path) as made:
        made.topics.create("T", 4)
        yield HalfAway(made)


@pytest.mark.usefixtures("no_stay")
def test_messages_without_a_key_go_to_the_disk_that_answers(node: HalfAway) -> None:
    with LocalNode.producer(node) as producer:  # type: ignore[arg-type]
        sent = Counter(producer.send("T", b"any").queue_id for _ in range(20))
        assert sent == {0: 10, 2: 10}
        assert node.asked == 1
        with pytest.raises(ShardUnavailableError, match="does not answer"):
            producer.send("T", b"there", queue_id=1)
        bodies = [b"1", b"2", b"3"]
        for _ in range(4):
            assert {*producer.send_many("T", bodies=bodies).queues} <= {0, 2}


@pytest.fixture
def half_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The node, with no room on the disk of its odd queues, whose bell no process hears."""
    monkeypatch.setattr(shard_threads, "_IDLE_SWEEP_INTERVAL_S", 0.2)
    with LocalNode(tmp_path) as made:
        made.topics.create("T", 4)
        for queue_id in (1, 3):
            made.shard("T", queue_id).writer.watch_disk(DiskUse(used=96, free=4))
        yield OfTwoDisks(made)


KEYED = {SHARDING_KEY: next(key for key in "abc" if java_hash_code(key) % 4 == 1)}
CHOSEN: list[Callable[[NodeProducer], object]] = [
    lambda producer: producer.send("T", b"there", queue_id=1),
    lambda producer: producer.send("T", b"there", sharding_key=KEYED[SHARDING_KEY]),
    lambda producer: producer.send("T", b"there", queue_selector=lambda *_: 3),
    lambda producer: producer.send_many("T", bodies=[b"there"], queue_id=3),
    lambda producer: producer.send_many("T", [Message("T", b"there", properties=KEYED)]),
]


@pytest.mark.parametrize("send", CHOSEN)
def test_a_message_whose_queue_was_chosen_is_refused_by_a_full_disk(
    half_full: Any, send: Callable[[NodeProducer], object]
) -> None:
    with LocalNode.producer(half_full) as producer:
        for _ in range(2):
            with pytest.raises(StoreFullError, match=r"shard T/[13]: the disk of"):
                send(producer)


FREE: list[Callable[[NodeProducer], Iterable[SendResult]]] = [
    lambda producer: [producer.send("T", b"any", tags="t", properties={"a": "b"})],
    lambda producer: producer.send_many("T", bodies=[b"any"] * 1500, tags="t"),
    lambda producer: producer.send_many("T", [Message("T", b"any", "t")] * 1500),
    lambda producer: producer.send_many("T", pa.table({"body": [b"any"] * 5000})),
    lambda producer: producer.begin_many("T", [Message("T", b"any", "t")] * 1500).result(),
]


@pytest.mark.proves(
    "producers",
    "A message without a queue that a full disk refused is stored on another disk",
)
@pytest.mark.usefixtures("no_stay")
@pytest.mark.parametrize("send", FREE)
def test_a_message_without_a_queue_that_a_full_disk_refused_is_stored_on_another_one(
    half_full: Any, send: Callable[[NodeProducer], Iterable[SendResult]]
) -> None:
    with LocalNode.producer(half_full) as producer:
        results = [one for _ in range(4) for one in send(producer)]
    assert {one.queue_id for one in results} == {0, 2}
    assert len({one.message_id for one in results}) == len(results)
    stored = half_full.stored("T")
    assert {(one.queue_id, one.queue_offset) for one in results} == {
        (one.queue_id, one.queue_offset) for one in stored
    }
    assert {one.body for one in stored} == {b"any"}


@pytest.mark.usefixtures("no_stay")
def test_a_task_s_message_is_stored_on_another_disk_and_refused_if_all_are_full(
    half_full: Any,
) -> None:
    async def send() -> None:
        async with NodeAsyncProducer(partial(NodeProducer, half_full)) as producer:
            sent = [await producer.send("T", b"any", tags="t") for _ in range(20)]
            assert {one.queue_id for one in sent} == {0, 2}
            for queue_id in (0, 2):
                half_full.shard("T", queue_id).writer.watch_disk(DiskUse(used=96, free=4))
            for _ in range(4):
                with pytest.raises(StoreFullError):
                    await producer.send("T", b"any")
                with pytest.raises(StoreFullError):
                    await producer.send_many("T", bodies=[b"any"])

    asyncio.run(send())
    assert {(one.body, one.tags) for one in half_full.stored("T")} == {(b"any", "t")}


@pytest.mark.usefixtures("no_stay")
def test_messages_without_a_key_leave_out_the_disk_that_was_full(half_full: Any) -> None:
    with LocalNode.producer(half_full) as producer:
        with pytest.raises(StoreFullError, match="shard T/1: the disk of"):
            producer.send("T", b"there", queue_id=1)
        sent = Counter(producer.send_async("T", b"any").result().queue_id for _ in range(20))
        assert sent == {0: 10, 2: 10}
        with pytest.raises(StoreFullError, match="shard T/3: the disk of"):
            producer.send("T", b"there", queue_id=3)


def test_a_producer_begins_with_the_turn_that_it_is_given() -> None:
    topic = TopicCatalog().with_topic("T", 4).get("T")
    assert [QueueTurns(first=first).of_message(topic) for first in range(8)] == [*range(4)] * 2

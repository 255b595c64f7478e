"""A failed message waits on the disk that it came from, and is redelivered from there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from support.harness.patience import until

from rocketray.base.marks import REAL_QUEUE_ID
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import dead_letter_topic, retry_topic, sent_back
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.broker.topics.placement import Placement
from rocketray.errors import ShardUnavailableError
from rocketray.message import ForwardedMessage, PhysicalOffset, QueueOffset, StoredMessage
from rocketray.messaging.producers.links import Nearby
from rocketray.topology.delivery import returns as returns_module
from rocketray.topology.delivery.returns import Return, Returns

pytestmark = pytest.mark.proves(
    "durability",
    "Delayed messages, transactions and retries are on the disk of their queue, also "
    "while the machine of the first disk is down, and on another disk while that of the "
    "queue is",
)

FAR = "00000000-0000-0000-0000-000000000002"
LEVEL = 2  # of a first attempt, from 0
STORED = StoredMessage(
    "Trade", 0, QueueOffset(7), PhysicalOffset(700), 100, b"body", {"UNIQ_KEY": "U"},
    offset_message_id="0A00000100002A9F00000000000002BC", flag=5, sys_flag=0, body_crc=0,
    born_timestamp_ms=1, born_host=("192.0.2.1", 7), store_timestamp_ms=2,
    store_host=("10.0.0.1", 10911), reconsume_times=0, prepared_transaction_offset=0,
)  # fmt: skip


class Node:
    """A node with some disks, and what its producer stored: topic, queue, and the retry queues."""

    def __init__(self, *disks: str) -> None:
        self.placement = Placement(
            disks=lambda: disks, spread=lambda _, queues: (*disks,) * (queues // len(disks))
        )
        self.catalog = TopicCatalog().with_topic("Trade", 2 * len(disks), self.placement)
        self.away = ""
        self.refused = ""
        """The beginning of the topics that are on a disk that does not answer."""
        self.stored: list[tuple[str, int, list[str]]] = []
        self.topics = self.links = self

    def all(self) -> dict[str, TopicConfig]:
        return dict(self.catalog.topics)

    def get(self, name: str) -> TopicConfig:
        return self.catalog.get(name)

    def ensure(self, name: str, queues: int, **_: object) -> TopicConfig:
        self.catalog = self.catalog.with_topic(name, queues, self.placement)
        return self.catalog.get(name)

    def producer(self, **_: object) -> Node:
        return self

    def near(self, disk: str, topic: str, number: int) -> Nearby:
        config = self.catalog.get(topic)
        disk = "" if disk == self.away else disk
        queue_id = config.queue_on(disk, number)
        assert queue_id is not None
        return Nearby(queue_id, disk)

    def close(self) -> None:
        """Do nothing: it is the producer, too."""

    def forward(self, topic: str, queue_id: int, messages: Sequence[ForwardedMessage]) -> None:
        if self.refused and topic.startswith(self.refused):
            raise ShardUnavailableError(topic, "as the test wants")
        queues = [message.properties.get(REAL_QUEUE_ID, "") for message in messages]
        self.stored.append((topic, queue_id, queues))


def failed(
    group: str, queue_id: int, retry_queues: int | None = None, attempts: int = 16
) -> Return:
    """A message of that queue, on its way back."""
    stored = replace(STORED, queue_id=queue_id)
    back = sent_back(stored, group, attempts, dead_letter_topic(group), retry_queues)
    topics = (retry_topic(group), SCHEDULE_TOPIC) if attempts else (dead_letter_topic(group),)
    return Return(back, ("Trade", queue_id), topics, lambda: None, lambda: True, retry_queues)


def store(node: Any, *batch: Return) -> Returns:
    unused: Any = None
    returns = Returns(unused, unused)
    returns._store_in_thread(node, batch)
    return returns


@pytest.mark.parametrize(("queue_id", "waits_in", "retry"), [(0, LEVEL, 0), (3, 18 + LEVEL, 1)])
def test_it_waits_on_the_disk_of_its_queue_and_is_redelivered_there(
    queue_id: int, waits_in: int, retry: int
) -> None:
    node = Node("", FAR)
    store(node, failed("g", queue_id))
    assert node.stored == [(SCHEDULE_TOPIC, waits_in, [str(retry)])]


def test_it_waits_on_another_disk_while_its_own_is_unavailable() -> None:
    node = Node("", FAR)
    node.away = FAR
    store(node, failed("g", 3))
    assert node.stored == [(SCHEDULE_TOPIC, LEVEL, ["0"])]


def test_with_tables_it_keeps_its_queue_for_the_owner_of_that() -> None:
    node = Node("", FAR)
    store(node, failed("g", 3, retry_queues=4))
    assert node.stored == [(SCHEDULE_TOPIC, 18 + LEVEL, ["3"])]
    assert node.get(retry_topic("g")).queues == 4


def test_messages_of_one_disk_are_stored_together() -> None:
    node = Node("", FAR)
    returns = store(node, failed("g", 1))
    places = [returns._place(failed("g", queue_id)) for queue_id in range(4)]
    assert places[0] == places[2] != places[1] == places[3]


def test_the_retry_topic_of_each_group_in_a_batch_exists_before_its_message_waits() -> None:
    node = Node("")
    store(node, failed("one", 0), failed("two", 1))
    assert {retry_topic("one"), retry_topic("two")} <= node.all().keys()
    assert node.stored == [(SCHEDULE_TOPIC, LEVEL, ["0", "0"])]


@pytest.mark.parametrize(("refused", "first"), [("%DLQ%", SCHEDULE_TOPIC), ("SCHEDULE", "%DLQ%g")])
def test_dead_letters_and_messages_that_wait_do_not_hold_each_other_up(
    monkeypatch: pytest.MonkeyPatch, refused: str, first: str
) -> None:
    monkeypatch.setattr(returns_module, "_RETRY_S", 0.01)
    node: Any = Node("")
    node.refused = refused

    async def connect() -> Any:
        return node

    async def scenario() -> None:
        returns = Returns(connect, AsyncMock())
        for attempts in (0, 16):
            returns.put(failed("g", 0, attempts=attempts))
        await until(lambda: len(node.stored) == 1)
        assert node.stored[0][0] == first
        node.refused = ""
        await returns.flush(10)
        assert len(node.stored) == 2
        await returns.close()

    asyncio.run(scenario())


def test_a_topic_that_was_deleted_meanwhile_is_no_obstacle() -> None:
    node = Node("", FAR)
    one = failed("g", 1)
    node.catalog = node.catalog.without_topic("Trade").without_deleted("Trade")
    store(node, one)
    assert node.stored == [(SCHEDULE_TOPIC, LEVEL, ["0"])]

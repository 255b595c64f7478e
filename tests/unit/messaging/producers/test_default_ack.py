"""When a message counts as stored if nothing is said: by its call, its producer, its topic, its node.

A broker flushes nothing by itself, so what is on disk was acknowledged for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from support.nodes.transactions import begin

from rocketray.base.ack_mode import AckMode
from rocketray.base.system_topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rocketray.base.transaction import Decision, Verdict
from rocketray.errors import ConfigError
from rocketray.message import Message
from rocketray.messaging.producers.async_producer import NodeAsyncProducer
from rocketray.messaging.producers.batch import Batch
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.queue_link import QueueLink
from rocketray.store.batches.encoded_batch import Packing
from rocketray.testing import Broker

Send = Callable[[NodeProducer], object]
MESSAGES = [Message("T", b"1"), Message("T", b"2")]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.node.topics.create("T", 1)
        yield broker


def stored_for(broker: Broker) -> str:
    """What the last message of the topic was acknowledged for."""
    reads = broker.node.shard("T", 0).writer.store.reads
    assert reads.max_physical_offset
    return "disk" if reads.flushed_offset == reads.max_physical_offset else "memory"


def awaited(producer: NodeProducer, **options: Any) -> None:
    async def send() -> None:
        async with NodeAsyncProducer(lambda: producer) as sender:
            await sender.send("T", b"1", **options)
            await sender.send("T", b"2", **options)  # on the loop: the queue is open

    asyncio.run(send())


def one_way(producer: NodeProducer) -> None:
    producer.send_oneway("T", b"1")
    producer.flush()


WAYS: dict[str, Send] = {
    "send": lambda producer: producer.send("T", b"1"),
    "with options": lambda producer: producer.send("T", b"1", unique_key="0" * 32),
    "async": lambda producer: producer.send_async("T", b"1").result(),
    "one way": one_way,
    "awaited": awaited,
    "list": lambda producer: producer.send_many("T", MESSAGES),
    "bodies": lambda producer: producer.send_many("T", bodies=[b"1"]),
    "table": lambda producer: producer.send_many("T", pa.table({"body": [b"1"]})),
    "begun": lambda producer: producer.begin_many("T", MESSAGES).result(),
}


@pytest.mark.proves(
    "producers",
    "Every way to send follows the acknowledgement of its call, producer, topic or node, in this "
    "order",
)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_send_follows_its_topic(broker: Broker, way: str) -> None:
    topics, send = broker.node.topics, WAYS[way]
    with NodeProducer(broker.node) as producer:
        send(producer)
    assert stored_for(broker) == "memory", "the first default"
    topics.set_ack("T", "disk")
    with NodeProducer(broker.node) as producer:
        send(producer)
    assert stored_for(broker) == "disk"
    with NodeProducer(broker.node, ack="memory") as producer:
        send(producer)
    assert stored_for(broker) == "memory", "a producer comes before its topic"


@pytest.mark.proves(
    "producers",
    "Every way to send follows the acknowledgement of its call, producer, topic or node, in this "
    "order",
)
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((None, None, None, "disk"), "disk"),
        ((None, None, "memory", "disk"), "memory"),
        ((None, "disk", "memory", "memory"), "disk"),
        (("memory", "disk", "disk", "disk"), "memory"),
        (("disk", "memory", "memory", "memory"), "disk"),
    ],
)
def test_what_is_said_closest_to_the_message_counts(
    broker: Broker,
    said: tuple[AckMode | None, AckMode | None, AckMode | None, AckMode],
    expected: str,
) -> None:
    call, producer, topic, node = said
    broker.node.topics.set_node_ack(node)
    broker.node.topics.set_ack("T", topic)
    for send in (
        lambda sender: sender.send("T", b"1", ack=call),
        lambda sender: sender.send_many("T", MESSAGES, ack=call),
        partial(awaited, ack=call),
    ):
        with NodeProducer(broker.node, ack=producer) as sender:
            send(sender)
        assert stored_for(broker) == expected


def test_a_topic_is_created_with_its_own(broker: Broker) -> None:
    broker.node.topics.set_node_ack("disk")
    assert broker.node.topics.create("Own", 1, ack="memory").default_ack == "memory"
    assert broker.node.topics.create("Other", 1).default_ack == "disk"
    assert broker.node.topics.set_ack("Own", None).default_ack == "disk"
    broker.node.load_state()
    assert {each.default_ack for each in broker.node.topics.all().values()} == {"disk"}
    for wrong in (
        lambda: broker.node.topics.create("No", 1, ack="all"),  # type: ignore[arg-type]
        lambda: broker.node.topics.set_ack("T", "all"),  # type: ignore[arg-type]
        lambda: broker.node.topics.set_node_ack("none"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, match=r"is not 'memory' or 'disk'"):
            wrong()


@pytest.mark.proves(
    "producers",
    "A producer that runs follows a changed acknowledgement of its topic",
)
def test_a_producer_that_runs_follows_a_change(broker: Broker) -> None:
    with NodeProducer(broker.node) as producer:
        producer.send("T", b"1")
        collected = producer.send_async("T", b"2")
        broker.node.topics.set_ack("T", "disk")
        producer.refresh_topics()
        late = producer.send_async("T", b"3")
        assert collected.result().queue_offset == 1
        assert late.result().queue_offset == 2, "two batches, in order"
        assert stored_for(broker) == "disk"
        broker.node.topics.set_ack("T", None)
        broker.node.topics.set_node_ack("memory")
        producer.refresh_topics()
        producer.send("T", b"4")
        assert stored_for(broker) == "memory"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the latest batch to each topic was sent for: the node's own flushes do not count."""
    latest: dict[str, str] = {}
    try_send = QueueLink.try_send

    def watched(link: QueueLink, packing: Packing, batch: Batch) -> bool:
        latest[link.topic] = batch.durability.text
        return try_send(link, packing, batch)

    monkeypatch.setattr(QueueLink, "try_send", watched)
    return latest


def test_a_message_that_waits_is_stored_as_its_own_topic_says(
    broker: Broker, sent: dict[str, str]
) -> None:
    with NodeProducer(broker.node) as producer:
        for ack in ("disk", "memory"):
            broker.node.topics.set_ack("T", ack)
            producer.refresh_topics()
            producer.send("T", b"1", delay=60)
            producer.send_many("T", MESSAGES, delay_level=1)
            assert {sent[TIMER_TOPIC], sent[SCHEDULE_TOPIC]} == {ack}


@pytest.mark.proves("producers", "The decision of a transaction is as durable as its message")
def test_the_decision_of_a_transaction_is_as_durable_as_its_message(
    broker: Broker, sent: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[bool] = []
    decide = broker.node.transactions.decide

    def watched(half_queue: int, wanted: Decision, *, to_disk: bool) -> Verdict:
        decided.append(to_disk)
        return decide(half_queue, wanted, to_disk=to_disk)

    monkeypatch.setattr(broker.node.transactions, "decide", watched)
    with NodeProducer(broker.node, group="g", check=lambda _: "unknown") as producer:
        begin(producer, "T", b"1").commit()
        assert (sent[HALF_TOPIC], decided[-1]) == ("memory", False)
        transaction = producer.begin()
        producer.send("T", b"2", transaction=transaction, ack="disk")
        transaction.commit()
        assert (sent[HALF_TOPIC], decided[-1]) == ("disk", True)
        begin(producer, "T", b"3").rollback()
        assert (sent[HALF_TOPIC], decided[-1]) == ("memory", False)
        broker.node.topics.set_ack("T", "disk")
        producer.refresh_topics()
        begin(producer, "T", b"4").commit()
        assert (sent[HALF_TOPIC], decided[-1]) == ("disk", True)
    assert len(decided) == 4

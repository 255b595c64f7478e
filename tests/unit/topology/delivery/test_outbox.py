from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.harness.patience import patience, until
from support.nodes.apps import committed, make_app, numbers, put
from support.nodes.local_node import LocalNode

from rocketray.base.ack_mode import AckMode
from rocketray.base.delay import Delay
from rocketray.base.system_topics import TIMER_TOPIC
from rocketray.broker.shards.shard_appends import ShardAppends
from rocketray.broker.topics.ownership_record import epoch_of
from rocketray.errors import ConfigError, OwnerFencedError, ShardUnavailableError, StoreFullError
from rocketray.message import Message
from rocketray.messaging.producers.batch import SendResult, SendResults
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.send_future import SendFuture
from rocketray.topology.delivery import outbox as outbox_module
from rocketray.topology.delivery.outbox import Outbox, Outboxes


class WatchedProducer:
    """A real producer that notes its batches, fails on request and can be held up."""

    def __init__(self, producer: NodeProducer) -> None:
        self._producer = producer
        self.batches: list[list[bytes]] = []
        self.failures: list[Exception] = []
        self.gate = threading.Event()
        self.gate.set()

    def begin_many(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        delays: Sequence[Delay] = (),
        queue_id: int | None = None,
    ) -> WatchedSend:
        begin = self._producer.begin_many
        send = partial(begin, topic, messages, delays=delays, queue_id=queue_id)
        return WatchedSend(self, send, messages)

    def close(self) -> None:
        self._producer.close()


class WatchedSend:
    """Messages of a watched producer; they are sent when their result is asked for."""

    def __init__(
        self,
        producer: WatchedProducer,
        send: Callable[[], SendFuture[SendResults]],
        messages: Sequence[Message],
    ) -> None:
        self._producer = producer
        self._send = send
        self._sent: SendFuture[SendResults] | None = None
        self._bodies = [message.body for message in messages]

    def result(self) -> Sequence[SendResult]:
        self._producer.gate.wait()
        self._producer.batches.append(self._bodies)
        if self._producer.failures:
            raise self._producer.failures.pop(0)
        self._sent = self._sent or self._send()
        return self._sent.result()


@pytest.fixture
def producer(node: LocalNode) -> WatchedProducer:
    node.topics.ensure("T", 1)
    node.topics.ensure("U", 1)
    return WatchedProducer(node.producer())


def message(number: int, topic: str = "T") -> Message:
    return Message(topic, str(number).encode())


def test_sends_that_wait_together_leave_together_and_in_order(producer: WatchedProducer) -> None:
    async def scenario() -> None:
        outbox = Outbox(cast("NodeProducer", producer))
        producer.gate.clear()
        first = await outbox.put(message(0), None)
        await asyncio.sleep(0.01)
        others = [await outbox.put(message(number), None) for number in range(1, 50)]
        producer.gate.set()
        places = await asyncio.gather(first, *others)
        assert [place.offset for place in places] == list(range(50))
        assert [len(batch) for batch in producer.batches] == [1, 49]
        await outbox.close()

    asyncio.run(scenario())


def test_a_batch_has_one_topic_and_queue(producer: WatchedProducer) -> None:
    async def scenario() -> None:
        outbox = Outbox(cast("NodeProducer", producer))
        futures = [
            await outbox.put(message(number, "TU"[number % 2]), 0 if number < 2 else None)
            for number in range(6)
        ]
        places = await asyncio.gather(*futures)
        assert [(place.topic, place.offset) for place in places] == [
            ("T", 0), ("U", 0), ("T", 1), ("U", 1), ("T", 2), ("U", 2),
        ]  # fmt: skip
        await outbox.close()

    asyncio.run(scenario())


def test_the_changes_of_an_owner_that_is_fenced_fail_alone(node: LocalNode) -> None:
    node.topics.ensure("T", 1)

    async def scenario() -> None:
        outbox = Outbox(node.producer(ack="disk"))
        epochs = [5, 5, 6, 5, 0, 6]  # of one batch of the outbox
        futures = [
            await outbox.put(message(number), 0, owner_epoch=epoch)
            for number, epoch in enumerate(epochs)
        ]
        await asyncio.gather(*futures)
        late = [await outbox.put(message(9), 0, owner_epoch=epoch) for epoch in (5, 6, 0)]
        await outbox.flush()
        refused, *rest = await asyncio.gather(*late, return_exceptions=True)
        assert isinstance(refused, OwnerFencedError)
        assert not any(isinstance(one, BaseException) for one in rest)
        await outbox.close()

    asyncio.run(scenario())
    bodies = [bytes(one.body) for one in node.stored("T") if epoch_of(one) is None]
    assert bodies == [b"0", b"1", b"3", b"2", b"5", b"4", b"9", b"9"]


def test_a_shard_that_is_away_is_asked_again(producer: WatchedProducer) -> None:
    async def scenario() -> None:
        outbox = Outbox(cast("NodeProducer", producer))
        producer.failures = [ShardUnavailableError("shard T/0", "restarting", 1)] * 3
        future = await outbox.put(message(1), None)
        assert (await future).offset == 0
        assert len(producer.batches) == 4
        await outbox.close()

    asyncio.run(scenario())


def test_a_shard_that_stays_away_fails_the_send(
    producer: WatchedProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        outbox = Outbox(cast("NodeProducer", producer))
        producer.failures = [ShardUnavailableError("shard T/0", "gone", 60_000)]
        with pytest.raises(ShardUnavailableError):
            await (await outbox.put(message(1), None))
        with pytest.raises(ShardUnavailableError):
            await outbox.close()

    monkeypatch.setattr(outbox_module, "_RETRY_FOR_S", 1.0)
    asyncio.run(scenario())


def test_after_a_lost_message_every_flush_raises(producer: WatchedProducer) -> None:
    async def scenario() -> None:
        outbox = Outbox(cast("NodeProducer", producer))
        producer.failures = [StoreFullError("no room")]
        await outbox.put(message(1), None)
        flushes = await asyncio.gather(outbox.flush(), outbox.flush(), return_exceptions=True)
        assert list(map(type, flushes)) == [StoreFullError, StoreFullError]
        assert (await (await outbox.put(message(2), None))).offset == 0
        with pytest.raises(StoreFullError):
            await outbox.flush()
        await outbox.close()  # they told it before

    asyncio.run(scenario())


@pytest.mark.proves(
    "producers",
    "An app's outbox waits for late acknowledgements, and stores each message once",
)
def test_what_a_shard_does_not_acknowledge_in_time_is_waited_for_and_stored_once(
    node: LocalNode,
) -> None:
    node.topics.ensure("T", 1)
    shard = node.shard("T", 0)

    async def scenario() -> None:
        outbox = Outbox(NodeProducer(node, timeout_s=0.05))
        await (await outbox.put(message(0), None))
        with shard.writer._lock:  # a slow disk
            futures = [
                await outbox.put(message(1), None),
                await outbox.put(message(2), 0),
                await outbox.put(message(3), None, Delay(deliver_at_ms=1)),
            ]
            await asyncio.sleep(1.5)
            assert not any(future.done() for future in futures)
        assert [(await future).offset for future in futures] == [1, 2, 3]
        await outbox.close()
        assert [one.body for one in shard.writer.store.reads.scan()] == [b"0", b"1", b"2", b"3"]

    asyncio.run(scenario())


def test_flush_does_not_wait_for_what_comes_later(producer: WatchedProducer) -> None:
    async def scenario() -> None:
        outbox = Outbox(cast("NodeProducer", producer))

        async def keep_sending() -> None:
            number = 0
            while True:
                await outbox.put(message(number), None)
                number += 1
                await asyncio.sleep(0)

        sending = asyncio.create_task(keep_sending())
        async with asyncio.timeout(patience(5)):
            for _ in range(5):
                await outbox.flush()
                await asyncio.sleep(0.002)
        sending.cancel()
        await outbox.close()

    asyncio.run(scenario())


def test_a_full_outbox_holds_up_its_senders(
    producer: WatchedProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        outbox = Outbox(cast("NodeProducer", producer))
        producer.gate.clear()
        sent: list[int] = []

        async def send() -> None:
            for number in range(100):
                await outbox.put(message(number), None)
                sent.append(number)

        sending = asyncio.create_task(send())
        await asyncio.sleep(0.05)
        assert len(sent) == 30  # 10 with the thread, which it took first, and 20 that wait
        producer.gate.set()
        await sending
        await outbox.close()
        assert sum(map(len, producer.batches)) == 100

    monkeypatch.setattr(outbox_module, "WAITING_MAX_MESSAGES", 20)
    monkeypatch.setattr(outbox_module, "BATCH_MAX_MESSAGES", 10)
    asyncio.run(scenario())


def test_delayed_sends_tell_where_they_wait_and_how_they_are_recalled(
    node: LocalNode, producer: WatchedProducer
) -> None:
    async def scenario() -> None:
        outbox = Outbox(cast("NodeProducer", producer))
        at_once = await outbox.put(message(0), None)
        later = await outbox.put(message(1), None, Delay(delay_ms=3_600_000))
        now = await outbox.put(message(2), None, Delay(deliver_at_ms=1))
        waits = await later
        assert (waits.topic, waits.partition, waits.offset) == (TIMER_TOPIC, 0, 0)
        assert waits.recall_handle is not None
        assert node.delays.recall(waits.recall_handle)
        assert (await at_once).recall_handle is None
        assert {(await at_once).topic, (await now).topic} == {"T"}
        await outbox.close()

    asyncio.run(scenario())


def test_an_app_whose_output_was_lost_does_not_commit_its_input_when_it_stops(
    node: LocalNode,
) -> None:
    node.topics.ensure("T", 1)
    node.topics.ensure("Out", 1)
    node.topics.set_permission("Out", 4)
    put(node, "T", numbers(10))

    async def scenario() -> None:
        app, topic = make_app(node)
        app.conf.broker_commit_interval = 60.0
        out = app.topic("Out", value_serializer="raw")
        seen: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream:
                await out.send(value=value)
                seen.append(value)

        await app.start()
        await until(lambda: len(seen) == 10)
        assert not await app.consumer.force_commit()
        node.topics.set_permission("Out", 6)
        await app.stop()
        assert isinstance(app.crash_reason, ConfigError)
        assert committed(node, "app-reader", "T") == 0

    asyncio.run(scenario())


@pytest.mark.proves(
    "producers",
    "Every way to send follows the acknowledgement of its call, producer, topic or node, in this "
    "order",
)
def test_what_an_app_sends_is_stored_as_its_topic_says(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.ensure("T", 1)
    node.topics.ensure("Out", 1, ack="disk")
    synced: list[str] = []
    flush = ShardAppends.flush

    def watched(appends: ShardAppends, *, everything: bool = False) -> None:
        if threading.current_thread().name == "writer":  # before it acknowledges
            synced.append(appends.name)
        flush(appends, everything=everything)

    monkeypatch.setattr(ShardAppends, "flush", watched)

    async def scenario() -> None:
        app, topic = make_app(node)
        await app.start()
        await (await topic.send(value=b"m"))
        await (await app.topic("Out", value_serializer="raw").send(value=b"d"))
        await app.stop()

    asyncio.run(scenario())
    assert {*synced} == {"Out/0"}


def test_an_app_has_an_outbox_for_memory_and_one_for_disk(node: LocalNode) -> None:
    opened: list[str] = []
    producers: list[WatchedProducer] = []

    def producer(ack: AckMode) -> WatchedProducer:
        opened.append(ack)
        producers.append(WatchedProducer(node.producer(ack=ack)))
        return producers[-1]

    async def connect() -> Any:
        await asyncio.sleep(0.01)
        return SimpleNamespace(producer=producer)

    async def scenario() -> None:
        outboxes = Outboxes(connect)
        await outboxes.flush()
        assert not opened
        memory, again = await asyncio.gather(outboxes.get("memory"), outboxes.get("memory"))
        assert memory is again
        disk = await outboxes.get("disk")
        assert opened == ["memory", "disk"]
        await memory.put(Message("T", b"m"), 0)
        await disk.put(Message("T", b"d"), 0)
        await outboxes.flush()
        assert [one.batches for one in producers] == [[[b"m"]], [[b"d"]]]
        producers[1].failures = [StoreFullError("no room")]
        await disk.put(Message("T", b"lost"), 0)
        with pytest.raises(StoreFullError):
            await outboxes.flush()
        await outboxes.settle_sends()
        await outboxes.close()
        await outboxes.close()

    node.topics.ensure("T", 1)
    asyncio.run(scenario())


@pytest.mark.parametrize("act", ["flush", "settle_sends", "close"])
def test_an_outbox_that_fails_keeps_no_other_from_being_stored(node: LocalNode, act: str) -> None:
    producers: dict[AckMode, WatchedProducer] = {}

    def producer(ack: AckMode) -> WatchedProducer:
        producers[ack] = WatchedProducer(node.producer(ack=ack))
        return producers[ack]

    async def connect() -> Any:
        return SimpleNamespace(producer=producer)

    async def scenario() -> None:
        outboxes = Outboxes(connect)
        memory, disk = await outboxes.get("memory"), await outboxes.get("disk")
        producers["memory"].failures = [StoreFullError("no room")]
        producers["disk"].gate.clear()
        lost = await memory.put(message(1), 0)
        stored = await disk.put(message(2), 0)
        with pytest.raises(StoreFullError):
            await lost
        acting = asyncio.ensure_future(getattr(outboxes, act)())
        await asyncio.sleep(0.05)
        is_early = acting.done()
        producers["disk"].gate.set()
        assert not is_early, "what the disk has not got yet is not waited for"
        with pytest.raises(StoreFullError, match="no room"):
            await acting
        assert stored.done()
        if act != "close":
            producers["disk"].failures = [StoreFullError("no room either")]
            await disk.put(message(3), 0)
            for _ in range(2):
                with pytest.raises(StoreFullError, match=r"^no room") as raised:
                    await outboxes.flush()
                assert raised.value.__notes__ == ["and another: StoreFullError('no room either')"]
            await outboxes.close()

    node.topics.ensure("T", 1)
    asyncio.run(scenario())

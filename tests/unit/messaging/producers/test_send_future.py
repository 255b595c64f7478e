"""Futures: awaited, with callbacks, and asked for again and again: each message is stored once."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

import pyarrow as pa
import pytest
from support.harness.no_threads import no_threads
from support.harness.patience import patience, wait_until_answered
from support.nodes.local_node import LocalNode

from rocketray.base.delay import Delay
from rocketray.errors import ShardUnavailableError, StoreFullError
from rocketray.message import UNIQUE_KEY, Message
from rocketray.messaging.producers import batcher
from rocketray.messaging.producers.batch import SendResult, SendResults
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.send_future import SendFuture
from rocketray.store.queues.consume_queue import ConsumeQueue
from rocketray.testing import Broker
from rocketray.testing.fixtures import broker, clock

__all__ = ["broker", "clock"]

Begin = Callable[[Any, list[Message]], Any]


def at_once(producer: Any, messages: list[Message]) -> Any:
    return producer.begin_many("T", messages)


def delayed(producer: Any, messages: list[Message]) -> Any:
    due = Delay(deliver_at_ms=1)
    return producer.begin_many("T", messages, delays=[due] * len(messages))


def make(broker: Broker) -> list[Message]:
    """Six messages, and a topic of two queues; those of both keys are in queues of their own."""
    broker.topics.ensure("T", 2)
    return [
        Message("T", b"%d" % number, properties={"__SHARDINGKEY": "ab"[number % 2]})
        for number in range(6)
    ]


def stored(broker: Broker) -> list[list[bytes]]:
    return [
        [one.body for one in broker.node.shard("T", queue).writer.store.reads.scan()]
        for queue in (0, 1)
    ]


@pytest.mark.proves(
    "producers",
    "`result()` of a list, called again, asks the shard about a call without an answer",
)
@pytest.mark.parametrize("begin", [at_once, delayed])
def test_what_no_answer_came_for_is_asked_for_and_not_sent_anew(
    broker: Broker, begin: Begin
) -> None:
    messages = make(broker)
    with broker.producer() as producer:
        broker.faults.lose_acks(5, "T", 1)
        sent = begin(producer, messages)
        for _ in range(3):  # three calls at first, and then one each time
            with pytest.raises(ShardUnavailableError):
                sent.result()
        results = sent.result()
    assert sorted(stored(broker)) == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]
    places = [(result.queue_id, result.queue_offset) for result in results]
    for number, (queue, offset) in enumerate(places):
        assert stored(broker)[queue][offset] == b"%d" % number


@pytest.mark.proves(
    "producers",
    "`result()` of a list, called again, sends only what the shard did not store",
)
@pytest.mark.parametrize("begin", [at_once, delayed])
def test_what_a_shard_did_not_store_is_sent_again_and_the_rest_is_not(
    broker: Broker, begin: Begin
) -> None:
    messages = make(broker)
    with broker.producer() as producer:
        broker.faults.fail_appends(2, "T", 0)
        sent = begin(producer, messages)
        for _ in range(2):
            with pytest.raises(ShardUnavailableError, match="could not store"):
                sent.result()
        assert len(sent.result()) == 6
    assert sorted(stored(broker)) == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]


@pytest.mark.proves(
    "producers",
    "A batch that a shard could not store is repeated with its ids and stored once",
)
@pytest.mark.parametrize("is_table", [False, True])
def test_what_a_shard_stored_before_its_disk_failed_is_repeated_and_stored_once(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, *, is_table: bool
) -> None:
    append, failures = ConsumeQueue.append, [OSError(errno.EIO, "broken on purpose")]

    def fail_once(queue: ConsumeQueue, *entries: Any) -> None:
        if failures and queue.max_offset == 1:
            raise failures.pop()
        append(queue, *entries)

    monkeypatch.setattr(ConsumeQueue, "append", fail_once)
    node.calls.shares_memory = False
    bodies = [b"a", b"b"]
    content: Any = [Message("T", body) for body in bodies]
    if is_table:
        content = pa.table({"body": bodies})
    with node.producer() as producer:
        producer.send("T", b"first")
        sent = producer.begin_many("T", content)
        with pytest.raises(ShardUnavailableError, match="the outcome is unknown"):
            sent.result()
        results = until_stored(sent)
    assert not failures
    assert [one.queue_offset for one in results] == [1, 2]
    found = list(node.stored("T"))
    assert [one.body for one in found] == [b"first", *bodies]
    assert [one.properties[UNIQUE_KEY] for one in found][1:] == [one.message_id for one in results]
    assert [one.offset_message_id for one in found][1:] == [
        one.offset_message_id for one in results
    ]


def until_stored(sent: SendFuture[SendResults]) -> SendResults:
    """The shard is opened again meanwhile."""
    return wait_until_answered(sent.result, ShardUnavailableError)


@pytest.mark.proves(
    "producers",
    "Nor is it repeated by a list's `result()` if the caller gave a unique key",
)
@pytest.mark.parametrize("fault", ["fail_appends", "lose_acks"])
def test_messages_with_unique_keys_of_the_caller_are_not_repeated(
    broker: Broker, fault: str
) -> None:
    broker.topics.ensure("T", 1)
    with broker.producer() as producer:
        getattr(broker.faults, fault)(1, "T")
        sent = producer.begin_many("T", [Message("T", b"x", unique_key="K1")])
        for _ in range(3):
            with pytest.raises(ShardUnavailableError):
                sent.result()
    assert len(broker.stored("T")) == (fault == "lose_acks")


def test_what_is_refused_for_good_is_not_sent_again(broker: Broker) -> None:
    messages = make(broker)
    with broker.producer() as producer:
        with broker.faults.disk_full():
            sent = at_once(producer, messages)
            with pytest.raises(StoreFullError):
                sent.result()
        with pytest.raises(StoreFullError):
            sent.result()
    assert stored(broker) == [[], []]


@pytest.mark.parametrize("fault", ["fail_appends", "lose_acks"])
def test_what_comes_after_a_message_that_is_not_stored_waits_for_it(
    broker: Broker, fault: str
) -> None:
    broker.topics.ensure("T", 1)
    bodies = [letter * 300_000 for letter in (b"1", b"2", b"3", b"4")]  # two go together
    with broker.producer() as producer:
        getattr(broker.faults, fault)(3, "T", 0)
        sent = producer.begin_many("T", [Message("T", body) for body in bodies], queue_id=0)
        for _ in range(10):
            try:
                results = sent.result()
            except ShardUnavailableError:
                continue
            break
    assert [one.body for one in broker.node.shard("T", 0).writer.store.reads.scan()] == bodies
    assert [result.queue_offset for result in results] == [0, 1, 2, 3]


def test_the_topic_where_delayed_messages_wait_is_made_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages, made, create = make(broker), [], broker.topics.ensure

    def create_topic(topic: str, queues: int = 1) -> object:
        made.append(topic)
        return create(topic, queues)

    monkeypatch.setattr(broker.topics, "ensure", create_topic)
    with broker.producer() as producer:
        producer.send_many("T", messages, delay_level=5)
    assert len(made) == 1


def test_messages_of_one_batch_that_are_asked_for_again_at_once_have_their_results(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "collecting_s", lambda _: 60.0)
    broker.topics.ensure("T", 1)
    with broker.producer() as producer, ThreadPoolExecutor(2) as threads:
        producer.send("T", b"so the next ones are collected")
        producer.send_async("T", b"so the next ones are collected").result()
        (link,) = producer.links.opened()
        broker.faults.lose_acks(3, "T")
        with link.lock:
            futures = [producer.send_async("T", body) for body in (b"a", b"b")]
        with pytest.raises(ShardUnavailableError):
            futures[0].result()
        with link.lock:
            asked = [threads.submit(future.result) for future in futures]
            time.sleep(0.2)  # until both wait for the link
        assert [one.result().queue_offset for one in asked] == [2, 3]
    assert [one.body for one in broker.stored("T")][2:] == [b"a", b"b"]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("T", 1)
        node.topics.ensure("Dead", 1)
        yield node


@pytest.mark.proves(
    "producers",
    "A future is awaited in any loop, without a thread or task a message",
)
def test_a_send_is_awaited_in_any_loop_without_a_thread_or_task_of_its_own(node: LocalNode) -> None:
    async def send(producer: NodeProducer) -> tuple[list[SendResult], int, int]:
        futures = [producer.send_async("T", b"%d" % number) for number in range(3000)]
        results = [await future for future in futures[:1000]]
        waits = [one.__await__() for one in futures[1000:]]
        for wait in waits:
            with suppress(StopIteration):
                next(wait)
        tasks, threads = len(asyncio.all_tasks()), threading.active_count()
        results += [await future for future in futures[1000:]]
        return results, tasks, threads

    with node.producer() as producer:
        before = threading.active_count()
        for first in (0, 3000):
            results, tasks, threads = asyncio.run(send(producer))
            assert [one.queue_offset for one in results] == [*range(first, first + 3000)]
            assert tasks == 1
            assert threads <= before + 1, "one thread reports all outcomes"


@pytest.mark.proves("producers", "What tasks send in one turn of their loop is sent together")
def test_what_tasks_send_in_one_turn_of_their_loop_goes_together(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "collecting_s", lambda _: 60.0)
    monkeypatch.setattr(batcher, "LINGER_S", 60.0)

    async def send_one(producer: NodeProducer, number: int) -> SendResult:
        return await producer.send_async("T", b"%d" % number)

    async def send(producer: NodeProducer) -> list[SendResult]:
        async with asyncio.timeout(patience(30)):
            return await asyncio.gather(*(send_one(producer, number) for number in range(500)))

    producer = node.producer()
    producer.send("T", b"so the next ones are collected")
    producer.send_async("T", b"so the next ones are collected").result()
    results = asyncio.run(send(producer))
    assert [one.queue_offset for one in results] == [*range(2, 502)]
    assert node.shard_statistics("T")[0].batches == 3
    monkeypatch.undo()


@pytest.mark.proves(
    "producers",
    "A shard that does not answer ends only the waiting for its own messages",
)
def test_an_awaited_send_ends_after_the_timeout_and_others_do_not_wait_for_it(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.stall("Dead", 0)

    async def send(producer: NodeProducer) -> SendResult:
        return await producer.send_async("Dead", b"x")

    async def send_both(producer: NodeProducer) -> None:
        dead = asyncio.create_task(send(producer))
        await asyncio.sleep(0)
        for number in range(200):
            assert (await producer.send_async("T", b"x")).queue_offset == number
        assert not dead.done()
        begun = time.monotonic()
        hasty = replace(producer._batcher.settings, timeout_s=0.5)
        with monkeypatch.context() as patch:
            patch.setattr(producer._batcher, "settings", hasty)
            with pytest.raises(ShardUnavailableError, match="may still store what was sent"):
                await send(producer)
        assert time.monotonic() - begun >= 0.45
        assert not dead.done()
        node.shard("Dead", 0).drain()
        assert (await dead).queue_offset == 0

    with NodeProducer(node, timeout_s=3600.0) as producer:
        asyncio.run(send_both(producer))


@pytest.mark.proves("producers", "Callbacks are called once the outcome is known")
def test_callbacks_are_called_with_the_future_once_its_outcome_is_known(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    called: Queue[object] = Queue()

    def fail(_: object) -> None:
        raise RuntimeError("broken on purpose")

    with node.producer() as producer:
        producer.send("T", b"the shard knows the ring by now")
        with node.shard("T", 0).writer._lock:
            sent = [producer.send_async("T", b"%d" % number) for number in range(5)]
            many = producer.begin_many("T", [Message("T", b"x")] * 3000)
            sent[0].add_done_callback(fail)
            for future in (*sent, many):
                future.add_done_callback(called.put)
            assert called.empty()
            assert not any(future.done() for future in (*sent, many))
        assert [called.get(timeout=patience(30)) for _ in range(6)] == [*sent, many]
        assert len(many.result(0)) == 3000
        sent[0].add_done_callback(called.put)
        assert called.get_nowait() is sent[0], "it is done already"
    assert "a callback of a send failed" in caplog.text


def test_a_callback_is_called_once_when_the_producer_is_closed_before_the_outcome(
    node: LocalNode,
) -> None:
    called: Queue[object] = Queue()
    producer = NodeProducer(node, timeout_s=0.2)
    producer.send("Dead", b"the shard knows the ring by now", timeout_s=patience(60))
    node.stall("Dead", 0)
    futures = [
        producer.begin_many("Dead", [Message("Dead", b"x")]),
        producer.send_async("Dead", b"y"),
    ]
    for future in futures:
        future.add_done_callback(called.put)
    with pytest.raises(ShardUnavailableError):
        producer.close()
    assert {called.get_nowait(), called.get_nowait()} == {*futures}
    futures[0].add_done_callback(called.put)
    assert called.get_nowait() is futures[0], "nobody looks for its outcome any more"
    assert called.empty()


def test_what_had_no_room_is_sent_once_when_several_threads_ask_for_a_list_at_once(
    node: LocalNode,
) -> None:
    bodies = [b"%d" % number * 100_000 for number in range(100, 120)]  # 6 MB, for a ring of 4
    node.stall("Dead", 0)
    shard = node.shard("Dead", 0)
    with NodeProducer(node, timeout_s=0.2) as producer, ThreadPoolExecutor(4) as threads:
        sent = producer.begin_many("Dead", [Message("Dead", body) for body in bodies])
        shard.drain()
        with pytest.raises(ShardUnavailableError, match="nothing of this batch was sent"):
            sent.result()
        (link,) = producer.links.opened()
        with link.lock:
            asked = [threads.submit(sent.result, 60.0) for _ in range(4)]
            time.sleep(0.2)  # until they would send the batch that had no room
        while not all(one.done() for one in asked):
            shard.drain()
            time.sleep(0.01)
    for one in asked:
        assert [result.queue_offset for result in one.result()] == [*range(20)]
    assert [one.body for one in node.stored("Dead")] == bodies


def test_an_error_is_raised_where_it_is_awaited(broker: Broker) -> None:
    broker.topics.ensure("T", 1)

    async def send(producer: NodeProducer) -> None:
        with broker.faults.disk_full(), pytest.raises(StoreFullError):
            await producer.send_async("T", b"x")
        broker.faults.lose_acks(4, "T")
        future = producer.send_async("T", b"y")
        for _ in range(2):  # three calls at first, and then one
            with pytest.raises(ShardUnavailableError):
                await future
        assert (await future).queue_offset == 0
        assert len(await producer.begin_many("T", [Message("T", b"z")])) == 1

    with broker.producer() as producer:
        asyncio.run(send(producer))
    assert [one.body for one in broker.stored("T")] == [b"y", b"z"]


def test_an_outcome_is_reported_though_no_thread_could_be_started_at_first(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node, node.producer() as producer:
        node.topics.ensure("T", 1)
        node.stall("T", 0)
        sent = producer.send_async("T", b"x")
        told = threading.Event()
        with no_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
            sent.add_done_callback(lambda _: told.set())
        sent.add_done_callback(lambda _: told.set())
        node.shard("T", 0).drain()
        assert told.wait(patience(20))

"""A producer for tasks: what it stores, in what order, and that no send blocks the loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience, until
from support.nodes.local_node import LocalNode

from rocketray.errors import ConfigError, ShardUnavailableError, StoreError
from rocketray.message import Message, StoredMessage
from rocketray.messaging.producers.async_producer import NodeAsyncProducer
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.testing import Broker

LARGE = bytes(300_000)  # of a segment of 1 MiB


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("T", 2)
        node.topics.ensure("Dead", 1)
        yield node


def make(node: LocalNode, **options: Any) -> NodeAsyncProducer:
    return NodeAsyncProducer(partial(NodeProducer, node, **options))


def bodies(node: LocalNode, topic: str = "T") -> list[list[bytes]]:
    found: list[list[bytes]] = [[] for _ in range(node.topics.get(topic).queues)]
    for message in node.stored(topic):
        found[message.queue_id].append(message.body)
    return found


@pytest.mark.proves(
    "producers",
    "`AsyncProducer` stores messages in the order of the calls, in each queue",
)
@pytest.mark.parametrize("is_local", [True, False])
def test_every_way_to_send_stores_in_the_order_of_the_calls(
    node: LocalNode, *, is_local: bool
) -> None:
    node.calls.shares_memory = is_local

    async def send() -> None:
        async with make(node) as producer:
            tasks = [
                asyncio.create_task(producer.send("T", b"%d" % number, sharding_key=key))
                for number in range(300)
                for key in ("a", "b")
            ]
            for _ in range(3):
                await asyncio.sleep(0)
            assert {(one.queue_id, one.queue_offset) for one in await asyncio.gather(*tasks)}
            for number in range(300, 400):
                for key in ("a", "b"):
                    body = b"%d" % number
                    if number % 3 == 0:
                        await producer.send_oneway("T", body, sharding_key=key)
                    elif number % 3 == 1:
                        await producer.send_async("T", body, sharding_key=key)
                    else:
                        await producer.send("T", body, queue_selector=partial(choose, key))
            results = await producer.send_many(
                "T", bodies=[b"%d" % number for number in range(400, 2000)], sharding_key="a"
            )
            assert len(results) == 1600
            await producer.flush()
            assert producer.one_way_lost == 0

    asyncio.run(send())
    numbers = [b"%d" % number for number in range(2000)]
    assert sorted(bodies(node)) == sorted([numbers, numbers[:400]])


def choose(key: str, queues: int, _message: Message) -> int:
    return ord(key) % queues  # Java's hash code of a text of one character


@pytest.mark.proves(
    "producers",
    "A shard that does not answer blocks neither the loop of an `AsyncProducer` nor its sends to "
    "other queues",
)
def test_a_queue_that_takes_nothing_blocks_neither_the_loop_nor_other_queues(
    node: LocalNode,
) -> None:
    """All this is done while the sends to that queue wait, which they do for an hour."""

    async def beat(beats: list[int]) -> None:
        while True:
            await asyncio.sleep(0.001)
            beats.append(len(beats))

    async def send() -> None:
        beats: list[int] = []
        producer = make(node, timeout_s=3600.0)
        await producer.open()
        await producer.send("Dead", b"first")
        node.stall("Dead", 0)
        heart = asyncio.create_task(beat(beats))
        dead = [asyncio.create_task(producer.send("Dead", LARGE)) for _ in range(20)]
        for number in range(500):
            sent = await producer.send("T", b"%d" % number, queue_id=1)
            assert sent.queue_offset == number
        before = len(beats)
        await until(lambda: len(beats) > before + 100, "a send waits on the loop")
        assert not any(task.done() for task in dead)
        heart.cancel()
        shard = node.shard("Dead", 0)
        await until(lambda: shard.drain() >= 0 and all(task.done() for task in dead))
        assert [(await task).queue_offset for task in dead] == [*range(1, 21)]
        await producer.close()

    asyncio.run(send())


def test_sends_to_a_queue_that_takes_nothing_end_after_their_time(node: LocalNode) -> None:
    async def send() -> None:
        producer = make(node, timeout_s=0.5)
        await producer.open()
        await producer.send("Dead", b"first", timeout_s=patience(60))
        node.stall("Dead", 0)
        dead = [asyncio.create_task(producer.send("Dead", LARGE)) for _ in range(20)]
        ended = await asyncio.gather(*dead, return_exceptions=True)
        assert {type(error) for error in ended} == {ShardUnavailableError}
        with pytest.raises(ShardUnavailableError):
            await producer.close()
        with pytest.raises(StoreError, match="closed"):
            await producer.send_async("T", b"x", queue_id=1)

    asyncio.run(send())


def test_a_cancelled_send_keeps_its_turn_until_its_thread_has_ended(node: LocalNode) -> None:
    async def send() -> None:
        producer = make(node, timeout_s=patience(60))
        await producer.open()
        await producer.send("Dead", b"first")
        node.stall("Dead", 0)
        shard, count = node.shard("Dead", 0), 0
        with suppress(TimeoutError):
            while True:  # until the ring is full
                await asyncio.wait_for(producer.send_async("Dead", LARGE), 0.5)
                count += 1
        for _ in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send("Dead", b"given up before its turn"), 0.01)
        assert sum(one.name.startswith("send_") for one in threading.enumerate()) <= 3
        last = asyncio.create_task(producer.send("Dead", b"last"))
        while not last.done():
            shard.drain()
            await asyncio.sleep(0.01)
        assert (await last).queue_offset == 1 + count + 1, "the cancelled send that had begun"
        await producer.close()

    asyncio.run(send())
    assert bodies(node, "Dead")[0][-2:] == [LARGE, b"last"]


def test_a_producer_that_is_not_open_says_how_to_open_it(node: LocalNode) -> None:
    async def send() -> None:
        with pytest.raises(ConfigError, match=r"async with rr\.AsyncProducer"):
            await make(node).send("T", b"x")

    asyncio.run(send())


def test_a_producer_that_is_closed_stays_so_and_every_call_says_it(node: LocalNode) -> None:
    async def send() -> None:
        async with make(node) as producer:
            await producer.send_oneway("T", b"x")
            await asyncio.gather(producer.close(), producer.close())
            await producer.close()
            for call in (
                producer.open,
                producer.flush,
                partial(producer.send, "T", b"x"),
                partial(producer.send, "new", b"x"),
                partial(producer.send_async, "T", b"x", delay=5),
                partial(producer.send_many, "T", bodies=[b"x"]),
                partial(producer.send_many_oneway, "T", bodies=[b"x"]),
                partial(producer.recall, "x"),
            ):
                with pytest.raises(StoreError, match="the producer is closed"):
                    await call()
            with pytest.raises(StoreError, match="the producer is closed"):
                producer.begin()
            assert producer.one_way_lost == 0

    asyncio.run(send())
    assert sorted(bodies(node)) == [[], [b"x"]]


def test_sends_that_wait_for_their_turn_are_told_of_the_close(node: LocalNode) -> None:
    async def send() -> None:
        producer = make(node, timeout_s=0.5)
        await producer.open()
        await producer.send("Dead", b"the shard knows the ring by now", timeout_s=patience(60))
        node.stall("Dead", 0)
        sends = [asyncio.create_task(producer.send("Dead", LARGE)) for _ in range(20)]
        await asyncio.sleep(0.1)  # until the ring is full
        with pytest.raises(ShardUnavailableError):
            await producer.close()
        ended = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(error) for error in ended} == {ShardUnavailableError, StoreError}

    asyncio.run(send())


def test_tasks_that_open_a_producer_at_once_share_one(node: LocalNode) -> None:
    made: list[NodeProducer] = []

    def make_slowly() -> NodeProducer:
        time.sleep(0.2)
        made.append(NodeProducer(node))
        return made[-1]

    async def send() -> None:
        producer = NodeAsyncProducer(make_slowly)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.open(), 0.05)
        await asyncio.gather(producer.open(), producer.open())
        await producer.send("T", b"x")
        await producer.close()

    asyncio.run(send())
    assert len(made) == 1


def test_a_wrong_option_is_refused_and_stores_nothing(node: LocalNode) -> None:
    async def send() -> None:
        async with make(node) as producer:
            for _ in range(2):  # the first one to a topic, and a later one
                with pytest.raises(ConfigError, match="did you mean tags="):
                    await producer.send("T", b"x", tag="a")  # type: ignore[call-arg]
                with pytest.raises(ConfigError, match="queues 0 to 1, not 2"):
                    await producer.send("T", b"x", queue_id=2)
                with pytest.raises(ConfigError, match="'memory' or 'disk'"):
                    await producer.send("T", b"x", ack="all")  # type: ignore[arg-type]
                wrong_times: list[Any] = [0, -1, "1"]
                for wrong in wrong_times:
                    with pytest.raises(ConfigError, match="give seconds, more than 0"):
                        await producer.send("T", b"x", queue_id=0, timeout_s=wrong)
                await producer.send("T", b"x", queue_id=0)

    asyncio.run(send())
    assert bodies(node) == [[b"x"] * 2, []]


@pytest.mark.proves("producers", "A transaction is committed or rolled back by `async with`")
def test_tasks_commit_and_delay_and_recall() -> None:
    def unknown(_: StoredMessage) -> Any:
        return "unknown"

    async def fail(producer: NodeAsyncProducer) -> None:
        async with producer.begin() as transaction:
            await producer.send("T", b"rolled back", transaction=transaction)
            _ = 1 / 0

    async def send(broker: Broker) -> None:
        async with broker.async_producer(group="orders", check=unknown) as producer:
            async with producer.begin() as transaction:
                await producer.send("T", b"committed", transaction=transaction)
                assert broker.stored("T") == []
            with pytest.raises(ZeroDivisionError):
                await fail(producer)
            later = await producer.send("T", b"later", delay=5)
            never = await producer.send("T", b"never", delay=5)
            assert never.recall_handle is not None
            assert await producer.recall(never.recall_handle)
            broker.clock.advance(seconds=10)
            assert later.recall_handle is not None

    with Broker() as broker:
        broker.topics.ensure("T", 1)
        asyncio.run(send(broker))
        assert [one.body for one in broker.stored("T")] == [b"committed", b"later"]

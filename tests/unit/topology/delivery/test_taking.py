"""Lists and Arrow batches from a stream."""

from __future__ import annotations

import asyncio
from typing import Any

import faust
import pyarrow as pa
import pytest
from support.harness.patience import patience, until
from support.nodes.apps import committed, consume, numbers, running
from support.nodes.ladder import Ladder
from support.nodes.local_node import LocalNode

from rocketray.errors import BatchError, ConfigError
from rocketray.topology.app.app import App
from rocketray.topology.faust import fetcher
from rocketray.topology.values.shared_batch import ARROW_COLUMNS


class Order(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    order_id: str
    amount: float


@pytest.mark.proves("faust", "`stream.take()`: differs")
def test_take_gives_full_lists_and_what_is_left_in_time(node: LocalNode) -> None:
    sizes: list[int] = []
    seen: list[bytes] = []

    async def handler(stream: Any) -> None:
        async for values in stream.take(50, within=0.05):
            sizes.append(len(values))
            seen.extend(values)

    consume(node, handler, lambda: len(seen) == 220, bodies=numbers(220))
    assert sizes == [50, 50, 50, 50, 20]
    assert seen == numbers(220)
    assert committed(node, "app-reader", "T") == 220


@pytest.mark.proves("faust", "`stream.take_events()`: works")
def test_take_spans_queues_and_finishes_them_all(node: LocalNode) -> None:
    seen: list[bytes] = []

    async def handler(stream: Any) -> None:
        async for values in stream.take(1000, within=0.2):
            seen.extend(values)

    consume(node, handler, lambda: len(seen) == 5000, bodies=numbers(5000), queues=4)
    assert sorted(seen, key=int) == numbers(5000)
    assert committed(node, "app-reader", "T") == 5000


@pytest.mark.proves(
    "delivery",
    "After a failure, the messages of a list are redelivered one by one",
)
def test_the_messages_of_a_list_whose_handler_raised_come_one_by_one(node: LocalNode) -> None:
    lists: list[list[bytes]] = []

    async def handler(stream: Any) -> None:
        async for values in stream.take(5, within=0.05):
            lists.append(list(values))
            if len(lists) == 2:
                raise ValueError("on purpose")

    consume(node, handler, lambda: len(lists) == 8, bodies=numbers(15))
    alone = [[body] for body in numbers(5, 5)]
    assert lists == [numbers(5), numbers(5, 5), *alone, numbers(5, 10)]
    assert committed(node, "app-reader", "T") == 15


@pytest.mark.proves("delivery", "Only the failed message of a list is sent to the retry topic")
def test_the_message_of_a_list_that_fails_is_sent_back_and_not_its_neighbours(
    node: LocalNode,
) -> None:
    done: list[bytes] = []

    async def handler(stream: Any) -> None:
        async for values in stream.take(5, within=0.05):
            if b"7" in values:
                raise ValueError("on purpose")
            done.extend(values)

    consume(node, handler, lambda: len(done) == 14, bodies=numbers(15))
    assert done == [body for body in numbers(15) if body != b"7"]
    assert [one.body for one in Ladder(node).waiting()] == [b"7"]
    assert committed(node, "app-reader", "T") == 15


@pytest.mark.proves("delivery", "`BatchError` names the failed message of a list")
def test_a_handler_may_say_which_message_of_its_list_failed(node: LocalNode) -> None:
    lists: list[list[int]] = []

    async def handler(stream: Any) -> None:
        async for values in stream.filter(lambda value: value != 1).take(5, within=0.05):
            lists.append(list(values))
            if 7 in values:
                raise BatchError(values.index(7)) from ValueError("on purpose")

    consume(node, handler, lambda: len(lists) == 3, bodies=numbers(11), value_serializer="json")
    assert lists == [[0, 2, 3, 4, 5], [6, 7, 8, 9, 10], [8, 9, 10]]
    assert [one.body for one in Ladder(node).waiting()] == [b"7"]
    assert committed(node, "app-reader", "T") == 11


def test_a_message_of_a_list_that_does_not_decode_is_sent_back(node: LocalNode) -> None:
    lists: list[list[int]] = []

    async def handler(stream: Any) -> None:
        async for values in stream.take(3, within=None):
            lists.append(list(values))  # noqa: PERF401

    bodies = [b"{", b"1", b"2", b"{", b"3", b"4", b"5"]
    consume(node, handler, lambda: len(lists) == 2, bodies=bodies, value_serializer="json")
    assert lists == [[1, 2], [3, 4, 5]]  # what cannot be decoded ends a list, full or not
    assert [one.body for one in Ladder(node).waiting()] == [b"{", b"{"]
    assert committed(node, "app-reader", "T") == 7


def test_take_without_a_limit_waits_for_a_full_list(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_serializer="raw", queues=1)
        lists: list[list[bytes]] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for values in stream.take(3, within=None):
                lists.append(list(values))  # noqa: PERF401

        async with running(app):
            for body in numbers(2):
                await topic.send(value=body)
            await asyncio.sleep(0.1)
            assert lists == []
            await topic.send(value=b"2")
            await until(lambda: lists)
        assert lists == [numbers(3)]

    asyncio.run(scenario())


def test_filter_and_take(node: LocalNode) -> None:
    lists: list[list[int]] = []

    async def handler(stream: Any) -> None:
        async for values in stream.filter(lambda value: value % 2).take(10, within=0.05):
            lists.append(list(values))  # noqa: PERF401

    consume(node, handler, lambda: len(lists) == 2, bodies=numbers(40), value_serializer="json")
    assert lists == [list(range(1, 20, 2)), list(range(21, 40, 2))]
    assert committed(node, "app-reader", "T") == 40


@pytest.mark.proves("faust", "`stream.noack_take()`: works")
def test_noack_take(node: LocalNode) -> None:
    lists: list[list[int]] = []

    async def handler(stream: Any) -> None:
        async for events in stream.noack_take(5, within=0.05):
            lists.append([event.message.offset for event in events])
            if len(lists) == 1:
                raise ValueError("on purpose")
            for event in events:
                event.ack()

    consume(node, handler, lambda: len(lists) == 7, bodies=numbers(10))
    assert lists == [[0, 1, 2, 3, 4], [0], [1], [2], [3], [4], [5, 6, 7, 8, 9]]
    assert committed(node, "app-reader", "T") == 10


def test_noack_take_of_a_channel_leaves_the_streams_acknowledgement_to_faust() -> None:
    stream = App("reader").channel().stream()
    stream.noack_take(5, within=0.05)
    assert stream.enable_acks


def test_batches_are_arrow(node: LocalNode) -> None:
    batches: list[pa.RecordBatch] = []

    async def handler(stream: Any) -> None:
        async for batch in stream.batches():
            batches.append(batch)
            if len(batches) == 1:
                raise ValueError("on purpose")

    consume(
        node,
        handler,
        lambda: sum(batch.num_rows for batch in batches[1:]) == 3000,
        bodies=numbers(3000),
        queues=2,
    )
    table = pa.Table.from_batches(batches[1:])
    assert table.column_names == list(ARROW_COLUMNS)
    assert sorted(table["body"].to_pylist(), key=int) == numbers(3000)
    rows = batches[0].num_rows
    again = pa.Table.from_batches(batches[1 : rows + 1]).combine_chunks()
    assert [batch.num_rows for batch in batches[1 : rows + 1]] == [1] * rows
    assert again.equals(pa.Table.from_batches(batches[:1]))  # what failed came again
    assert committed(node, "app-reader", "T") == 3000


def test_batches_of_some_columns(node: LocalNode) -> None:
    batches: list[pa.RecordBatch] = []

    async def handler(stream: Any) -> None:
        async for batch in stream.batches(["body", "tags"]):
            batches.append(batch)  # noqa: PERF401

    consume(node, handler, lambda: batches, bodies=numbers(3))
    assert batches[0].to_pydict() == {"body": numbers(3), "tags": [None] * 3}


def test_batches_and_filter_exclude_each_other() -> None:
    app = App("app")
    stream = app.topic("T").stream().filter(bool)
    with pytest.raises(ConfigError, match=r"filter the batch itself"):
        stream.batches()
    with pytest.raises(ConfigError, match=r"not over a topic"):
        app.channel().stream().batches()


def test_a_stop_does_not_wait_for_a_list_that_is_not_full(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "DRAIN_GRACE_S", 3600.0)

    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_serializer="raw", queues=1)
        lists: list[Any] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for values in stream.take(100, within=None):
                lists.append(values)  # noqa: PERF401

        await app.start()
        await topic.send(value=b"1")
        await until(lambda: reader.statistics().received)
        async with asyncio.timeout(patience(30)):
            await app.stop()
        assert lists == []
        assert committed(node, "app-reader", "T") == 0

    asyncio.run(scenario())

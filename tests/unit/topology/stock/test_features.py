"""Stock Faust apps: what streams, agents, tables and background work offer, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import faust
import pytest
from support.harness.durable import CommitWatch, summed_input
from support.harness.patience import patience, until
from support.nodes.apps import collecting, committed, numbers, put, running
from support.nodes.local_node import LocalNode
from support.nodes.stock_apps import stock_app

from rocketray.errors import InvalidMessageError


class Order(faust.Record, serializer="json"):  # type: ignore[misc,call-arg]  # Faust's types
    number: int
    user: str
    amount: float = 0.0


@pytest.mark.proves(
    "stock-faust",
    "`items`; changes of a table are on disk before the offsets behind them are committed",
)
def test_changes_are_on_disk_before_the_offsets_behind_them_are_committed(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = CommitWatch(node, monkeypatch, summed_input(node, "T"), "stock-totals-changelog")

    async def scenario() -> None:
        app = stock_app(node, broker_commit_interval=0.02)
        topic = app.topic("T", key_type=str, value_type=int)
        totals = app.Table("totals", default=int, key_type=str, value_type=int)

        async def count(stream: Any) -> None:
            async for key, value in stream.items():
                totals[key] += value

        app.agent(topic, name="count")(count)
        async with running(app):
            for number in range(20):
                await topic.send(key="k", value=number)
                await until(lambda: committed(node, "stock", "T") > number)  # noqa: B023  # awaited

    asyncio.run(scenario())
    assert watch.seen
    assert not watch.endangered


@pytest.mark.proves("stock-faust", "`Table` with `group_by` is recovered from its changelog")
def test_tables_are_recovered_from_their_changelogs(node: LocalNode) -> None:
    def build() -> tuple[Any, Any, list[Order], Any]:
        app = stock_app(node)
        orders = app.topic("orders", value_type=Order, key_type=str)
        totals = app.Table("totals", default=float, key_type=str, value_type=float)
        seen: list[Order] = []

        async def count(stream: Any) -> None:
            async for order in stream.group_by(Order.user):
                if order.amount < 0:
                    del totals[order.user]
                else:
                    totals[order.user] += order.amount
                seen.append(order)

        app.agent(orders, name="count")(count)
        return app, totals, seen, orders

    async def first() -> dict[str, float]:
        app, totals, seen, orders = build()
        async with running(app):
            for number in range(60):
                await orders.send(key="x", value=Order(number, f"u{number % 7}", 1.0))
            await orders.send(key="x", value=Order(60, "u0", -1.0))
            await until(lambda: len(seen) == 61)
            return dict(totals.items())

    async def second() -> dict[str, float]:
        app, totals, _, _ = build()
        async with running(app):
            await until(app.tables.recovery.completed.is_set)
            return dict(totals.items())

    before = asyncio.run(first())
    assert sum(before.values()) == 51
    assert "u0" not in before
    assert asyncio.run(second()) == before
    changelog = node.topics.get("stock-totals-changelog")
    assert changelog.internal
    assert changelog.retention.compacts


@pytest.mark.proves("stock-faust", "`take`, `events`")
def test_take_and_events(node: LocalNode) -> None:
    batches: list[list[bytes]] = []
    places: list[tuple[int, int, bytes]] = []

    async def scenario() -> None:
        app = stock_app(node)
        source = app.topic("a", value_serializer="raw")

        async def take(stream: Any) -> None:
            async for batch in stream.take(50, within=0.1):
                batches.append(batch)  # noqa: PERF401  # one by one, as users write it

        async def events(stream: Any) -> None:
            async for event in stream.events():
                message = event.message
                places.append((message.partition, message.offset, event.key))

        app.agent(source)(take)
        app.agent(source)(events)
        async with running(app):
            for number in range(120):
                await source.send(key=b"k%d" % (number % 9), value=b"%d" % number)
            await until(lambda: len(places) == sum(map(len, batches)) == 120)

    asyncio.run(scenario())
    assert max(map(len, batches)) == 50
    for queue in (0, 1):
        offsets = [offset for partition, offset, _ in places if partition == queue]
        assert offsets == list(range(len(offsets)))
    keys = {queue: {key for partition, _, key in places if partition == queue} for queue in (0, 1)}
    assert keys[0].isdisjoint(keys[1])
    assert committed(node, "stock", "a") == 120


@pytest.mark.proves("stock-faust", "`through`")
def test_through_stores_each_value_in_another_topic(node: LocalNode) -> None:
    passed: list[bytes] = []

    async def scenario() -> None:
        app = stock_app(node)
        source, repeated = (app.topic(name, value_serializer="raw") for name in ("a.b", "c"))

        async def through(stream: Any) -> None:
            async for value in stream.through(repeated):
                passed.append(value)  # noqa: PERF401  # one by one, as users write it

        app.agent(source)(through)
        async with running(app):
            for body in numbers(50):
                await source.send(value=body)
            await until(lambda: len(passed) == 50)

    asyncio.run(scenario())
    assert sorted(passed) == sorted(numbers(50))
    assert committed(node, "stock", "a%2Eb") == committed(node, "stock", "c") == 50


@pytest.mark.proves("stock-faust", "`noack`, and an app stops with unacknowledged events")
def test_unacknowledged_events_neither_are_committed_nor_keep_an_app_from_stopping(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketray.topology.stock.stock_consumer.STOP_QUIET_S", 0.2)
    held: list[Any] = []

    async def scenario() -> None:
        app = stock_app(node)

        async def manual(stream: Any) -> None:
            async for event in stream.noack().events():
                held.append(event)
                if len(held) <= 5:
                    event.ack()

        app.agent(app.topic("T", value_serializer="raw"), name="manual")(manual)
        async with running(app):
            await until(lambda: len(held) == 10)

    node.topics.ensure("T", 1)
    put(node, "T", numbers(10))
    asyncio.run(scenario())
    assert committed(node, "stock", "T") == 5


@pytest.mark.proves("stock-faust", "`ask`, `cast`, `send`, `join`, sinks")
def test_ask_cast_join_and_sinks(node: LocalNode) -> None:
    sunk: list[int] = []
    cast: list[int] = []
    out: list[int] = []

    async def scenario() -> None:
        app = stock_app(node, reply_create_topic=True, stream_buffer_maxsize=16)
        results = app.topic("results", value_type=int)

        async def double(stream: Any) -> Any:
            async for value in stream:
                yield value * 2

        one_way = app.agent(value_type=int, name="one-way")(collecting(cast))
        app.agent(results, name="out")(collecting(out))
        ask = app.agent(value_type=int, sink=[sunk.append, results], name="double")(double)
        async with running(app):
            assert await asyncio.wait_for(ask.ask(21), patience(20)) == 42
            assert await ask.join([1, 2, 3]) == [2, 4, 6]
            more = [await asyncio.wait_for(ask.ask(value), patience(20)) for value in range(40)]
            assert more == list(range(0, 80, 2)), "a full queue of replies does not matter"
            await one_way.cast(5)
            await one_way.send(value=6)
            await until(lambda: len(cast) == 2 and len(out) == 44)

    asyncio.run(scenario())
    assert sorted(cast) == [5, 6]
    assert sorted(sunk) == sorted(out) == sorted([2, 4, 6, 42, *range(0, 80, 2)])


@pytest.mark.proves("stock-faust", "`timer`, `crontab`, `task`")
def test_timers_tasks_and_crontab_run(node: LocalNode) -> None:
    calls: dict[str, int] = {}

    def count(name: str) -> Callable[[], Any]:
        async def call() -> None:
            calls[name] = calls.get(name, 0) + 1

        return call

    async def scenario() -> None:
        app = stock_app(node)
        app.task(count("task"))
        app.timer(0.02)(count("timer"))
        app.timer(0.02, on_leader=True)(count("no leader without its topic"))
        app.crontab("* * * * *")(count("crontab"))
        app.agent(app.topic("T"), name="idle")(collecting([]))
        async with running(app):
            await until(lambda: calls.get("timer", 0) > 2)

    asyncio.run(scenario())
    assert calls["task"] == 1
    assert "no leader without its topic" not in calls


@pytest.mark.proves("stock-faust", "`on_leader=True`")
def test_one_of_two_instances_leads(node: LocalNode) -> None:
    async def scenario() -> None:
        one, other = (stock_app(node, topic_disable_leader=False) for _ in range(2))
        for app in (one, other):
            app.agent(app.topic("T"), name="idle")(collecting([]))
        async with running(one), running(other):
            await until(lambda: len(other.consumer.assignment()) > 0)
            await until(lambda: [one.is_leader(), other.is_leader()].count(True) == 1)

    asyncio.run(scenario())


@pytest.mark.proves("stock-faust", "`concurrency`, `isolated_partitions`, windows")
def test_concurrency_isolated_partitions_and_windows(node: LocalNode) -> None:
    side_by_side: list[int] = []
    isolated: dict[int, set[int]] = {}
    window: dict[str, int] = {}

    async def scenario() -> None:
        app = stock_app(node)
        topic = app.topic("T", value_type=int, key_type=str)
        table = app.Table("windows", default=int).tumbling(
            timedelta(hours=1), expires=timedelta(hours=2)
        )

        async def concurrent(stream: Any) -> None:
            async for value in stream:
                await asyncio.sleep(0.01)
                side_by_side.append(value)

        async def alone(stream: Any) -> None:
            async for event in stream.events():
                isolated.setdefault(id(stream), set()).add(event.message.partition)

        async def windowed(stream: Any) -> None:
            async for key, _ in stream.items():  # noqa: PERF102  # streams have no keys()
                table[key] += 1
                window[key] = table[key].value()

        app.agent(topic, concurrency=4)(concurrent)
        app.agent(topic, isolated_partitions=True)(alone)
        app.agent(topic)(windowed)
        async with running(app):
            for number in range(60):
                await topic.send(key=f"k{number % 3}", value=number)
            await until(lambda: len(side_by_side) == sum(window.values()) == 60)
            await until(lambda: len(isolated) == 2)

    asyncio.run(scenario())
    assert sorted(side_by_side) == list(range(60))
    assert all(len(queues) == 1 for queues in isolated.values())
    assert window == {"k0": 20, "k1": 20, "k2": 20}


@pytest.mark.proves(
    "stock-faust",
    "A handler that raises loses its message, as does a message that cannot be decoded",
)
def test_a_handler_that_raises_loses_its_message_as_in_faust(node: LocalNode) -> None:
    seen: list[bytes] = []

    async def scenario() -> None:
        app = stock_app(node)

        async def fail(stream: Any) -> None:
            async for value in stream:
                if value == b"7":
                    raise ValueError(value)
                seen.append(value)

        app.agent(app.topic("T", value_serializer="raw"), name="fail")(fail)
        async with running(app):
            await until(lambda: len(seen) == 19)

    node.topics.ensure("T", 1)
    put(node, "T", numbers(20))
    asyncio.run(scenario())
    assert committed(node, "stock", "T") == 20


@pytest.mark.proves("stock-faust", "`GlobalTable` is complete in every instance")
def test_global_tables_are_whole_in_every_instance(node: LocalNode) -> None:
    async def scenario() -> None:
        apps = [stock_app(node) for _ in range(2)]
        # Faust gathers 1000 changes before it takes them over, unless it is told otherwise.
        options = {"default": int, "partitions": 2, "recovery_buffer_size": 1}
        tables = [app.GlobalTable("prices", **options) for app in apps]
        topics = [app.topic("T", key_type=str, value_type=int) for app in apps]
        for app, table, topic in zip(apps, tables, topics, strict=True):

            async def keep(stream: Any, table: Any = table) -> None:
                async for key, value in stream.items():
                    table[key] = value

            app.agent(topic, name="keep")(keep)
        async with running(apps[0]), running(apps[1]):
            await until(lambda: all(len(app.consumer.assignment()) >= 2 for app in apps))
            for number in range(10):
                await topics[0].send(key=f"k{number}", value=number)
            await until(lambda: [len(table) for table in tables] == [10, 10])

    asyncio.run(scenario())


@pytest.mark.proves("stock-faust", "An empty value in a changelog is refused")
def test_a_changelog_refuses_a_value_that_would_count_as_a_deletion(node: LocalNode) -> None:
    async def scenario() -> None:
        app = stock_app(node)
        await app.transport.create_topic("changes", 1, is_changelog=True)
        with pytest.raises(InvalidMessageError, match="delete the key"):
            await app.producer.send("changes", b"k", b"", 0, None, None)
        await app.producer.on_stop()

    asyncio.run(scenario())

"""Tables as Faust's user guide describes them, over changelogs of ours."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import date
from typing import Any
from uuid import UUID

import faust
import pytest
from support.harness.durable import CommitWatch, summed_input
from support.harness.patience import until
from support.nodes.apps import collecting, committed, put, running
from support.nodes.changelogs import changes_in
from support.nodes.ladder import stored_in
from support.nodes.local_node import LocalNode

from rocketray.errors import InvalidMessageError
from rocketray.store.retention import RetentionPolicy
from rocketray.topology.app.app import App
from rocketray.topology.values import failure_rules


class Order(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    user: str
    amount: int


def counting(node: LocalNode, queues: int = 2, **table: Any) -> tuple[App, Any, Any, list[Any]]:
    """An app that counts amounts by key in a table; the app, its topic, the table, what it saw."""
    app = App("app", connection=node, broker_commit_interval=0.1)
    topic = app.topic("T", key_type=str, value_type=int, queues=queues)
    totals = app.Table("totals", default=int, **table)
    seen: list[Any] = []

    @app.agent(topic, name="reader")
    async def reader(stream: Any) -> None:
        async for key, value in stream.items():
            totals[key] += value
            seen.append((key, value))

    return app, topic, totals, seen


async def send(topic: Any, count: int, keys: int = 7) -> Counter[str]:
    """Send the numbers below *count* under *keys* keys; the sums by key."""
    sums: Counter[str] = Counter()
    for number in range(count):
        key = f"k{number % keys}"
        await topic.send(key=key, value=number)
        sums[key] += number
    return sums


@pytest.mark.proves("faust", "`app.Table()`: works")
def test_a_table_is_there_again_after_a_restart(node: LocalNode) -> None:
    async def first_life() -> Counter[str]:
        app, topic, totals, seen = counting(node)
        async with running(app):
            sums = await send(topic, 200)
            await until(lambda: len(seen) == 200)
            assert dict(totals.items()) == sums
        assert committed(node, "app-reader", "T") == 200
        return sums

    async def second_life(sums: Counter[str]) -> None:
        app, topic, totals, seen = counting(node)
        async with running(app):
            assert dict(totals.items()) == sums
            sums += await send(topic, 50)
            await until(lambda: len(seen) == 50)
            assert dict(totals.items()) == sums

    asyncio.run(second_life(asyncio.run(first_life())))


def test_only_the_last_change_of_a_key_is_written_for_each_commit(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic, _, seen = counting(node, queues=1)
        app.conf.broker_commit_interval = 3600.0
        async with running(app):
            await send(topic, 500, keys=1)
            await until(lambda: len(seen) == 500)
        assert len(changes_in(node.data, "app-totals-changelog", 0)) == 1

    asyncio.run(scenario())


@pytest.mark.proves("faust", "A table keeps a key that was set to its default after it was deleted")
def test_deletions_and_defaults_survive(node: LocalNode) -> None:
    async def life(values: list[int]) -> dict[str, int]:
        app = App("app", connection=node, broker_commit_interval=0.05)
        topic = app.topic("T", key_type=str, value_type=int, queues=1)
        table = app.Table("latest", default=lambda: -1)
        seen: list[int] = []

        @app.agent(topic, name="reader")
        async def reader(stream: Any) -> None:
            async for key, value in stream.items():
                if value < 0:
                    table.pop(key)
                else:
                    table[key] = value
                seen.append(value)
                await asyncio.sleep(0.06)  # so that a commit lies between the changes

        async with running(app):
            for number, value in enumerate(values):
                await topic.send(key="ab"[number % 2], value=value)
            await until(lambda: len(seen) == len(values))
            assert table["never"] == -1
            return dict(table.items())

    assert asyncio.run(life([5, 6, -1, 7])) == {"b": 7}
    assert asyncio.run(life([])) == {"b": 7}
    assert asyncio.run(life([0])) == {"a": 0, "b": 7}  # 0 is a value
    assert asyncio.run(life([])) == {"a": 0, "b": 7}


def test_the_changelog_has_as_many_queues_as_the_source(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic, _, seen = counting(node, queues=3)
        async with running(app):
            await send(topic, 30)
            await until(lambda: len(seen) == 30)
        changelog = node.topics.get("app-totals-changelog")
        assert changelog.queues == 3
        assert changelog.internal
        assert changelog.retention == RetentionPolicy(compacts=True)

    asyncio.run(scenario())


def test_a_source_with_another_number_of_queues_is_told(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic, totals, seen = counting(node, queues=2)
        other = app.topic("U", key_type=str, value_type=int, queues=3)
        errors: list[Exception] = []

        @app.agent(other)
        async def confused(stream: Any) -> None:
            async for event in stream.events():
                try:
                    totals[event.key] += 1
                except faust.exceptions.PartitionsMismatch as error:
                    errors.append(error)

        async with running(app):
            await send(topic, 1)
            await until(lambda: seen)
            await other.send(key="k", value=1)
            await until(lambda: errors)
        assert "table totals has 2 queues and topic U has 3" in str(errors[0])

    asyncio.run(scenario())


@pytest.mark.proves("faust", "Changes outside of a handler: refused")
def test_a_table_cannot_be_changed_without_a_message_in_hand(node: LocalNode) -> None:
    async def scenario() -> None:
        app, *_, totals, _ = counting(node)
        async with running(app):
            with pytest.raises(TypeError, match="a handler that is processing a message"):
                totals["k"] = 1
            assert "k" not in totals

    asyncio.run(scenario())


@pytest.mark.proves("faust", 'Empty values (`b""`): refused')
@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (object(), InvalidMessageError, "JSON cannot serialize"),
        (b"", Exception, "an empty body deletes its key"),
    ],
)
def test_a_value_that_cannot_be_kept_is_told_where_it_is_set(
    node: LocalNode, value: Any, error: type[Exception], text: str
) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_type=int, queues=1)
        table = app.Table("t", value_type=bytes if value == b"" else None)
        errors: list[Exception] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for _ in stream:
                try:
                    table["k"] = value
                except Exception as raised:  # noqa: BLE001  # the test looks at it
                    errors.append(raised)

        async with running(app):
            await topic.send(value=1)
            await until(lambda: errors)
            assert "k" not in table
        assert isinstance(errors[0], error)
        assert text in str(errors[0])

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ({}, ("a", 1), {"deep": [1, 2]}),
        ({"key_type": int, "value_type": float}, 17, 0.5),
        ({"key_type": bytes, "value_type": bytes}, b"\xff\x01 raw", b"\x00\xff"),
        ({"key_type": str, "value_type": Order}, "ö 1", Order(user="u", amount=3)),
        ({"default": set}, "k", {1, 2}),
        ({"default": tuple}, "k", (1, 2)),
        ({"key_type": UUID, "value_type": date}, UUID(int=7), date(2013, 1, 2)),
        ({"key_type": str, "value_type": dict}, "k", {"a": [1]}),
    ],
)
def test_keys_and_values_of_many_types(
    node: LocalNode, options: dict[str, Any], key: Any, value: Any
) -> None:
    async def life(*, writes: bool) -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_type=int, queues=1)
        table = app.Table("t", **options)

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for _ in stream:
                table[key] = value

        async with running(app):
            if writes:
                await topic.send(value=1)
                await until(lambda: len(table))
            assert dict(table.items()) == {key: value}

    asyncio.run(life(writes=True))
    asyncio.run(life(writes=False))


def test_grouped_counts_are_right_and_stay_so(node: LocalNode) -> None:
    async def life(first: int, count: int) -> dict[str, int]:
        app = App("app", connection=node)
        topic = app.topic("Orders", value_type=Order, queues=3)
        totals = app.Table("totals", default=int)
        seen: list[int] = []

        @app.agent(topic, name="reader")
        async def reader(stream: Any) -> None:
            async for order in stream.group_by(Order.user):
                totals[order.user] += order.amount
                seen.append(order.amount)

        async with running(app):
            for number in range(first, first + count):
                await topic.send(value=Order(user=f"u{number % 5}", amount=number))
            await until(lambda: len(seen) >= count)
            assert sorted(seen) == [*range(first, first + count)]
            return dict(totals.items())

    asyncio.run(life(0, 100))
    assert asyncio.run(life(100, 100)) == {f"u{k}": sum(range(k, 200, 5)) for k in range(5)}
    assert node.topics.get("reader-Orders-user-repartition").queues == 3
    assert node.topics.get("app-totals-changelog").queues == 3


def test_a_list_of_values_is_of_one_queue_so_its_changes_are_too(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_type=int, queues=3)
        counts = app.Table("counts", default=int)
        seen: list[int] = []

        @app.agent(topic, name="reader")
        async def reader(stream: Any) -> None:
            async for values in stream.take(100, within=0.2):
                for value in values:
                    counts[f"of queue {value % 3}"] += 1
                seen.extend(values)

        node.topics.ensure("T", 3)
        async with running(app):
            for number in range(90):
                await topic.send(value=number, partition=number % 3)
            await until(lambda: len(seen) == 90)
            assert counts.data.queue_of == {f"of queue {queue}": queue for queue in range(3)}

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`on_recover`, `on_changelog_event`: works")
def test_callbacks_of_a_table(node: LocalNode) -> None:
    recovered: list[int] = []
    changes: list[Any] = []

    async def life() -> None:
        async def on_change(event: Any) -> None:
            changes.append((event.key, event.value))

        app, topic, totals, seen = counting(node, queues=1, on_changelog_event=on_change)

        async def on_recover() -> None:
            recovered.append(len(totals))

        totals.on_recover(on_recover)
        async with running(app):
            await send(topic, 3, keys=3)
            await until(lambda: len(seen) == 3)

    asyncio.run(life())
    assert (recovered, changes) == ([0], [])
    asyncio.run(life())
    assert recovered == [0, 3]
    assert sorted(changes) == [("k0", 0), ("k1", 1), ("k2", 2)]


def test_a_handler_that_raises_keeps_what_it_did_before(node: LocalNode) -> None:
    """A table is at least once: what a handler did before it raised stays, and is done again."""

    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_type=int, queues=1)
        table = app.Table("t", default=int)
        attempts: list[int] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream:
                table["before"] += value
                attempts.append(value)
                if len(attempts) == 1:
                    raise ValueError("on purpose")
                table["behind"] += value

        async with running(app):
            await topic.send(value=1)
            await until(lambda: len(attempts) == 2)
            await until(lambda: "behind" in table)
            assert dict(table.items()) == {"before": 2, "behind": 1}

    asyncio.run(scenario())


def test_an_app_with_a_table_says_which_agents_keep_order_and_gives_up_what_does_not_decode(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(failure_rules, "_PAUSE_MAX_S", 0.01)
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        app, topic, totals, _ = counting(node, queues=1)
        events = app.topic("Events", value_serializer="raw")
        app.agent(events, name="loose", ordered=False)(collecting([]))
        app.agent(events, name="all", broadcast=True)(collecting([]))
        app.agent(app.channel(), name="inner")(collecting([]))
        async with running(app):
            await topic.send(key="k", value=1)
            put(node, "T", [b"{broken"], keys=["k"])
            await topic.send(key="k", value=2)
            await until(lambda: totals["k"] == 3)
        [letter] = stored_in(node, "%DLQ%app-reader")
        assert letter.body == b"{broken"

    asyncio.run(scenario())
    [line] = [text for text in caplog.messages if "keep the order of each queue" in text]
    assert line.startswith("app app has tables (totals), so these agents")
    assert line.partition("each queue: ")[2].startswith("reader;")


@pytest.mark.proves(
    "durability",
    "Messages returned for retry and changes of tables are on disk before the offset behind them "
    "is committed",
)
def test_changes_are_on_disk_before_the_offsets_behind_them_are_committed(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = CommitWatch(node, monkeypatch, summed_input(node, "T"), "app-totals-changelog")

    async def scenario() -> None:
        app, topic, _, seen = counting(node)
        async with running(app):
            for round_ in range(1, 6):
                await send(topic, 10)
                await until(lambda: len(seen) == 10 * round_)  # noqa: B023  # awaited here
                await until(lambda: committed(node, "app-reader", "T") == len(seen))

    asyncio.run(scenario())
    assert watch.seen
    assert not watch.endangered, "a power failure would leave the table too low"

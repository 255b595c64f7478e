"""Windowed tables as Faust's user guide describes them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import faust
import pytest
from support.harness.patience import until
from support.nodes.apps import running
from support.nodes.local_node import LocalNode

from rocketray.topology.app.app import App

T0 = 1_700_000_000.0  # begins a window of 10 s
FAR = timedelta(days=10_000)


class Visit(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    at: float


class Windowed:
    """An app whose agent looks at a windowed table while it has each visit in hand."""

    def __init__(self, node: LocalNode, make: Any, look: Any, **table: Any) -> None:
        self.app = App("app", connection=node, broker_commit_interval=0.05)
        self.topic = self.app.topic("Visits", key_type=str, value_type=Visit, queues=1)
        self.plain = self.app.Table("visits", default=int, **table)
        self.table = make(self.plain)
        self.looks: list[Any] = []

        @self.app.agent(self.topic, name="reader")
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                self.table[event.key] += 1
                self.looks.append(look(self.table))

    async def visit(self, *times: float) -> list[Any]:
        """Visit the page "home" at *times*; what the agent saw each time."""
        begin = len(self.looks)
        for at in times:
            await self.topic.send(key="home", value=Visit(at=at))
        await until(lambda: len(self.looks) == begin + len(times))
        return self.looks[begin:]


def by_field(table: Any) -> Any:
    return table.relative_to_field(Visit.at)


@pytest.mark.proves("faust", "`.tumbling()`: works")
def test_a_tumbling_window_counts_for_itself(node: LocalNode) -> None:
    async def scenario() -> None:
        one = Windowed(
            node,
            lambda table: by_field(table.tumbling(10.0, expires=FAR)),
            lambda table: (table["home"].value(), table["home"].now()),
        )
        async with running(one.app):
            looks = await one.visit(T0, T0 + 9, T0 + 10, T0 + 3)
        assert looks == [(1, 1), (2, 2), (1, 1), (3, 1)]

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`.hopping()`: works")
def test_a_hopping_window_counts_in_each_window_that_it_is_in(node: LocalNode) -> None:
    async def scenario() -> None:
        one = Windowed(
            node,
            lambda table: by_field(table.hopping(10.0, 5.0, expires=FAR)),
            lambda wrapper: sorted((at, count) for (_, (at, _)), count in wrapper.table.items()),
        )
        async with running(one.app):
            looks = await one.visit(T0 + 1, T0 + 6)
        assert looks == [[(T0 - 5, 1), (T0, 1)], [(T0 - 5, 1), (T0, 2), (T0 + 5, 1)]]

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`SlidingWindow`: works")
def test_a_sliding_window_reaches_around_each_message(node: LocalNode) -> None:
    async def scenario() -> None:
        window = faust.SlidingWindow(before=10.0, after=5.0, expires=FAR)
        one = Windowed(
            node,
            lambda table: by_field(table.using_window(window)),
            lambda wrapper: sorted((span, count) for (_, span), count in wrapper.table.items()),
        )
        async with running(one.app):
            looks = await one.visit(T0, T0 + 1, T0)
        first, second = (T0 - 10, T0 + 5), (T0 - 9, T0 + 6)
        assert looks == [[(first, 1)], [(first, 1), (second, 1)], [(first, 2), (second, 1)]]

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`relative_to_now`, `_stream`, `_field`: works")
@pytest.mark.parametrize(
    ("relative", "value"),
    [
        (lambda table: table.relative_to_stream(), 2),
        (lambda table: table.relative_to_now(), 2),
        (lambda table: table.relative_to(Visit.at), 1),
        (lambda table: table.relative_to_field(Visit.at), 1),
    ],
)
def test_a_window_is_relative_to_what_the_table_says(
    node: LocalNode, relative: Any, value: int
) -> None:
    async def scenario() -> None:
        one = Windowed(
            node,
            lambda table: relative(table.tumbling(timedelta(days=3650), expires=FAR)),
            lambda table: table["home"].value(),
        )
        async with running(one.app):
            assert (await one.visit(0.0, 900_000_000.0))[-1] == value

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`now()`, `current()`, `value()`, `delta()`: works")
def test_current_and_delta_look_at_the_time_of_the_stream(node: LocalNode) -> None:
    async def scenario() -> None:
        one = Windowed(
            node,
            lambda table: table.tumbling(timedelta(days=3650), expires=FAR).relative_to_stream(),
            lambda table: (table["home"].current(), table["home"].delta(timedelta(days=7300))),
        )
        async with running(one.app):
            assert await one.visit(T0, T0) == [(1, 0), (2, 0)]

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`now()`, `current()`, `value()`, `delta()`: works")
@pytest.mark.parametrize(
    ("relative", "before"),
    [
        (by_field, [0, 1, 1, 2]),
        (lambda table: table.relative_to_now(), [0, 1, 1, 2]),
        (lambda table: table.relative_to(T0 + 20), [0, 1, 2, 2]),
    ],
)
def test_delta_counts_from_the_time_that_the_table_is_relative_to(
    node: LocalNode, relative: Any, before: list[int]
) -> None:
    def look(wrapper: Any) -> Any:
        table = relative(wrapper)
        of_items = [count for _, count in table.items().delta(10.0)]
        return table["home"].delta(10.0), table["home"].delta(timedelta(seconds=10)), *of_items

    async def scenario() -> None:
        one = Windowed(
            node, lambda table: by_field(table.tumbling(10.0, expires=FAR, key_index=True)), look
        )
        async with running(one.app):
            looks = await one.visit(T0 + 9, T0 + 19, T0 + 18, T0 + 29)
        assert looks == [(count, count, count) for count in before]

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`key_index=`: works")
def test_windows_and_their_index_are_there_again_after_a_restart(node: LocalNode) -> None:
    async def life(*times: float) -> Any:
        one = Windowed(
            node,
            lambda table: by_field(table.tumbling(10.0, expires=FAR, key_index=True)),
            lambda table: (sorted(table.keys()), sorted(table.items()), len(table)),
            key_type=str,
        )
        async with running(one.app):
            looks = await one.visit(*times)
            return looks, dict(one.plain.items())

    looks, before = asyncio.run(life(T0, T0 + 20))
    assert looks[-1] == (["home"], [("home", 1)], 1)
    looks, after = asyncio.run(life(T0))
    assert looks == [(["home"], [("home", 2)], 1)]
    assert after == {**before, ("home", (T0, T0 + 9.9)): 2}


@pytest.mark.proves("faust", "`expires=`, `on_window_close=`: differs")
@pytest.mark.proves("faust", "A window that has ended is closed once and deleted")
def test_a_window_that_is_over_is_closed_once_and_deleted(node: LocalNode) -> None:
    closed: list[Any] = []

    def on_close(key: Any, value: Any) -> None:
        if not closed:
            closed.append("failed")
            raise ValueError("on purpose")
        closed.append((key, value))

    async def life(*times: float) -> dict[Any, Any]:
        one = Windowed(
            node,
            lambda table: by_field(table.tumbling(10.0, expires=timedelta(seconds=60))),
            lambda _: None,
            on_window_close=on_close,
        )
        tables = one.app.tables
        async with running(one.app):
            await one.visit(*times)
            for now in (T0 + 50, T0 + 75, T0 + 76, T0 + 77):
                tables.now_s = lambda now=now: now
                await one.plain._del_old_keys()
            return dict(one.plain.items())

    left = asyncio.run(life(T0 + 1, T0 + 2, T0 + 1000))
    assert closed == ["failed", (("home", (T0, T0 + 9.9)), 2)]
    assert list(left) == [("home", (T0 + 1000, T0 + 1009.9))]
    assert asyncio.run(life()) == left
    assert len(closed) == 2


def test_windows_of_a_set_table(node: LocalNode) -> None:
    async def life(*members: str) -> dict[Any, set[str]]:
        app = App("app", connection=node, broker_commit_interval=0.05)
        topic = app.topic("T", key_type=str, value_type=str, queues=1)
        table = app.SetTable("sets").tumbling(timedelta(days=3650), expires=FAR)
        seen: list[str] = []

        @app.agent(topic, name="reader")
        async def reader(stream: Any) -> None:
            async for key, value in stream.items():
                table[key].add(value)
                seen.append(value)

        async with running(app):
            for member in members:
                await topic.send(key="k", value=member)
            await until(lambda: len(seen) == len(members))
            return {key: set(one) for key, one in table.table.data.data.items()}

    first = asyncio.run(life("a", "b"))
    assert list(first.values()) == [{"a", "b"}]
    assert asyncio.run(life()) == first

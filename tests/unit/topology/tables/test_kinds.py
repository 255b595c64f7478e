"""Tables of sets and global tables, as Faust's user guide describes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import pytest
from support.harness.patience import until
from support.nodes.apps import running
from support.nodes.changelogs import changes_in
from support.nodes.local_node import LocalNode

from rocketray.topology.app.app import App


def visitors(node: LocalNode, **table: Any) -> tuple[App, Any, Any, list[str]]:
    """An app that keeps who visited which page; a visit like "-x" takes x away, "!" all."""
    app = App("app", connection=node, broker_commit_interval=0.05)
    topic = app.topic("Visits", key_type=str, value_type=str, queues=2)
    pages = app.SetTable("pages", **table)
    seen: list[str] = []

    @app.agent(topic, name="reader")
    async def reader(stream: Any) -> None:
        async for page, visit in stream.items():
            if visit == "!":
                pages[page].clear()
            elif visit.startswith("-"):
                pages[page].discard(visit[1:])
            elif visit.startswith("="):
                pages[page].update(set(visit[1:]))
            else:
                pages[page].add(visit)
            seen.append(visit)

    return app, topic, pages, seen


@pytest.mark.proves("faust", "`app.SetTable()`: differs")
def test_a_set_table_is_there_again_after_a_restart(node: LocalNode) -> None:
    async def life(visits: list[str]) -> dict[str, set[str]]:
        app, topic, pages, seen = visitors(node)
        async with running(app):
            for visit in visits:
                await topic.send(key="home", value=visit)
            await topic.send(key="other", value="z")
            await until(lambda: len(seen) == len(visits) + 1)
            return {page: set(members) for page, members in pages.data.data.items()}

    assert asyncio.run(life(["a", "b", "=cd", "-a"])) == {"home": set("bcd"), "other": {"z"}}
    assert asyncio.run(life(["-b"])) == {"home": set("cd"), "other": {"z"}}
    assert asyncio.run(life(["!", "e"])) == {"home": {"e"}, "other": {"z"}}
    assert asyncio.run(life([])) == {"home": {"e"}, "other": {"z"}}


def test_a_changelog_of_sets_has_one_key_for_each_member(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic, _, seen = visitors(node)
        async with running(app):
            for visit in ["a", "b", "a", "-a", "a", "-b"]:
                await topic.send(key="home", value=visit)
            await until(lambda: len(seen) == 6)

    asyncio.run(scenario())
    keys = {
        message.properties["__SHARDINGKEY"]: message.body
        for queue_id in (0, 1)
        for message in changes_in(node.data, "app-pages-changelog", queue_id)
    }
    assert keys == {'["home","a"]': b"1", '["home","b"]': b""}


def test_members_and_keys_of_sets_come_back_as_their_types(node: LocalNode) -> None:
    async def life(name: str, *members: str) -> dict[Any, set[Any]]:
        app = App("app", connection=node, broker_commit_interval=0.05)
        topic = app.topic(name, key_type=str, value_type=str, queues=1)
        table = app.SetTable(name, key_type=UUID, value_type=date)
        if name == "windowed":
            table = table.tumbling(timedelta(days=3650)).relative_to_stream()
        seen: list[str] = []

        @app.agent(topic, name="reader")
        async def reader(stream: Any) -> None:
            async for value in stream:
                table[UUID(int=1)].add(date.fromisoformat(value))
                seen.append(value)

        async with running(app):
            for member in members:
                await topic.send(key="k", value=member)
            await until(lambda: len(seen) == len(members))
            kept: Any = table
            data = getattr(kept, "table", kept).data.data
            return {key: set(one) for key, one in data.items()}

    for name in ("plain", "windowed"):
        first = asyncio.run(life(name, "2013-01-02"))
        assert list(first.values()) == [{date(2013, 1, 2)}]
        assert asyncio.run(life(name)) == first


@pytest.mark.proves("faust", "`SetTable(start_manager=True)`: works")
def test_the_manager_of_a_set_table_routes_operations(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        table = app.SetTable("sets", start_manager=True, partitions=4)
        async with running(app):
            manager = table.manager
            await manager.add("k", "a")
            await manager.add("k", "b")
            await manager.discard("k", "a")
            await until(lambda: set(table["k"]) == {"b"})
            await manager.intersection_update("k", ["c"])
            await until(lambda: set(table["k"]) == set())
            await manager.symmetric_difference_update("k", ["c", "d"])
            await until(lambda: set(table["k"]) == {"c", "d"})
            await manager.clear("k")
            await until(lambda: set(table["k"]) == set())

    asyncio.run(scenario())


def writer_of(node: LocalNode, kind: str) -> tuple[App, Any, Any]:
    """An instance of an app that writes what comes into a global table."""
    app = App("app", connection=node, broker_commit_interval=0.05)
    topic = app.topic("T", key_type=str, value_type=str, queues=2)
    table = getattr(app, kind)("shared")

    @app.agent(topic, name="reader")
    async def reader(stream: Any) -> None:
        async for key, value in stream.items():
            if kind == "GlobalTable":
                table[key] = value
            else:
                table[key].add(value)

    return app, topic, table


@pytest.mark.proves("faust", "`app.GlobalTable()`, `app.SetGlobalTable()`: works")
@pytest.mark.parametrize(
    ("kind", "look"),
    [
        ("GlobalTable", lambda table: dict(table.items())),
        (
            "SetGlobalTable",
            lambda table: {key: next(iter(one)) for key, one in table.data.data.items()},
        ),
    ],
)
def test_every_instance_has_the_whole_of_a_global_table(
    node: LocalNode, kind: str, look: Callable[[Any], dict[str, str]]
) -> None:
    async def scenario() -> None:
        one, topic, table = writer_of(node, kind)
        two, _, other = writer_of(node, kind)
        expected = {f"k{number}": str(number) for number in range(20)}
        async with running(one):
            async with running(two):
                await until(lambda: len(one.tables.owned_queues()) == 1)
                await until(lambda: len(two.tables.owned_queues()) == 1)
                for key, value in expected.items():
                    await topic.send(key=key, value=value)
                await until(lambda: look(table) == expected)
                await until(lambda: look(other) == expected)
            assert look(table) == expected

    asyncio.run(scenario())

"""Topics that are matched by a pattern: those that are there, come later, and go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.harness.patience import until
from support.nodes.apps import collecting, committed, numbers, put, running
from support.nodes.local_node import LocalNode

from rocketray.errors import SubscriptionConflictError
from rocketray.topology.app.app import App


def reader(node: LocalNode, seen: list[Any], **options: Any) -> App:
    """An app that reads the orders of every country."""
    app = App("app", connection=node, **options)
    topic = app.topic(pattern="Orders-..", value_serializer="raw")
    app.agent(topic, name="reader")(collecting(seen))
    return app


@pytest.mark.proves("faust", "`pattern=`: works")
def test_an_agent_reads_every_topic_whose_whole_name_matches(node: LocalNode) -> None:
    async def scenario() -> None:
        seen: list[bytes] = []
        async with running(reader(node, seen)):
            await until(lambda: len(seen) == 10)
        assert sorted(seen) == sorted(numbers(10))

    for number, name in enumerate(["Orders-de", "Orders-fr", "Orders-deu", "Old-Orders-de"]):
        node.topics.ensure(name, 2)
        put(node, name, numbers(5, first=5 * number))
    asyncio.run(scenario())
    assert [committed(node, "app-reader", f"Orders-{name}") for name in ("de", "fr")] == [5, 5]
    assert {entry.topic for entry in node.groups.all()} == {"Orders-de", "Orders-fr"}


def test_a_topic_that_comes_later_is_read_from_its_beginning(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketray.topology.faust.fetcher.RETRY_LOOK_S", 0.05)

    async def scenario() -> None:
        seen: list[bytes] = []
        async with running(reader(node, seen, consumer_auto_offset_reset="latest")):
            await asyncio.to_thread(node.topics.ensure, "Orders-de", 1)
            await asyncio.to_thread(put, node, "Orders-de", numbers(5))
            await until(lambda: len(seen) == 5)

    asyncio.run(scenario())


@pytest.mark.proves(
    "groups",
    "A queue that is added later is read from its first message, whatever `start=` says",
)
def test_a_topic_that_comes_while_no_instance_runs_is_read_from_its_beginning(
    node: LocalNode,
) -> None:
    async def life(topics: int, expected: int) -> list[bytes]:
        seen: list[bytes] = []
        app = reader(node, seen, consumer_auto_offset_reset="latest")
        async with running(app):
            await until(lambda: len(app.consumer.assignment()) == topics)
            await until(lambda: len(seen) == expected)
        return seen

    node.topics.ensure("Orders-de", 1)
    node.topics.ensure("Orders-fr", 1)
    put(node, "Orders-de", numbers(5))
    put(node, "Orders-fr", numbers(5))
    assert asyncio.run(life(2, 0)) == [], "the group begins at the end of what is there"
    node.topics.ensure("Orders-it", 1)
    put(node, "Orders-it", numbers(3, first=10))
    assert asyncio.run(life(3, 3)) == numbers(3, first=10)


def test_a_topic_that_is_deleted_ends_nothing_but_its_own_reading(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketray.topology.faust.fetcher.RETRY_LOOK_S", 0.05)

    async def scenario() -> None:
        seen: list[bytes] = []
        app = reader(node, seen)
        async with running(app):
            await until(lambda: len(app.consumer.assignment()) == 2)
            await asyncio.to_thread(node.topics.delete, "Orders-fr")
            await until(lambda: len(app.consumer.assignment()) == 1)
            await asyncio.to_thread(put, node, "Orders-de", numbers(5))
            await until(lambda: len(seen) == 5)
            assert app.crash_reason is None
        assert "Orders-fr" not in node.topics.all(), "nobody made it again"

    for name in ("Orders-de", "Orders-fr"):
        node.topics.ensure(name, 1)
    asyncio.run(scenario())


def test_a_message_that_fails_comes_again(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        seen: list[bytes] = []

        @app.agent(
            app.topic(pattern="Orders-..", value_serializer="raw"), ordered=True, suspend=0.01
        )
        async def read(stream: Any) -> None:
            async for value in stream:
                seen.append(value)
                if len(seen) == 1:
                    raise ValueError

        async with running(app):
            await until(lambda: len(seen) == 3)
        assert seen == [b"0", b"0", b"1"]

    node.topics.ensure("Orders-de", 1)
    put(node, "Orders-de", numbers(2))
    asyncio.run(scenario())


def test_members_of_a_group_agree_on_the_pattern() -> None:
    app = App("app")
    app.agent(app.topic(pattern="a.*"), group="g", name="one")(collecting([]))
    with pytest.raises(SubscriptionConflictError):
        app.agent(app.topic(pattern="b.*"), group="g", name="two")(collecting([]))

"""Questions and answers, as Faust's user guide describes them, past the numbers where it hangs."""

from __future__ import annotations

import asyncio
from typing import Any

import faust
import pytest
from support.harness.patience import patience, until
from support.nodes.apps import committed, running
from support.nodes.local_node import LocalNode

from rocketray.topology.app.app import App

MANY = 3_400  # over 4096 / 1.25, after which Faust's reply topic stands still


class Point(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    x: int
    y: int


def doubling(node: LocalNode, **options: Any) -> tuple[App, Any]:
    """An app and an agent that answers with the double."""
    app = App("app", connection=node, broker_commit_interval=0.05, **options)

    @app.agent(app.topic("Numbers", value_type=int, queues=2))
    async def double(stream: Any) -> Any:
        async for value in stream:
            yield value * 2

    return app, double


@pytest.mark.proves("faust", "`ask()`, `join()`: works")
@pytest.mark.proves("faust", "`ask` has no limit on its replies")
def test_more_questions_than_faust_can_answer_and_all_answers_are_committed(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        app, double = doubling(node)
        async with running(app):
            assert await double.join(range(MANY)) == [2 * n for n in range(MANY)]
            answers = await asyncio.gather(*(double.ask(n) for n in range(100)))
            assert answers == [2 * n for n in range(100)]
            name = app.conf.reply_to
            await until(lambda: committed(node, f"app-{name}", name) == MANY + 100)
            assert not app._reply_consumer._waiting

    asyncio.run(scenario())


@pytest.mark.proves("faust", "Reply topics: differs")
def test_an_answer_is_one_of_an_internal_topic_that_goes_with_the_instance(node: LocalNode) -> None:
    async def scenario() -> None:
        app, double = doubling(node)
        name = app.conf.reply_to
        async with running(app):
            assert await double.ask(21) == 42
            topic = node.topics.get(name)
            assert (topic.queues, topic.internal) == (1, True)
            assert topic.retention.max_age_ms == 24 * 3600 * 1000
        assert name not in node.topics.all()
        assert [group.group for group in node.groups.all()] == ["app-double"]

    asyncio.run(scenario())


def test_a_reply_topic_that_has_a_name_of_its_own_stays(node: LocalNode) -> None:
    async def scenario() -> None:
        app, double = doubling(node, reply_to="answers", reply_create_topic=True)
        async with running(app):
            assert "answers" in node.topics.all()
            assert await double.ask(1) == 2
        assert "answers" in node.topics.all()

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`map()`, `kvmap()`, `kvjoin()`: works")
def test_map_gives_answers_as_they_come(node: LocalNode) -> None:
    async def scenario() -> None:
        app, double = doubling(node)
        async with running(app):
            assert sorted([answer async for answer in double.map([1, 2, 3])]) == [2, 4, 6]
            pairs = [("a", 1), ("b", 2)]
            assert sorted([answer async for answer in double.kvmap(pairs)]) == [2, 4]
            assert await double.kvjoin(pairs) == [2, 4]

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`cast()`, `send()`, `ask_nowait()`: works")
def test_cast_and_send_expect_no_answer_and_ask_nowait_gives_a_promise(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        seen: list[int] = []

        @app.agent(app.topic("Numbers", value_type=int, queues=1))
        async def note(stream: Any) -> Any:
            async for value in stream:
                seen.append(value)
                yield value

        async with running(app):
            await note.cast(1)
            await note.send(value=2)
            note.channel.send_soon(value=3)
            promise = await note.ask_nowait(4, reply_to=app.conf.reply_to)
            assert promise.correlation_id
            with pytest.raises(TypeError, match="reply_to"):
                await note.ask_nowait(5)
            await until(lambda: sorted(seen) == [1, 2, 3, 4])

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`reply_to=`: works")
def test_an_answer_can_go_to_another_agent(node: LocalNode) -> None:
    async def scenario() -> None:
        app, double = doubling(node)
        seen: list[Any] = []

        @app.agent(app.topic("Answers", queues=1))
        async def collect(stream: Any) -> None:
            async for reply in stream:
                seen.append(reply.value)  # noqa: PERF401

        async with running(app):
            await double.send(value=4, reply_to=collect)
            await until(lambda: seen == [8])

    asyncio.run(scenario())


def test_models_are_answered_as_models(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)

        @app.agent(app.topic("Points", value_type=Point, queues=1))
        async def mirror(stream: Any) -> Any:
            async for point in stream:
                yield Point(x=point.y, y=point.x)

        async with running(app):
            assert await mirror.ask(Point(x=1, y=2)) == Point(x=2, y=1)

    asyncio.run(scenario())


def test_an_answer_that_nobody_waits_for_any_more_does_no_harm(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        go_on = asyncio.Event()

        @app.agent(app.topic("Numbers", value_type=int, queues=1))
        async def slow(stream: Any) -> Any:
            async for value in stream:
                await go_on.wait()
                yield value

        async with running(app):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(slow.ask(1), 0.3)
            go_on.set()
            assert await slow.ask(2) == 2

    asyncio.run(scenario())


def test_instances_of_an_app_with_tables_each_get_their_own_answers(node: LocalNode) -> None:
    async def scenario() -> None:
        apps = []
        for _ in range(2):
            app, double = doubling(node)
            app.Table("t", default=int)
            apps.append((app, double))
        (one, ask_one), (two, ask_two) = apps
        async with running(one), running(two):
            await until(lambda: len(one.tables.owned_queues()) == 1)
            await until(lambda: len(two.tables.owned_queues()) == 1)
            async with asyncio.timeout(patience(20)):
                assert await ask_one.join(range(10)) == [2 * n for n in range(10)]
                assert await ask_two.join(range(10)) == [2 * n for n in range(10)]

    asyncio.run(scenario())

"""In order and at least once: what a handler did not finish comes again, in its place."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from mode.supervisors import SupervisorStrategy
from support.harness.patience import until
from support.nodes.apps import committed, make_app, numbers, put, running
from support.nodes.ladder import Ladder
from support.nodes.local_node import LocalNode


@pytest.mark.proves("faust", "`async for value in stream`: differs")
@pytest.mark.proves("faust", "A handler that raises does not lose its message")
def test_a_message_whose_handler_raised_comes_again_in_its_place(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []
        raised: list[bytes] = []

        @app.agent(topic, ordered=True, suspend=0.01)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if value == b"7" and len(raised) < 3:
                    raised.append(value)
                    raise ValueError("on purpose")
                seen.append(value)

        node.topics.ensure("T", 1)
        put(node, "T", numbers(25))
        async with running(app):
            await until(lambda: len(seen) == 25)
        assert seen == numbers(25)
        assert len(raised) == 3
        assert reader.statistics().failures == 3
        assert committed(node, "app-reader", "T") == 25

    with caplog.at_level(logging.ERROR, "rocketray.topology"):
        asyncio.run(scenario())
    lines = [record.message for record in caplog.records]
    assert [line for line in lines if "topic T queue 0 offset 7, attempt 2" in line]
    assert len(lines) == 3


@pytest.mark.proves("faust", "No stall when every message fails once")
def test_when_every_message_fails_once_nothing_stalls(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mode's supervisor needs 5 s for each failure that follows another; it is not asked."""
    restarts: list[object] = []
    monkeypatch.setattr(
        SupervisorStrategy, "restart_service", lambda _, service: restarts.append(service)
    )

    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []
        failed: set[bytes] = set()

        @app.agent(topic, ordered=True, suspend=0.01)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if value not in failed:
                    failed.add(value)
                    raise ValueError("on purpose")
                seen.append(value)

        node.topics.ensure("T", 1)
        put(node, "T", numbers(30))
        async with running(app):
            await until(lambda: len(seen) == 30)
        assert seen == numbers(30)
        assert restarts == []

    asyncio.run(scenario())


def test_an_ordered_message_that_always_fails_is_never_skipped_and_does_not_hold_up_the_stop(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        attempts: list[bytes] = []
        seen: list[bytes] = []

        @app.agent(topic, ordered=True, suspend=0.02)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if value == b"3":
                    attempts.append(value)
                    raise ValueError("on purpose")
                seen.append(value)

        node.topics.ensure("T", 1)
        put(node, "T", numbers(6))
        async with running(app):
            await until(lambda: len(attempts) == 6)
        assert seen == numbers(3)
        assert committed(node, "app-reader", "T") == 3

    asyncio.run(scenario())


def test_something_that_the_handler_awaited_and_that_was_cancelled_is_a_failure(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []
        cancelled: list[bytes] = []

        @app.agent(topic, ordered=True, suspend=0.01)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if not cancelled:
                    cancelled.append(value)
                    other = asyncio.create_task(asyncio.sleep(10))
                    other.cancel()
                    await other
                seen.append(value)

        async with running(app):
            await topic.send(value=b"1")
            await until(lambda: seen == [b"1"])

    asyncio.run(scenario())


def test_a_handler_that_raises_before_its_loop_is_called_again(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        calls: list[int] = []
        seen: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            calls.append(1)
            if len(calls) < 4:
                raise LookupError("the database is not there yet")
            async for value in stream:
                seen.append(value)  # noqa: PERF401

        async with running(app):
            await topic.send(value=b"1")
            await until(lambda: seen == [b"1"])
        assert len(calls) == 4

    asyncio.run(scenario())


def test_an_agent_that_yields_gets_a_failed_message_again(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, value_serializer="json")
        called: list[int] = []
        failed: list[int] = []

        @app.agent(topic, sink=[called.append], ordered=True, suspend=0.01)
        async def double(stream: Any) -> Any:
            async for value in stream:
                if value == 2 and not failed:
                    failed.append(value)
                    raise ValueError("on purpose")
                yield value * 2

        async with running(app):
            for value in range(5):
                await topic.send(value=value)
            await until(lambda: len(called) >= 5)
        assert called == [0, 2, 4, 6, 8]

    asyncio.run(scenario())


def test_a_handler_that_ends_is_told_about(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for _ in stream:
                break

        async with running(app):
            await topic.send(value=b"1")
            await until(lambda: caplog.records)

    with caplog.at_level(logging.WARNING, "rocketray.topology"):
        asyncio.run(scenario())
    assert "agent reader returned" in caplog.text
    assert committed(node, "app-reader", "T") == 0


@pytest.mark.proves("faust", "Supervisors: differs")
def test_a_user_may_name_a_supervisor_that_gives_up(node: LocalNode) -> None:
    from mode.supervisors import ForfeitOneForOneSupervisor  # noqa: PLC0415

    async def scenario() -> None:
        app, topic = make_app(node)
        attempts: list[bytes] = []

        @app.agent(topic, supervisor_strategy=ForfeitOneForOneSupervisor)
        async def reader(stream: Any) -> None:
            async for value in stream:
                attempts.append(value)
                raise ValueError("on purpose")

        async with running(app):
            await topic.send(value=b"1")
            await until(lambda: attempts)
            await asyncio.sleep(0.3)
        assert attempts == [b"1"]
        assert committed(node, "app-reader", "T") == 1
        assert [one.body for one in Ladder(node).waiting()] == [b"1"]

    asyncio.run(scenario())


def test_a_failure_behind_another_topic_loses_nothing(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        other = app.topic("U", value_serializer="raw", queues=1)
        seen: list[bytes] = []
        failed: list[bytes] = []

        @app.agent(topic, ordered=True, suspend=0.01)
        async def reader(stream: Any) -> None:
            async for value in stream.filter(lambda value: value != b"1").through(other):
                if value == b"7" and len(failed) < 2:
                    failed.append(value)
                    raise ValueError("on purpose")
                seen.append(value)

        node.topics.ensure("T", 1)
        put(node, "T", numbers(10))
        async with running(app):
            await until(lambda: len(seen) == 9)
            put(node, "T", numbers(5, first=10))
            await until(lambda: len(seen) == 14)
        assert seen == [body for body in numbers(15) if body != b"1"]

    asyncio.run(scenario())


def test_a_key_function_that_fails_loses_nothing(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []
        failed: list[bytes] = []

        def parity(value: bytes) -> str:
            if value == b"4" and len(failed) < 3:
                failed.append(value)
                raise ValueError("on purpose")
            return str(int(value) % 2)

        @app.agent(topic, ordered=True, suspend=0.01)
        async def reader(stream: Any) -> None:
            async for value in stream.group_by(parity, name="parity"):
                seen.append(value)  # noqa: PERF401

        node.topics.ensure("T", 1)
        put(node, "T", numbers(10))
        async with running(app):
            await until(lambda: len(seen) == 10)
        assert sorted(seen) == numbers(10)

    asyncio.run(scenario())


@pytest.mark.parametrize("slice_s", [0.0, 3600.0])
def test_a_stop_waits_for_what_is_being_sent_on_and_nothing_is_sent_on_twice(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, slice_s: float
) -> None:
    """The stop comes before a message is sent on, with and without a pause between that and its end."""
    monkeypatch.setattr("rocketray.topology.app.stream.SLICE_S", slice_s)
    seen: list[bytes] = []

    async def life(count: int) -> None:
        app, topic = make_app(node)
        is_at_last = asyncio.Event()

        async def number(value: bytes) -> str:
            if int(value) == count - 1:
                is_at_last.set()
                if count < 20:
                    await until(lambda: app.should_stop)
                await asyncio.sleep(0.1)
            return value.decode()

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream.group_by(number, name="number"):
                seen.append(value)  # noqa: PERF401

        async with running(app):
            await is_at_last.wait()
            if count == 20:
                await until(lambda: len(seen) >= 20)

    node.topics.ensure("T", 1)
    put(node, "T", numbers(20))
    for count in (5, 6, 20):
        asyncio.run(life(count))
        assert committed(node, "app-reader", "T") == count
        assert node.shard("reader-T-number-repartition", 0).writer.control.visible() == count
    assert seen == numbers(20)

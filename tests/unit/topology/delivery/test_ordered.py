"""Agents that ask for order: a message that fails is tried again before any other of its queue."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from support.harness.patience import patience, until
from support.nodes.apps import committed, make_app, numbers, put, running
from support.nodes.ladder import Ladder, stored_in
from support.nodes.local_node import LocalNode

from rocketray.broker.retries.retry_records import MAX_ATTEMPTS
from rocketray.errors import BatchError
from rocketray.messaging.remote import fetch_sessions, fetched_streams
from rocketray.topology.app.app import App
from rocketray.topology.delivery import feed
from rocketray.topology.delivery.flow import FlowLimits
from rocketray.topology.values.failure_rules import FailureOptions


def put_in_queues(node: LocalNode, count: int, queues: int) -> None:
    """*count* numbers in each queue of T."""
    with node.producer() as producer:
        for number in range(count):
            for queue_id in range(queues):
                producer.send_async("T", b"%d" % number, queue_id=queue_id)


@pytest.mark.proves(
    "delivery",
    "In an ordered agent the queue of a failed message waits, and other queues continue",
)
def test_a_queue_whose_message_fails_waits_and_the_others_go_on(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, queues=2)
        seen: dict[int, list[bytes]] = {0: [], 1: []}
        attempts: list[bytes] = []
        is_fixed = asyncio.Event()

        @app.agent(topic, ordered=True, suspend=0.05)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                if event.message.partition == 0 and event.value == b"3" and not is_fixed.is_set():
                    attempts.append(event.value)
                    raise ValueError("on purpose")
                seen[event.message.partition].append(event.value)

        node.topics.ensure("T", 2)
        put_in_queues(node, 50, 2)
        async with running(app):
            await until(lambda: len(seen[1]) == 50 and len(attempts) >= 3)
            assert seen[0] == numbers(3)
            is_fixed.set()
            await until(lambda: len(seen[0]) == 50)
        assert seen == {0: numbers(50), 1: numbers(50)}
        assert committed(node, "app-reader", "T") == 100
        assert not Ladder(node).waiting()

    asyncio.run(scenario())


@pytest.mark.proves(
    "delivery",
    "A held queue with much lag leaves the others their shares of the flow limits",
)
@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("handlers", [1, 2])
def test_a_queue_that_rests_with_much_behind_it_leaves_room_for_the_others(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, is_remote: bool, handlers: int
) -> None:
    monkeypatch.setattr(feed, "POLL_MAX_MESSAGES", 10)
    monkeypatch.setattr(fetch_sessions, "_TAKE_MESSAGES", 10)
    monkeypatch.setattr(fetched_streams, "CREDIT_BYTES", 4000)
    node.has_far_members = is_remote

    async def scenario() -> None:
        app = App("app", connection=node, flow=FlowLimits(messages=50))
        topic = app.topic("T", queues=3, value_serializer="raw")
        seen: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        attempts: list[bytes] = []
        is_fixed = asyncio.Event()

        @app.agent(topic, ordered=True, suspend=0.05, concurrency=handlers)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                if event.message.partition == 0 and not is_fixed.is_set():
                    attempts.append(event.value)
                    raise ValueError("on purpose")
                seen[event.message.partition].append(event.value)

        node.topics.ensure("T", 3)
        put_in_queues(node, 500, 1)
        async with running(app):
            await until(lambda: len(attempts) >= 5)
            put_in_queues(node, 200, 3)
            await until(lambda: len(seen[1]) == len(seen[2]) == 200)
            assert set(attempts) == {b"0"}
            assert reader.statistics().received <= 400 + 50 + 10, "the rest stays in the log"
            is_fixed.set()
            await until(lambda: len(seen[0]) == 700)
        assert seen == {0: numbers(500) + numbers(200), 1: numbers(200), 2: numbers(200)}
        assert committed(node, "app-reader", "T") == 1100

    asyncio.run(scenario())


@pytest.mark.proves("delivery", "Concurrent handlers keep the order of each queue")
def test_handlers_side_by_side_keep_the_order_of_each_queue(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, queues=4)
        seen: dict[int, list[bytes]] = defaultdict(list)
        inside: list[int] = []
        overlaps: list[list[int]] = []
        failed: set[tuple[int, bytes]] = set()

        @app.agent(topic, ordered=True, suspend=0.01, concurrency=3)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                queue_id = event.message.partition
                assert queue_id not in inside
                inside.append(queue_id)
                overlaps.append(list(inside))
                await asyncio.sleep(0.001)
                inside.remove(queue_id)
                if int(event.value) % 10 == queue_id and (queue_id, event.value) not in failed:
                    failed.add((queue_id, event.value))
                    raise ValueError("on purpose")
                seen[queue_id].append(event.value)

        node.topics.ensure("T", 4)
        put_in_queues(node, 40, 4)
        async with running(app):
            await until(lambda: sum(map(len, seen.values())) == 160)
        assert dict(seen) == dict.fromkeys(range(4), numbers(40))
        assert len(failed) == 16
        assert max(map(len, overlaps)) > 1
        assert committed(node, "app-reader", "T") == 160

    asyncio.run(scenario())


@pytest.mark.proves("delivery", "An ordered message over `max_attempts` is dead-lettered")
def test_an_ordered_message_over_its_limit_is_a_dead_letter(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        attempts: list[bytes] = []
        seen: list[bytes] = []

        @app.agent(topic, ordered=True, suspend=0.01, max_attempts=2)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if value == b"3":
                    attempts.append(value)
                    raise ValueError("on purpose")
                seen.append(value)

        node.topics.ensure("T", 1)
        put(node, "T", numbers(6))
        async with running(app):
            await until(lambda: len(seen) == 5 and reader.statistics().dead_lettered)
        assert len(attempts) == 3
        assert seen == [b"0", b"1", b"2", b"4", b"5"]
        [letter] = stored_in(node, "%DLQ%app-reader")
        assert (letter.body, letter.reconsume_times) == (b"3", 3)
        assert committed(node, "app-reader", "T") == 6

    asyncio.run(scenario())


@pytest.mark.parametrize("blames", [True, False])
def test_lists_keep_the_order_too(node: LocalNode, blames: bool) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []
        failures: list[bytes] = []

        @app.agent(topic, ordered=True, suspend=0.01)
        async def reader(stream: Any) -> None:
            async for values in stream.take(4, within=0.02):
                if b"5" in values and len(failures) < 4:
                    failures.append(b"5")
                    if blames:
                        seen.extend(values[: values.index(b"5")])
                        raise BatchError(values.index(b"5"))
                    raise ValueError("on purpose")
                seen.extend(values)

        node.topics.ensure("T", 1)
        put(node, "T", numbers(12))
        async with running(app):
            await until(lambda: len(seen) == 12)
        assert seen == numbers(12)
        assert committed(node, "app-reader", "T") == 12

    asyncio.run(scenario())


def test_lists_keep_the_order_where_the_stream_itself_fails(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "POLL_MAX_MESSAGES", 1)  # so that each is a delivery of its own

    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []
        failures: list[bytes] = []

        async def moody(value: bytes) -> bytes:
            if value == b"0" and len(failures) < 3:
                failures.append(value)
                raise ValueError("on purpose")
            return value

        @app.agent(topic, ordered=True, suspend=0.05)
        async def reader(stream: Any) -> None:
            stream.add_processor(moody)
            async for values in stream.take(2, within=0.02):
                seen.extend(values)

        node.topics.ensure("T", 1)
        put(node, "T", numbers(6))
        async with running(app):
            await until(lambda: len(seen) == 6)
        assert seen == numbers(6)

    asyncio.run(scenario())


def test_an_ordered_agent_stops_while_a_queue_rests(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        attempts: list[bytes] = []

        @app.agent(topic, ordered=True, suspend=30)
        async def reader(stream: Any) -> None:
            async for value in stream:
                attempts.append(value)
                raise ValueError("on purpose")

        await app.start()
        await topic.send(value=b"1")
        await until(lambda: attempts)
        async with asyncio.timeout(patience(10)):
            await app.stop()
        assert committed(node, "app-reader", "T") == 0

    asyncio.run(scenario())


def test_an_app_that_needs_order_has_it_unless_an_agent_says_otherwise() -> None:
    needed = FailureOptions().rules("g", is_ordered=True)
    assert (needed.is_ordered, needed.max_attempts) == (True, None)
    refused = FailureOptions(ordered=False).rules("g", is_ordered=True)
    assert (refused.is_ordered, refused.max_attempts) == (False, MAX_ATTEMPTS)
    assert FailureOptions(max_attempts=3).rules("g", is_ordered=True).max_attempts == 3

"""Agents with a handler for each queue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.harness.patience import until
from support.nodes.apps import committed, make_app, numbers, running
from support.nodes.local_node import LocalNode

from rocketray.message import Message
from rocketray.topology.app.app import App


class Isolated:
    """An instance whose handlers note what they get; each gets a number when it starts."""

    def __init__(self, node: LocalNode, **options: Any) -> None:
        self.app, topic = make_app(node, queues=4)
        self.seen: list[tuple[int, int, bytes]] = []
        """The handler's number, the queue and the value."""
        self.ended: list[int] = []
        self.partitions: list[Any] = []
        self._started = 0

        @self.app.agent(topic, name="reader", isolated_partitions=True, **options)
        async def reader(stream: Any) -> None:
            number, self._started = self._started, self._started + 1
            self.partitions.append(stream.active_partitions)
            async for event in stream.events():
                self.seen.append((number, event.message.partition, event.value))
                await self.on_event(event)
            self.ended.append(number)

    async def on_event(self, event: Any) -> None:
        """What a handler does with an event."""


def put_everywhere(node: LocalNode, count: int, first: int = 0) -> None:
    producer = node.producer()
    for queue in range(4):
        messages = [Message("T", body) for body in numbers(count, first)]
        producer.send_many("T", messages, queue_id=queue)
    producer.close()


@pytest.mark.proves("faust", "`isolated_partitions=`: differs")
def test_each_queue_has_a_handler_of_its_own_and_its_order(node: LocalNode) -> None:
    async def scenario() -> None:
        one = Isolated(node)
        async with running(one.app):
            await until(lambda: len(one.seen) == 200)
        by_handler = {number: queue for number, queue, _ in one.seen}
        assert sorted(by_handler.values()) == [0, 1, 2, 3]
        for number, queue in by_handler.items():
            got = [(q, value) for handler, q, value in one.seen if handler == number]
            assert got == [(queue, value) for value in numbers(50)]
            assert one.partitions[number] == {("T", queue)}
        assert committed(node, "app-reader", "T") == 200

    node.topics.ensure("T", 4)
    put_everywhere(node, 50)
    asyncio.run(scenario())


def test_a_slow_queue_does_not_hold_the_others_up(node: LocalNode) -> None:
    async def scenario() -> None:
        one, goes_on = Isolated(node), asyncio.Event()

        async def wait(event: Any) -> None:
            if event.message.partition == 0:
                await goes_on.wait()

        one.on_event = wait  # type: ignore[method-assign]  # what this test wants done
        async with running(one.app):
            await until(lambda: len(one.seen) == 31)
            assert sum(queue == 0 for _, queue, _ in one.seen) == 1
            goes_on.set()
            await until(lambda: len(one.seen) == 40)

    node.topics.ensure("T", 4)
    put_everywhere(node, 10)
    asyncio.run(scenario())


def test_a_message_that_fails_comes_again_to_its_own_handlers_queue(node: LocalNode) -> None:
    async def scenario() -> None:
        one = Isolated(node, suspend=0.01)
        failed: list[int] = []

        async def fail_once(event: Any) -> None:
            if event.message.partition == 2 and not failed:
                failed.append(1)
                raise ValueError

        one.on_event = fail_once  # type: ignore[method-assign]  # what this test wants done
        async with running(one.app):
            await until(lambda: len(one.seen) == 13)
        assert [value for _, queue, value in one.seen if queue == 2] == [b"0", *numbers(3)]

    node.topics.ensure("T", 4)
    put_everywhere(node, 3)
    asyncio.run(scenario())


def test_handlers_end_with_their_queues_and_begin_where_these_go(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        one, other = Isolated(node), Isolated(node)
        async with running(one.app):
            await until(lambda: len(one.seen) == 20)
            async with running(other.app):
                await until(lambda: len(one.ended) == 2)
                await asyncio.to_thread(put_everywhere, node, 5, 5)
                await until(lambda: len(one.seen) + len(other.seen) == 40)
                assert {queue for _, queue, _ in other.seen}.isdisjoint(
                    queue for _, queue, value in one.seen if int(value) >= 5
                )
                assert len(other.partitions) == 2
        assert sorted(value for _, _, value in one.seen + other.seen) == sorted(numbers(10) * 4)

    node.topics.ensure("T", 4)
    put_everywhere(node, 5)
    asyncio.run(scenario())
    assert "returned" not in caplog.text


def test_a_test_context_of_such_an_agent_works(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)

        @app.agent(app.topic("T"), isolated_partitions=True)
        async def double(stream: Any) -> Any:
            async for value in stream:
                yield value * 2

        async with double.test_context() as agent:
            await agent.put(3)
            assert agent.results == {0: 6}

    asyncio.run(scenario())

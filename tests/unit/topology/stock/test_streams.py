"""Stock Faust apps: streams, offsets and rebalances over a node in this process."""

from __future__ import annotations

import asyncio
from typing import Any

from support.apps import collecting, committed, numbers, put, running, until
from support.local_node import LocalNode
from support.stock_apps import stock_app

from rocketray.message import Message


def put_in_each(node: LocalNode, first: int, count: int) -> None:
    """The *count* numbers from *first* on, divided over the four queues of T."""
    with node.producer() as producer:
        for queue in range(4):
            bodies = numbers(count // 4, first + queue * (count // 4))
            producer.send_messages("T", [Message("T", body) for body in bodies], queue_id=queue)


def test_a_restarted_app_goes_on_where_it_committed(node: LocalNode) -> None:
    async def run(expected: int) -> list[bytes]:
        app = stock_app(node)
        seen: list[bytes] = []
        app.agent(app.topic("T", value_serializer="raw"))(collecting(seen))
        async with running(app):
            await until(lambda: len(seen) >= expected)
            await asyncio.sleep(0.05)
        return seen

    node.create_topic("T", 2)
    put(node, "T", numbers(40))
    assert sorted(map(int, asyncio.run(run(40)))) == list(range(40))
    assert committed(node, "stock", "T") == 40
    put(node, "T", numbers(10, first=40))
    assert sorted(map(int, asyncio.run(run(10)))) == list(range(40, 50))


def test_two_instances_share_the_queues_and_none_is_missed_or_doubled(node: LocalNode) -> None:
    def build() -> tuple[Any, list[bytes]]:
        app = stock_app(node)
        seen: list[bytes] = []

        async def slow(stream: Any) -> None:
            async for value in stream:
                seen.append(value)
                await asyncio.sleep(0.001)

        app.agent(app.topic("T", value_serializer="raw"), name="slow")(slow)
        return app, seen

    def queues_of(app: Any) -> int:
        return len(app.consumer.assignment())

    async def scenario() -> tuple[list[bytes], list[bytes]]:
        (one, first), (other, second) = build(), build()
        async with running(one):
            await until(lambda: len(first) > 50)
            async with running(other):
                await until(lambda: queues_of(one) == queues_of(other) == 2)
                put_in_each(node, 400, 400)
                await until(lambda: len(first) + len(second) >= 800)
                assert second
            put_in_each(node, 800, 100)
            await until(lambda: len(first) + len(second) >= 900)
            assert queues_of(one) == 4
        return first, second

    node.create_topic("T", 4)
    put_in_each(node, 0, 400)
    first, second = asyncio.run(scenario())
    assert sorted(map(int, first + second)) == list(range(900))

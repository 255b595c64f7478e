"""Apps in tests: started and stopped around a block, over a node in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from support.harness.patience import patience, until
from support.nodes.local_node import LocalNode

from rocketray.message import Message
from rocketray.topology.app.app import App


@asynccontextmanager
async def running(app: App) -> AsyncIterator[App]:
    """*app*, started; stopped at the end of the block, which must not take long."""
    await app.start()
    try:
        yield app
    finally:
        async with asyncio.timeout(patience(15)):
            await app.stop()


def collecting(into: list[Any]) -> Callable[[Any], Any]:
    """A handler that appends every value to *into*."""

    async def handler(stream: Any) -> None:
        async for value in stream:
            into.append(value)  # noqa: PERF401  # one by one, as users write it

    return handler


def put(node: LocalNode, topic: str, bodies: Sequence[bytes], **options: Any) -> None:
    """Store *bodies* in *topic*, which exists."""
    producer = node.producer()
    try:
        producer.send_many(topic, [Message(topic, body, **options) for body in bodies])
    finally:
        producer.close()


def numbers(count: int, first: int = 0) -> list[bytes]:
    """The numbers from *first* on as bodies."""
    return [str(number).encode() for number in range(first, first + count)]


def committed(node: LocalNode, group: str, topic: str) -> int:
    """The sum of the group's offsets over the queues of *topic*, as far as it told the node."""
    queues = range(node.topics.get(topic).queues)
    return sum(max(0, node.state.registry.offsets.get(group, topic, queue)) for queue in queues)


def make_app(node: LocalNode, topic: str = "T", queues: int = 1, **options: Any) -> tuple[App, Any]:
    """An app and a topic of raw bodies."""
    app = App("app", connection=node)
    options.setdefault("value_serializer", "raw")
    return app, app.topic(topic, queues=queues, **options)


def consume(
    node: LocalNode,
    handler: Callable[[Any], Any],
    is_done: Callable[[], Any],
    *,
    bodies: list[bytes],
    queues: int = 1,
    **topic_options: Any,
) -> App:
    """Run *handler* as an agent over *bodies* until it says that it is done."""

    async def scenario() -> App:
        app = App("app", connection=node)
        topic = app.topic("T", **{"value_serializer": "raw", **topic_options})
        app.agent(topic, name="reader")(handler)
        async with running(app):
            await until(is_done)
        return app

    node.topics.ensure("T", queues)
    put(node, "T", bodies)
    return asyncio.run(scenario())

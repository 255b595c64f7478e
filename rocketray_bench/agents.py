"""Apps for benchmarks: one agent as users declare it, and the time it takes for a backlog.

Everything that an agent has by default is on: offsets are committed, failed messages are retried,
and flow control bounds the messages that wait for the handler.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rocketray.actors.client.connection import Connection
from rocketray.topology.app.app import App

_TIMEOUT_S = 120.0

Handler = Callable[[Any, "Pace"], Awaitable[None]]
"""Reads a stream, and tells the pace when it has the first and the last message."""


@dataclass(slots=True)
class Pace:
    """The time from the first of *wanted* messages at the handler to the last."""

    wanted: int
    done: asyncio.Event
    wall_s: float = 0.0
    processor_s: float = 0.0

    def begin(self) -> None:
        """Start the clocks, at the first message."""
        self.wall_s, self.processor_s = time.perf_counter(), time.process_time()

    def end(self) -> None:
        """Stop the clocks, at the last message."""
        self.wall_s = time.perf_counter() - self.wall_s
        self.processor_s = time.process_time() - self.processor_s
        self.done.set()


async def each_value(stream: Any, pace: Pace) -> None:
    """Read one message after the other."""
    seen, wanted = 0, pace.wanted
    async for _ in stream:
        if not seen:
            pace.begin()
        seen += 1
        if seen == wanted:
            pace.end()


async def whole_batches(stream: Any, pace: Pace) -> None:
    """Read Arrow batches with their bodies."""
    seen = 0
    async for batch in stream.batches(["body", "queueOffset"]):
        if not seen:
            pace.begin()
        seen += batch.num_rows
        if seen == pace.wanted:
            pace.end()


def read_backlog(
    connection: Connection,
    topic: str,
    count: int,
    handler: Handler,
    *,
    app_options: Mapping[str, Any] | None = None,
    **topic_options: Any,
) -> Pace:
    """Let an agent of a new app, so of a new group, read all *count* messages of *topic*.

    *app_options* are those of the app. *topic_options* give the type of the values. On return all
    messages are committed.
    """

    async def read() -> Pace:
        pace = Pace(count, asyncio.Event())

        async def reader(stream: Any) -> None:
            await handler(stream, pace)

        async with running_agent(
            connection, topic, reader, app_options=app_options, **topic_options
        ) as app:
            async with asyncio.timeout(_TIMEOUT_S):
                await pace.done.wait()
        group = f"{app.conf.id}-reader"
        committed = next(each.offsets for each in connection.groups.all() if each.group == group)
        assert sum(committed.values()) == count, f"{committed} of {count} messages are committed"
        return pace

    return asyncio.run(read())


@asynccontextmanager
async def running_agent(
    connection: Connection,
    topic: str,
    reader: Callable[[Any], Any],
    *,
    app_options: Mapping[str, Any] | None = None,
    **topic_options: Any,
) -> AsyncIterator[App]:
    """Run an app with one agent; stopped at the end of the block."""
    app = App(f"bench-{time.monotonic_ns()}", connection=connection, **(app_options or {}))
    app.agent(app.topic(topic, **topic_options), name="reader")(reader)
    await app.start()
    try:
        yield app
    finally:
        await app.stop()

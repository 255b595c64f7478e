"""How long from publishing a message to its handler, at a thousand messages a second?

The sender is a process of its own, which sends to four queues in turn.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rocketray.actors.client.connection import Connection
from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers.member import GroupConsumer

from .agents import running_agent
from .bench_node import bench_node
from .report import BenchOptions, Row

_INTERVAL_S = 0.001
_WARM_UP = 200
_QUEUES = 4
_TIMEOUT_S = 120.0


def run(options: BenchOptions) -> list[Row]:
    """Measure; the body is the time of sending, and the handler subtracts it from its own."""
    count, ceiling = options.amount(10_000) + _WARM_UP, options.ceilings.wake()
    with bench_node() as connection:
        connection.topics.create("Agent", _QUEUES)
        connection.topics.create("Member", _QUEUES)
        to_agent = asyncio.run(_agent_times(connection, count))
        to_member = member_times(connection, "Member", count, partial(_join, connection))
    return [
        Row(
            f"publish to {reader} at {1 / _INTERVAL_S:.0f}/s, p{percentile}",
            float(np.percentile(times[_WARM_UP:], percentile)) / 1e6,
            "ms",
            ceiling,
        )
        for reader, times in (("an agent's handler", to_agent), ("a plain member", to_member))
        for percentile in (50, 99)
    ]


async def _agent_times(connection: Connection, count: int) -> list[int]:
    """Return nanoseconds to the handler of an app, with offsets, retries and flow control."""
    times: list[int] = []
    done = asyncio.Event()

    async def reader(stream: Any) -> None:
        async for body in stream:
            times.append(time.perf_counter_ns() - int.from_bytes(body, "little"))
            if len(times) == count:
                done.set()

    async with running_agent(connection, "Agent", reader, value_serializer="raw"):
        with _publisher(connection.data, "Agent", count):
            async with asyncio.timeout(_TIMEOUT_S):
                await done.wait()
    return times


def member_times(
    connection: Connection,
    topic: str,
    count: int,
    join: Callable[[str], GroupConsumer],
    interval_s: float = _INTERVAL_S,
) -> list[int]:
    """Return nanoseconds to the return of a poll, without an app; *join* makes the member."""
    times: list[int] = []
    with join(topic) as member, _publisher(connection.data, topic, count, interval_s):
        while len(times) < count:
            for batch in member.poll(1.0):
                now = time.perf_counter_ns()
                times += [now - int.from_bytes(body, "little") for body in batch.bodies()]
                member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
    return times


def _join(connection: Connection, topic: str) -> GroupConsumer:
    return connection.consumer("bench", topic, Subscription.tags("*"))


@contextmanager
def _publisher(
    data: Path, topic: str, count: int, interval_s: float = _INTERVAL_S
) -> Iterator[None]:
    """Run a process that publishes; it has ended at the end of the block."""
    process = multiprocessing.get_context("spawn").Process(
        target=_publish, args=(str(data), topic, count, interval_s), daemon=True
    )
    process.start()
    try:
        yield
    except BaseException:
        process.kill()
        raise
    finally:
        process.join()


def _publish(data: str, topic: str, count: int, interval_s: float) -> None:
    """Publish; the clock is CLOCK_MONOTONIC, which all processes of a machine share."""
    with Connection.open(data) as connection, connection.producer() as producer:
        begun = time.perf_counter()
        for number in range(count):
            wait = begun + number * interval_s - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            producer.send_async(topic, time.perf_counter_ns().to_bytes(8, "little"))

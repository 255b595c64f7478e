"""How long from publishing a message to its handler, at a thousand messages a second?"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from rocketray.actors.client import Connection
from rocketray.actors.producer import Producer
from rocketray.filters.subscription import Subscription

from .agents import running_agent
from .ceilings import Ceilings, measure
from .node import bench_node
from .report import BenchOptions, Row

__all__ = ["run"]

_INTERVAL_S = 0.001
_WARM_UP = 200
_TIMEOUT_S = 120.0


def run(options: BenchOptions) -> list[Row]:
    """The body is the time of sending; the handler subtracts it from its own."""
    ceilings = measure()
    count = options.amount(10_000) + _WARM_UP
    with bench_node() as connection:
        connection.create_topic("Agent", 1)
        connection.create_topic("Member", 1)
        to_agent = asyncio.run(_agent_times(connection, count))
        to_member = _member_times(connection, count)
    return [
        *_rows("publish to an agent's handler", to_agent, ceilings),
        *_rows("publish to a plain member", to_member, ceilings),
    ]


def _rows(question: str, times: list[int], ceilings: Ceilings) -> Iterator[Row]:
    for percentile in (50, 99):
        yield Row(
            f"{question} at {1 / _INTERVAL_S:.0f}/s, p{percentile}",
            float(np.percentile(times[_WARM_UP:], percentile)) / 1e6,
            "ms",
            ceilings.wake(),
        )


async def _agent_times(connection: Connection, count: int) -> list[int]:
    """Nanoseconds to the handler of an app, with offsets, retries and flow control."""
    times: list[int] = []
    done = asyncio.Event()

    async def reader(stream: Any) -> None:
        async for body in stream:
            times.append(time.perf_counter_ns() - int.from_bytes(body, "little"))
            if len(times) == count:
                done.set()

    async with running_agent(connection, "Agent", reader, value_serializer="raw"):
        with connection.producer() as producer:
            publisher = asyncio.to_thread(_publish, producer, "Agent", count)
            async with asyncio.timeout(_TIMEOUT_S):
                await asyncio.gather(publisher, done.wait())
    return times


def _member_times(connection: Connection, count: int) -> list[int]:
    """Nanoseconds to the return of a poll, without an app."""
    times: list[int] = []
    with (
        connection.producer() as producer,
        connection.consumer("bench", "Member", Subscription.tags("*")) as member,
    ):
        publisher = threading.Thread(target=_publish, args=(producer, "Member", count))
        publisher.start()
        while len(times) < count:
            for batch in member.poll(1.0):
                now = time.perf_counter_ns()
                times += [now - int.from_bytes(body, "little") for body in batch.bodies()]
                member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        publisher.join()
    return times


def _publish(producer: Producer, topic: str, count: int) -> None:
    begun = time.perf_counter()
    for number in range(count):
        wait = begun + number * _INTERVAL_S - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        producer.send_async(topic, time.perf_counter_ns().to_bytes(8, "little"))

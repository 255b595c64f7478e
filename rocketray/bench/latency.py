"""How long from publishing a message to its handler, at a thousand messages a second?"""

from __future__ import annotations

import threading
import time

import numpy as np

from rocketray.actors.producer import Producer
from rocketray.actors.remote_consumer import Member
from rocketray.filters.subscription import Subscription

from .ceilings import measure
from .node import bench_node
from .report import BenchOptions, Row

__all__ = ["run"]

_INTERVAL_S = 0.001
_WARM_UP = 200


def run(options: BenchOptions) -> list[Row]:
    """The body is the time of sending; the handler subtracts it from its own."""
    ceilings = measure()
    count = options.amount(10_000) + _WARM_UP
    with bench_node() as connection:
        connection.create_topic("Bench", 1)
        with (
            connection.producer() as producer,
            connection.consumer("bench", "Bench", Subscription.tags("*")) as member,
        ):
            publisher = threading.Thread(target=_publish, args=(producer, count))
            publisher.start()
            times = _collect(member, count)[_WARM_UP:]
            publisher.join()
    return [
        Row(
            f"publish to handler at {1 / _INTERVAL_S:.0f}/s, p{percentile}",
            float(np.percentile(times, percentile)) / 1e6,
            "ms",
            ceilings.wake(),
        )
        for percentile in (50, 99)
    ]


def _publish(producer: Producer, count: int) -> None:
    begun = time.perf_counter()
    for number in range(count):
        wait = begun + number * _INTERVAL_S - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        producer.send_async("Bench", time.perf_counter_ns().to_bytes(8, "little"))


def _collect(member: Member, count: int) -> list[int]:
    times: list[int] = []
    while len(times) < count:
        for batch in member.poll(1.0):
            now = time.perf_counter_ns()
            times += [now - int.from_bytes(body, "little") for body in batch.bodies()]
            member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
    return times

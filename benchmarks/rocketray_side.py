"""rocketray's side of against_rocketmq.py: a node, a producer or a plain member; answers questions.

Messages are made while the clock runs. ``python_peers.py`` uses its node, too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from support.harness.asked_process import answer_all, answers_apart

from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster.node import Node
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray_bench.bench_node import node_processor_s
from rocketray_bench.orders import order_body

TIMEOUT_S = 120.0


def _tag(number: int) -> str:
    return "pay" if number % 100 else "rare"


def _options(number: int) -> Any:
    properties = {"region": "eu", "amount": str(number % 1000)}
    return {"tags": _tag(number), "keys": [f"order-{number}"], "properties": properties}


class NodeSide:
    """A node, and its topics."""

    def __init__(self, data: str) -> None:
        self._node = Node(Path(data))
        self._connection = self._node.connection()

    def topic(self, name: str, queues: int) -> dict[str, Any]:
        """Create a topic."""
        self._connection.topics.ensure(name, queues)
        return {}

    def idle(self, seconds: float) -> dict[str, Any]:
        """Return what the node's processes use of a core."""
        before, begun = node_processor_s(), time.perf_counter()
        time.sleep(seconds)
        return {"cores": (node_processor_s() - before) / (time.perf_counter() - begun)}

    def close(self) -> None:
        """End the node."""
        self._connection.close()
        self._node.stop()


class ProducerSide:
    """The producer's questions."""

    def __init__(self, data: str) -> None:
        self._connection = Connection.open(Path(data))
        self._producer = self._connection.producer()

    def first(self, topic: str) -> dict[str, Any]:
        """Send a message."""
        self._producer.send(topic, order_body(1), **_options(1))
        return {}

    def one(self, topic: str, count: int) -> dict[str, Any]:
        """Send messages one by one."""
        took, send, clock = [], self._producer.send, time.perf_counter_ns
        for number in range(count):
            begun = clock()
            send(topic, order_body(number), **_options(number))
            took.append(clock() - begun)
        return {"seconds": sum(took) / 1e9, "p50_us": sorted(took)[count // 2] / 1e3}

    def lists(self, topic: str, count: int, size: int) -> dict[str, Any]:
        """Send lists, each acknowledged."""
        begun = time.perf_counter()
        for first in range(0, count, size):
            numbers = range(first, first + size)
            messages = [Message(topic, order_body(one), **_options(one)) for one in numbers]
            self._producer.send_many(topic, messages)
        return {"seconds": time.perf_counter() - begun}

    def columns(self, topic: str, count: int, size: int) -> dict[str, Any]:
        """Send the same as columns."""
        begun = time.perf_counter()
        for first in range(0, count, size):
            numbers = range(first, first + size)
            amounts = [str(one % 1000) for one in numbers]
            self._producer.send_many(
                topic,
                bodies=[order_body(one) for one in numbers],
                tags=[_tag(one) for one in numbers],
                keys=[f"order-{one}" for one in numbers],
                properties={"region": "eu", "amount": amounts},
            )
        return {"seconds": time.perf_counter() - begun}

    def unbatched(self, topic: str, count: int) -> dict[str, Any]:
        """Send messages without waiting, and wait at the end."""
        begun = time.perf_counter()
        send = self._producer.send_async
        sends = [send(topic, order_body(one), **_options(one)) for one in range(count)]
        for one in sends:
            one.result()
        return {"seconds": time.perf_counter() - begun}

    def paced(self, topic: str, count: int, interval_s: float) -> dict[str, Any]:
        """Send at a fixed rate; a body is the time of sending."""
        begun = time.perf_counter()
        for number in range(count):
            wait_s = begun + number * interval_s - time.perf_counter()
            if wait_s > 0:
                time.sleep(wait_s)
            self._producer.send_async(topic, b"%020d" % time.perf_counter_ns(), tags="pay")
        self._producer.flush()
        return {}

    def close(self) -> None:
        """Close it."""
        self._producer.close()
        self._connection.close()


class ConsumerSide:
    """The questions to plain members."""

    def __init__(self, data: str) -> None:
        self._connection = Connection.open(Path(data))
        self._listening: GroupConsumer | None = None
        self._took: list[int] = []

    def read(self, topic: str, tags: str, sql: str | None, matching: int) -> dict[str, Any]:
        """Read what matches as a new group: from joining it to the last message."""
        filtered = Subscription.sql(sql) if sql else Subscription.tags(tags)
        begun, count = time.perf_counter(), 0
        with self._connection.consumer(f"against-{time.monotonic_ns()}", topic, filtered) as member:
            while count < matching:
                for batch in member.poll(1.0, 8192):
                    for body in batch.bodies():
                        count += len(body) > 0
                    member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
                if time.perf_counter() - begun > TIMEOUT_S:
                    raise TimeoutError(f"{count} of {matching} messages came")
            return {"seconds": time.perf_counter() - begun}

    def listen(self, topic: str) -> dict[str, Any]:
        """Begin to read a topic."""
        group, everything = f"listens-{time.monotonic_ns()}", Subscription.tags("*")
        self._listening, self._took = self._connection.consumer(group, topic, everything), []
        return {}

    def heard(self, wait_s: float, *, clear: bool) -> dict[str, Any]:
        """Read for a time; return how many messages were read so far, and how long they took."""
        assert self._listening is not None
        end_s = time.perf_counter() + wait_s
        while (left_s := end_s - time.perf_counter()) > 0:
            for batch in self._listening.poll(left_s):
                now_ns = time.perf_counter_ns()
                self._took += [now_ns - int(body) for body in batch.bodies()]
                self._listening.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
        took = sorted(self._took)
        if clear:
            self._took = []
        if not took:
            return {"count": 0}
        p50_ns, p99_ns = took[len(took) // 2], took[len(took) * 99 // 100]
        return {"count": len(took), "p50_ms": p50_ns / 1e6, "p99_ms": p99_ns / 1e6}

    def leave(self) -> dict[str, Any]:
        """End the reading."""
        assert self._listening is not None
        self._listening.close()
        return {}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def main(role: str, data: str) -> None:
    """Answer questions until stdin ends."""
    sides = {"node": NodeSide, "producer": ProducerSide, "consumer": ConsumerSide}
    output = answers_apart()
    side: Any = sides[role](data)
    answer_all(partial(getattr, side), output)
    side.close()


if __name__ == "__main__":
    _, *given = sys.argv
    arguments: Sequence[str] = given
    main(*arguments)

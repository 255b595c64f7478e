"""A program that sends to a topic of a cluster or reads it, as a user's does: see machines.py.

    python benchmarks/machines_traffic.py RAY_ADDRESS CLUSTER

It reads a call a line, a list of JSON: the name of a method of _Traffic, and its arguments. It
answers each with a line: what the method returned.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypedDict

import rocketray as rr
from rocketray.broker.disks.copy_rounds import RoundProgress
from rocketray_bench.bench_node import read_queues, touch_arrow

_BODY_BYTES = 100
_FILLING = bytes(_BODY_BYTES - 12)
_LIST = 1024
_MOVE_S = 5.0


class _Options(TypedDict):
    keys: list[str]
    properties: dict[str, str]


class _Traffic:
    """A client, with a producer that stays open."""

    def __init__(self, client: rr.Client, producer: rr.Producer) -> None:
        self._client = client
        self._producer = producer

    def create(self, topic: str, disks: Sequence[str]) -> None:
        """Create a topic with a queue on each of *disks*."""
        made = self._client.topics.create(topic, len(disks))
        for queue_id, disk in enumerate(disks):
            if made.disk_of(queue_id) != disk:
                while isinstance(
                    self._client.disks.move(topic, queue_id, disk, _MOVE_S), RoundProgress
                ):
                    pass

    def send_async(self, topic: str, count: int) -> float:
        """Return the seconds until all are acknowledged, each sent by a call of its own."""
        begun = time.perf_counter()
        sends = [
            self._producer.send_async(topic, _body(number), **_options(number))
            for number in range(count)
        ]
        for send in sends:
            send.result()
        return time.perf_counter() - begun

    def send_many(self, topic: str, count: int) -> float:
        """Return the seconds for lists, each of which is acknowledged before the next is made."""
        begun = time.perf_counter()
        for batch in _lists(topic, count):
            self._producer.send_many(topic, batch)
        return time.perf_counter() - begun

    def records(self, topic: str, groups: int) -> float:
        """Return the seconds until so many new groups have read all messages, decoded."""
        return sum(self._read(topic, _touch_records) for _ in range(groups))

    def arrow(self, topic: str, groups: int) -> float:
        """Return the seconds until so many new groups have read all, as Arrow batches."""
        return sum(self._read(topic, touch_arrow) for _ in range(groups))

    def stored(self, topic: str) -> int:
        """Return the number of messages of a topic."""
        return sum(self._ends(topic).values())

    def _ends(self, topic: str) -> dict[int, int]:
        statistics = self._client.shard_statistics(topic)
        return {queue_id: each.max_queue_offset for queue_id, each in enumerate(statistics)}

    def _read(self, topic: str, handle: Callable[[rr.ConsumedBatch], None]) -> float:
        ends = {queue_id: end for queue_id, end in self._ends(topic).items() if end}
        group = f"bench-{time.monotonic_ns()}"
        begun = time.perf_counter()
        with self._client.consumer(group, topic, rr.Subscription.tags("*")) as member:
            read_queues({member: ends}, handle)
            return time.perf_counter() - begun


def _touch_records(batch: rr.ConsumedBatch) -> None:
    for message in batch.messages():
        len(message.body)


def _body(number: int) -> bytes:
    return b"%012d" % number + _FILLING


def _options(number: int) -> _Options:
    return {"keys": [f"order-{number}"], "properties": {"amount": str(number % 1000)}}


def _lists(topic: str, count: int) -> Iterator[list[rr.Message]]:
    messages = (rr.Message(topic, _body(number), **_options(number)) for number in range(count))
    while batch := list(itertools.islice(messages, _LIST)):
        yield batch


def main(address: str, cluster: str) -> None:
    """Answer each call."""
    with (
        rr.Client(cluster=cluster, ray_address=address) as client,
        rr.Producer(cluster=cluster, ray_address=address) as producer,
    ):
        traffic = _Traffic(client, producer)
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            print(json.dumps(getattr(traffic, name)(*arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

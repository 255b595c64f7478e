"""A driver that uses a cluster of two disks while the joined one fills up, and has room again.

Its arguments are the Ray's address and the name of the cluster. For each line that comes in it does
a step (a function here), and prints what it found as one object.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections import Counter, defaultdict
from typing import Any

from support.harness.patience import extended, wait_until, wait_until_answered

from rocketray.client import Client
from rocketray.errors import StoreFullError
from rocketray.filters.subscription import Subscription
from rocketray.messaging.producers.producer import NodeProducer

_TOPIC = "Full"
_SIZE = 50_000


class Driver:
    """The client, its producer and its member."""

    def __init__(self, client: Client, producer: NodeProducer) -> None:
        """Create the topic, with a queue on each disk."""
        self._client = client
        self._producer = producer
        topic = client.topics.create(_TOPIC, 2)
        self._far, self._near = (topic.disk_of(0) == "", topic.disk_of(0) != "")
        self._numbers = itertools.count()
        self._sent: dict[int, list[int]] = defaultdict(list)
        self._read: dict[int, list[int]] = defaultdict(list)
        self._is_over = threading.Event()
        self._reading = threading.Thread(target=self._consume)
        self._reading.start()

    def begin(self) -> dict[str, Any]:
        """Send to both queues."""
        for _ in range(10):
            self._send(int(self._far))
            self._send(int(self._near))
        return {}

    def fill(self) -> dict[str, Any]:
        """Send to the queue of the joined disk until it is full."""
        count = 0
        while True:
            try:
                self._send(int(self._far))
            except StoreFullError as error:
                return {"refused": str(error), "sent": count}
            count += 1

    def full(self) -> dict[str, Any]:
        """Use both queues while the disk is full."""
        refused = 0
        for _ in range(20):
            self._send(int(self._near))
            try:
                self._send(int(self._far))
            except StoreFullError:
                refused += 1
        anywhere = Counter(self._send(None) for _ in range(20))
        return {
            "refused": refused,
            "anywhere": sorted(anywhere),
            "near": int(self._near),
            "problems": self._until_problem(is_full=True),
            "all read": self._is_all_read(),
        }

    def room(self) -> dict[str, Any]:
        """Send to the joined disk again."""
        wait_until_answered(lambda: self._send(int(self._far)), StoreFullError)
        for _ in range(10):
            self._send(int(self._far))
        time.sleep(10.0)  # the disk is left out of the turns until then
        return {
            "anywhere": sorted({self._send(None) for _ in range(20)}),
            "problems": self._until_problem(is_full=False),
            "all read": self._is_all_read(),
        }

    def end(self) -> dict[str, Any]:
        """Say what became of all messages."""
        self._is_over.set()
        self._reading.join()
        return {
            "missing": sum(len({*self._sent[q]} - {*self._read[q]}) for q in range(2)),
            "in order": all([*dict.fromkeys(got)] == sorted({*got}) for got in self._read.values()),
            "unknown": sum(len({*self._read[q]} - {*self._sent[q]}) for q in range(2)),
            "sent": sum(map(len, self._sent.values())),
            "read": sum(map(len, self._read.values())),
        }

    def _send(self, queue_id: int | None) -> int:
        number = next(self._numbers)
        body = b"%d" % number
        sent = self._producer.send(_TOPIC, body + b" " * (_SIZE - len(body)), queue_id=queue_id)
        self._sent[sent.queue_id].append(number)
        return sent.queue_id

    def _consume(self) -> None:
        with self._client.consumer("full", _TOPIC, Subscription.tags("*")) as member:
            while not self._is_over.is_set():
                for batch in member.poll(0.2):
                    self._read[batch.queue_id] += [int(body) for body in batch.bodies()]
                    member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)

    def _is_all_read(self) -> bool:
        return wait_until(
            lambda: all({*self._sent[queue]} <= {*self._read[queue]} for queue in range(2))
        )

    def _until_problem(self, *, is_full: bool) -> list[str]:
        def problems() -> tuple[list[str]] | None:
            found = self._client.problems()
            return (found,) if any("% full" in line for line in found) == is_full else None

        return wait_until(problems, self._client.problems)[0]


def main(address: str, cluster: str) -> None:
    """Do the steps that come in."""
    with (
        Client(cluster=cluster, ray_address=address) as client,
        client.producer(ack="disk", timeout_s=extended(10)) as producer,
    ):
        driver = Driver(client, producer)
        for line in sys.stdin:
            found = getattr(driver, line.strip())()
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


main(*sys.argv[1:])

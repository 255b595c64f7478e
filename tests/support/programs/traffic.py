"""A producer and a member that use a queue of a cluster, until all was read."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Self

from support.harness.patience import patience, wait_until

from rocketray.client import Client
from rocketray.errors import ShardUnavailableError
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.messaging.producers.producer import NodeProducer

_TAG = "watched"  # so that a filter works for the consumer


class Traffic:
    """A producer and a member that use queue 0 of a topic, each in a thread.

    One that *is_patient* sends again what was refused, and reads on after an error.
    """

    def __init__(self, client: Client, topic: str, *, is_patient: bool = False) -> None:
        self.sent: list[tuple[str, str]] = []
        self.read: list[str] = []
        self.errors: list[str] = []
        self.times: list[float] = []
        self.read_times: list[float] = []
        self.refused = 0
        self._is_patient = is_patient
        self._looked_at = 0, 0
        self._client = client
        self._topic = topic
        self._is_over = threading.Event()
        runs = self._produce, self._consume
        self._threads = [threading.Thread(target=self._guarded, args=[run]) for run in runs]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(patience(60.0))

    def _is_all_read(self) -> bool:
        return not self._threads[0].is_alive() and len(self.read) >= len(self.sent)

    def go_on(self) -> None:
        """Wait until more was sent and read."""
        count = len(self.read)
        wait_until(lambda: len(self.read) > count + 200 or self.errors)

    def silence(self) -> dict[str, float]:
        """Return the longest time without an acknowledgement, and without a delivery."""
        sent, read = self._looked_at
        self._looked_at = len(self.times) - 1, len(self.read_times) - 1
        return {"sends": gap(self.times[sent:]), "deliveries": gap(self.read_times[read:])}

    def quiet(self) -> dict[str, float]:
        """Return the time since the last acknowledgement, and since the last delivery."""
        now = time.monotonic()
        return {"sends": now - self.times[-1], "deliveries": now - self.read_times[-1]}

    def _produce(self) -> None:
        with self._client.producer(ack="disk") as producer:
            for number in itertools.count(0, 20):
                bodies = [str(number + at) for at in range(20)]
                send = self._send_at_last if self._is_patient else self._send
                self.sent += zip(bodies, send(producer, bodies), strict=True)
                self.times.append(time.monotonic())
                if self._is_over.is_set():
                    return

    def _send(self, producer: NodeProducer, bodies: list[str]) -> list[str]:
        waiting = [
            producer.send_async(self._topic, body.encode(), tags=_TAG, queue_id=0)
            for body in bodies
        ]
        return [one.result().offset_message_id for one in waiting]

    def _send_at_last(self, producer: NodeProducer, bodies: list[str]) -> list[str]:
        """Ask for the results of a list until it is stored: it is stored once."""
        messages = [Message(self._topic, body.encode(), tags=_TAG) for body in bodies]
        sending = producer.begin_many(self._topic, messages, queue_id=0)
        while True:
            try:
                return [one.offset_message_id for one in sending.result()]
            except ShardUnavailableError:
                self.refused += 1
                time.sleep(0.1)

    def _consume(self) -> None:
        tagged = Subscription.tags(_TAG)
        with self._client.consumer(f"of-{self._topic}", self._topic, tagged) as member:
            while not (self.errors or self._is_all_read()):
                for batch in member.poll(0.2):
                    self.read += [body.decode() for body in batch.bodies()]
                    self.read_times.append(time.monotonic())
                    member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:  # noqa: BLE001 - told to the test
            self.errors.append(repr(error))
            self._is_over.set()


def gap(times: list[float]) -> float:
    return round(max((after - before for before, after in pairwise(times)), default=0.0), 2)

"""A producer to be killed: sends numbers in every way, and notes what it is told of each.

Even numbers have the tag ``even``; the property ``amount`` is the number's last two digits. A line
of its notes is a number, what it was told (support/models/history.py), the queue and the queue offset.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from typing import Literal

from support.harness.patience import at_last
from support.models.history import Told
from support.nodes.transactions import begin

from rocketray.actors.client.connected_client import ConnectedClient
from rocketray.client import Client
from rocketray.errors import StoreFullError, StreamError
from rocketray.messaging.producers.batch import SendResult
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.producer_options import SendOptions
from rocketray.messaging.producers.send_future import SendFuture

WINDOW = 500
TRANSACTION_EVERY = 40


class NotingProducer:
    """A producer, and what it waits for."""

    def __init__(self, producer: NodeProducer, topic: str, notes: str) -> None:
        self._producer, self._topic = producer, topic
        self._waiting: deque[tuple[int, SendFuture[SendResult]]] = deque()
        self._notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def send(self, number: int) -> None:
        """Send a number: in a transaction, for disk or for memory."""
        if number % TRANSACTION_EVERY == 3:
            self._decide(number)
            return
        ack: Literal["disk", "memory"] = "memory" if number // 100 % 4 else "disk"
        options = self._of(number)
        options["sharding_key"] = str(number % 16)
        try:
            future = self._producer.send_async(self._topic, b"%d" % number, ack=ack, **options)
        except StreamError as error:
            self._fail(number, error)
        else:
            self._waiting.append((number, future))
        self.settle(WINDOW)

    def settle(self, left: int) -> None:
        """Wait until no more than *left* sends have no result."""
        while len(self._waiting) > left:
            number, future = self._waiting.popleft()
            try:
                stored = future.result()
            except StreamError as error:
                self._fail(number, error)
            else:
                self._note(number, Told.STORED, stored.queue_id, stored.queue_offset)

    def _decide(self, number: int) -> None:
        try:
            transaction = begin(self._producer, self._topic, b"%d" % number, **self._of(number))
            if number % (2 * TRANSACTION_EVERY) == 3:
                transaction.commit()
                self._note(number, Told.COMMITTED)
            else:
                transaction.rollback()
                self._note(number, Told.ROLLED_BACK)
        except StreamError:
            pass  # it may be committed or not

    def _of(self, number: int) -> SendOptions:
        tag = "odd" if number % 2 else "even"
        return {"tags": tag, "properties": {"amount": str(number % 100)}}

    def _fail(self, number: int, error: StreamError) -> None:
        """Refused for lack of room, it is not stored; else that is not known."""
        if isinstance(error, StoreFullError):
            self._note(number, Told.REFUSED)
            time.sleep(0.01)

    def _note(self, number: int, told: Told, queue_id: int = -1, queue_offset: int = -1) -> None:
        os.write(self._notes, f"{number} {told} {queue_id} {queue_offset}\n".encode())


def begin_to_send(node: ConnectedClient) -> NodeProducer:
    """A producer that may send in transactions."""
    return node.producer(group="senders", check=lambda _: "unknown", timeout_s=60.0)


def send_all(
    node: ConnectedClient, place: tuple[str, str], numbers: range, pause_ms: int = 0
) -> None:
    """Send numbers to a topic, and note them in a file; a pause after each thousand."""
    topic, notes = place
    with begin_to_send(node) as producer:
        noting = NotingProducer(producer, topic, notes)
        for number in numbers:
            if pause_ms and number % 1000 == 0:
                time.sleep(pause_ms / 1000)
            noting.send(number)
        noting.settle(0)


def main(data: str, topic: str, notes: str, numbers: range, pause_ms: int) -> None:
    """Send when the node lets it."""
    with at_last(lambda: Client(data)) as client:
        send_all(client, (topic, notes), numbers, pause_ms)


if __name__ == "__main__":
    first, count, pause = map(int, sys.argv[4:])
    main(sys.argv[1], sys.argv[2], sys.argv[3], range(first, first + count), pause)

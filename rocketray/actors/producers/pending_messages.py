"""Messages that are sent in batches, and their outcomes.

An outcome may not be known in time: a shard recovers, its disk is slow, or a call is lost. To send
the batch again would store it twice. So a repeated call for the results waits on, or asks the shard
for the outcome. Only if a shard answered that it did not store a batch, and may later, a new batch
is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rocketray.errors import ShardUnavailableError
from rocketray.message import Message

from .batch import AckMode, Batch, SendResults
from .queue_link import QueueLink

__all__ = ["Part", "PendingMessages", "Sender"]


class Part(NamedTuple):
    """The content of one batch: those of *messages* with these *numbers*."""

    topic: str
    queue_id: int
    messages: Sequence[Message]
    numbers: Sequence[int]


class Sender(Protocol):
    """The producer calls that pending messages need."""

    def hand_over_part(self, part: Part, ack: AckMode | None) -> tuple[QueueLink, Batch]:
        """Build a batch and send it."""

    def settle(self, link: QueueLink, batch: Batch, timeout_s: float | None) -> None:
        """Wait until the outcome of a batch is known."""

    def ask_again(self, link: QueueLink, batch: Batch) -> None:
        """Call the shard again with a batch whose outcome a call left unknown."""


class PendingMessages:
    """Messages being sent. For one thread at a time."""

    def __init__(self, sender: Sender, parts: Sequence[Part], ack: AckMode | None) -> None:
        self._sender = sender
        self._parts = parts
        self._ack = ack
        self._placed: dict[int, tuple[QueueLink, Batch]] = {}

    def results(self, timeout_s: float | None = None) -> SendResults:
        """Send what was not yet sent, wait until all is stored, return results in message order.

        After a part that is not stored, or not known to be, no later part is sent to its queue.

        Raises:
            ShardUnavailableError: some are not stored yet, or it is not known; call again.
            StreamError: a shard refused a batch, and nothing of that batch was stored.
        """
        held: set[tuple[str, int]] = set()
        for number, part in enumerate(self._parts):
            place = part.topic, part.queue_id
            if place in held:
                continue
            if number not in self._placed:
                self._placed[number] = self._sender.hand_over_part(part, self._ack)
            elif self._placed[number][1].unsure is not None:
                self._sender.ask_again(*self._placed[number])
            if self._placed[number][1].has_failed:
                held.add(place)
        for number, (link, batch) in list(self._placed.items()):
            self._sender.settle(link, batch, timeout_s)
            try:
                batch.check()
            except ShardUnavailableError:
                if batch.unsure is None:
                    del self._placed[number]
                raise
        found = [(self._placed[number][1], part.numbers) for number, part in enumerate(self._parts)]
        return SendResults(found, sum(len(part.numbers) for part in self._parts))

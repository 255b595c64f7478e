"""Messages that are sent in batches, and what becomes of them.

That may not be known in time: a shard recovers, its disk is slow, or a call is lost. To send a
batch anew would store it twice, so whoever asks again waits on, or has the shard asked what became
of it. Only where a shard said that it did not store a batch, and may later, a new one is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rocketray.errors import ShardUnavailableError
from rocketray.message import Message

from .batch import AckMode, Batch, SendResults
from .queue_link import Lane

__all__ = ["Part", "PendingMessages", "Sender"]


class Part(NamedTuple):
    """What goes as one batch: those of *messages* that *numbers* names."""

    topic: str
    queue_id: int
    messages: Sequence[Message]
    numbers: Sequence[int]


class Sender(Protocol):
    """What the messages need of their producer."""

    def hand_over_part(self, part: Part, ack: AckMode | None) -> tuple[Lane, Batch]:
        """Make a batch and hand it over."""

    def settle(self, lane: Lane, batch: Batch, timeout_s: float | None) -> None:
        """Wait until the shard said what became of a batch."""

    def ask_again(self, lane: Lane, batch: Batch) -> None:
        """Call the shard again with a batch of which a call did not say what became."""


class PendingMessages:
    """Messages on their way, for one thread at a time."""

    def __init__(self, sender: Sender, parts: Sequence[Part], ack: AckMode | None) -> None:
        self._sender = sender
        self._parts = parts
        self._ack = ack
        self._placed: dict[int, tuple[Lane, Batch]] = {}

    def results(self, timeout_s: float | None = None) -> SendResults:
        """Hand over what was not yet, and wait until all is stored; in the messages' order.

        Behind a part that is known not to be stored, or not known to be, none goes to its queue.

        Raises:
            ShardUnavailableError: some are not stored yet, or it is not known; ask again.
            StreamError: a shard refused a batch, and nothing of that was stored.
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
        for number, (lane, batch) in list(self._placed.items()):
            self._sender.settle(lane, batch, timeout_s)
            try:
                batch.check()
            except ShardUnavailableError:
                if batch.unsure is None:
                    del self._placed[number]
                raise
        found = [(self._placed[number][1], part.numbers) for number, part in enumerate(self._parts)]
        return SendResults(found, sum(len(part.numbers) for part in self._parts))

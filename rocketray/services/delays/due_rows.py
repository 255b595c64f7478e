"""Delayed messages that are due: read from the queue where they waited."""

from __future__ import annotations

import logging

import numpy as np

from rocketray.base.delay import restored
from rocketray.broker.retries.deliveries import Place
from rocketray.broker.retries.undeliverable import delayed_letter
from rocketray.errors import InvalidMessageError
from rocketray.message import ForwardedMessage, StoredMessage

from .due_times import Due
from .waiting_queue import WaitingQueue

_LOG = logging.getLogger(__name__)
NOWHERE: Place = "", 0
"""The target of a message that does not name its topic."""


class DueRow:
    """One message that is due, and the place where it waited."""

    __slots__ = ("due", "is_doubtful", "message", "offset", "place", "queue", "stored", "target")

    def __init__(self, queue: WaitingQueue, due: Due, stored: StoredMessage | None) -> None:
        """Take *stored*, the waiting message, which is None if it cannot be read."""
        self.queue = queue
        self.due = due
        self.offset = int(due.offsets[0])
        self.place: Place = queue.topic, queue.queue_id
        self.stored = stored
        self.is_doubtful = False
        """Whether an attempt with unknown outcome may have delivered it."""
        self.message: ForwardedMessage | None = None
        self.target = NOWHERE
        if stored is not None:
            try:
                self.message, queue_id = restored(stored)
                self.target = self.message.topic, queue_id
            except InvalidMessageError as error:
                _LOG.error("a delayed message is dead-lettered: %s", error)

    def is_at(self, place: Place, offset: int) -> bool:
        return self.offset == offset and self.place == place

    def forwarded(self) -> ForwardedMessage:
        assert self.message is not None
        return self.message

    def letter(self) -> ForwardedMessage:
        """Return the message, which could be read, as a dead letter."""
        assert self.stored is not None
        return delayed_letter(self.stored, None if self.message is None else self.target)


def read_rows(queue: WaitingQueue, due: Due) -> dict[int, DueRow]:
    """Return the messages that are not done, by their numbers in *due*."""
    waiting = np.flatnonzero(~queue.are_done(due.offsets))  # the others were recalled
    if not len(waiting):
        return {}
    offsets = due.offsets[waiting]
    entries = queue.records.entries(offsets)
    messages = queue.records.messages(entries)
    at = np.searchsorted(entries.queue_offsets, offsets).tolist()
    return {
        number: DueRow(queue, due.part(slice(number, number + 1)), messages[place])
        for number, place in zip(waiting.tolist(), at, strict=True)
    }

"""The queues of messages that have none, in turn; those of a disk that fails are left out.

A queue gets a batch, or the messages of some milliseconds, before it is the next one's turn: so
messages that are sent one after the other meet a shard that is awake, and share its batches. Kafka
does so, too (KIP-480). The first turn of a program's producer is a random one, as in RocketMQ:
else programs that send a message each, such as commands, would all use the first queue. Each topic
has turns of its own, as there (``TopicPublishInfo``): else a program that sends to two topics by
turns would use every other queue of both.

A disk that fails is left out as in RocketMQ, where a producer leaves out a broker for a while after
a send to it failed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rocketray.broker.topics.catalog import TopicConfig

AVOIDED_S = 10.0
"""How long the queues of a disk are left out after one of them was unavailable, or full.

So of the sends without a queue one in ten seconds tries it; Ray needs some seconds to start a
process again.
"""
STAY_S = 0.01
"""How long a queue gets all single messages of a topic."""
STAY_MESSAGES = 1024
"""How many single messages a queue gets at most in that time: a full batch (``BATCH_MAX``)."""


@dataclass(slots=True)
class _Stay:
    """The queue that gets the single messages of a topic now."""

    queue_id: int
    disk: str
    until_s: float
    left: int = STAY_MESSAGES - 1


class QueueTurns:
    """The turns of one producer; for any thread."""

    def __init__(self, clock_s: Callable[[], float] | None = None, *, first: int = 0) -> None:
        """Begin with the turn *first*; take a monotonic clock, by default this process's."""
        self._clock_s = clock_s or time.monotonic
        self._first = first
        self._turns: dict[str, Iterator[int]] = {}  # by topic
        self._avoided: dict[str, float] = {}
        self._stays: dict[str, _Stay] = {}

    def of_message(self, topic: TopicConfig) -> int:
        """Return the queue of a single message: that of the one before it, if that was just now."""
        now_s = self._clock_s()
        queue_id = self.staying(topic.name, now_s)
        if queue_id is None or queue_id >= topic.queues:
            queue_id = self.next(topic)
            self._stays[topic.name] = _Stay(queue_id, topic.disk_of(queue_id), now_s + STAY_S)
        return queue_id

    def staying(self, topic: str, now_s: float) -> int | None:
        """Return the queue of the single message before, of the same topic; None if it had enough.

        A topic may have fewer queues by now.
        """
        stay = self._stays.get(topic)
        if stay is None or now_s >= stay.until_s or stay.left <= 0:
            return None
        if self._avoided and self.is_avoided(stay.disk):
            return None
        stay.left -= 1
        return stay.queue_id

    def next(self, topic: TopicConfig) -> int:
        """Return the next queue of a topic; if all disks fail, that is any."""
        turns = self._turns.get(topic.name)
        if turns is None:
            turns = self._turns.setdefault(topic.name, itertools.count(self._first))
        turn = next(turns)
        if self._avoided:
            now_s = self._clock_s()
            self._avoided = {disk: end for disk, end in self._avoided.items() if end > now_s}
            usable = [at for at in range(topic.queues) if topic.disk_of(at) not in self._avoided]
            if usable:
                return usable[turn % len(usable)]
        return turn % topic.queues

    def elsewhere(self, topic: TopicConfig) -> int | None:
        """Return the next queue of a topic on a disk that does not fail; None if there is none."""
        queue_id = self.next(topic)
        return None if self.is_avoided(topic.disk_of(queue_id)) else queue_id

    def avoid(self, disk: str) -> None:
        """Leave out the queues of a disk for some time: one of them was unavailable, or full."""
        self._avoided = {**self._avoided, disk: self._clock_s() + AVOIDED_S}

    def is_avoided(self, disk: str) -> bool:
        """Return whether the queues of a disk are left out now."""
        end_s = self._avoided.get(disk)
        return end_s is not None and end_s > self._clock_s()

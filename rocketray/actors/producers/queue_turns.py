"""The queues of messages that have none, in turn; those of a disk that fails are left out.

As in RocketMQ, where a producer leaves out a broker for a while after a send to it failed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from rocketray.actors.topics.catalog import TopicConfig

__all__ = ["AVOIDED_S", "QueueTurns"]

AVOIDED_S = 10.0
"""How long the queues of a disk are left out after one of them was unavailable, or full."""


class QueueTurns:
    """The turns of one producer; for any thread."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Take a monotonic clock."""
        self._clock_s = clock_s
        self._turn = itertools.count()
        self._avoided: dict[str, float] = {}

    def next(self, topic: TopicConfig) -> int:
        """Return the next queue of a topic; if all disks fail, that is any."""
        turn = next(self._turn)
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
        return self._avoided.get(disk, 0.0) > self._clock_s()

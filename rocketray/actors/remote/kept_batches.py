"""Buffered batches of paused queues.

Messages that a node has sent to a remote member cannot be called back, so they wait here. A queue
with many of them is paused at the node.

Invariants
  1. The batches of a queue come out in the order in which they came in.
  2. A queue is paused at the node from when it has much here until it has nothing here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable

from rocketray.actors.topics.consumed_batch import ConsumedBatch

__all__ = ["KeptBatches"]

_MUCH_BYTES = 4 * 1024 * 1024
_MANY = 64  # a batch may be empty, and only move the queue on


class KeptBatches:
    """The buffer of one member, used by its polling thread."""

    def __init__(self) -> None:
        self._queues: dict[int, deque[ConsumedBatch]] = {}
        self._left_alone: frozenset[int] = frozenset()

    def sort(self, batches: Iterable[ConsumedBatch], skip: Container[int]) -> list[ConsumedBatch]:
        """Keep the batches of paused queues, and those behind kept ones; return the others."""
        passed = []
        for batch in batches:
            if batch.queue_id in skip or batch.queue_id in self._queues:
                self._queues.setdefault(batch.queue_id, deque()).append(batch)
            else:
                passed.append(batch)
        return passed

    def take(self, skip: Container[int]) -> list[ConsumedBatch]:
        """Take the first batch of each queue that is not in *skip*."""
        taken = []
        for queue_id, kept in list(self._queues.items()):
            if queue_id not in skip:
                taken.append(kept.popleft())
                if not kept:
                    del self._queues[queue_id]
        return taken

    def left_alone(self) -> frozenset[int]:
        """Return the queues to pause at the node."""
        self._left_alone = frozenset(
            queue_id
            for queue_id, kept in self._queues.items()
            if queue_id in self._left_alone
            or len(kept) >= _MANY
            or sum(batch.size_bytes for batch in kept) >= _MUCH_BYTES
        )
        return self._left_alone

    def drop(self, queue_ids: Iterable[int]) -> None:
        """Drop the batches of revoked queues."""
        for queue_id in queue_ids:
            self._queues.pop(queue_id, None)

"""Flow control: how much of a queue may be on its way between the node and the handlers.

RocketMQ's limits for a queue, ``pullThresholdForQueue``, ``pullThresholdSizeForQueue`` and
``consumeConcurrentlyMaxSpan``, for a feed, which reads all queues of one member. A feed that keeps
order divides them among its queues, because one of them may rest for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from rocketray.errors import ConfigError

__all__ = ["FlowLimits", "SharedWindow", "Window"]

_MIB = 1024 * 1024
_QUEUE_POLL_MIN = 256  # fewer at a time cost more than they bound


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """When an agent stops reading until its handlers caught up.

    ``messages`` and ``size_bytes``, of stored records, are what may wait for the handlers of one
    agent in this process; a poll may go over either once, over the first by half of it, or by 256
    messages a queue where that is more. Half of both is divided among the queues of an ordered agent. ``span`` is how many messages of a queue may be finished behind
    one that is not: so many come again when the process dies, and those that wait. For an ordered agent it counts
    only where messages are acknowledged by hand.
    """

    messages: int = 8192
    size_bytes: int = 100 * _MIB
    span: int = 65_536

    def __post_init__(self) -> None:
        for name in ("messages", "size_bytes", "span"):
            if getattr(self, name) < 1:
                raise ConfigError(f"flow limit {name} is {getattr(self, name)}; it is 1 or more")


class Window:
    """Counts what is on its way; one thread adds and waits, the app's loop takes away."""

    full: AbstractSet[int] = frozenset()
    """The queues that may not be read on, as they are at any moment."""

    def __init__(self, limits: FlowLimits) -> None:
        self.queue_poll_max = min(_QUEUE_POLL_MIN, limits.messages)
        """How many messages of each queue a poll may bring: of all together half the limit."""
        self._limits = limits
        self._messages = self._bytes = 0
        self._held = False
        self._changed = threading.Condition()

    def share(self, queue_ids: AbstractSet[int]) -> None:
        """In the thread: these are the queues that are read."""
        part = self._limits.messages // (2 * max(1, len(queue_ids)))
        self.queue_poll_max = max(part, min(_QUEUE_POLL_MIN, self._limits.messages))

    def wait_for_room(self, timeout_s: float) -> bool:
        """True as soon as a poll may follow."""
        with self._changed:
            return self._changed.wait_for(self._may_poll, timeout_s)

    def add(self, queue_id: int, messages: int, size_bytes: int) -> None:
        """Messages of a queue set out."""
        with self._changed:
            self._count(queue_id, messages, size_bytes)

    def remove(self, queue_id: int, messages: int, size_bytes: int) -> None:
        """Messages arrived at a handler and were passed, or were dropped."""
        with self._changed:
            self._count(queue_id, -messages, -size_bytes)
            self._changed.notify()

    def hold(self, *, held: bool) -> None:
        """Let nothing follow, or let it again."""
        with self._changed:
            self._held = held
            self._changed.notify()

    def _may_poll(self) -> bool:
        return not self._held and self._has_room()

    def _count(self, queue_id: int, messages: int, size_bytes: int) -> None:  # noqa: ARG002  # all are one here
        self._messages += messages
        self._bytes += size_bytes

    def _has_room(self) -> bool:
        return self._messages < self._limits.messages and self._bytes < self._limits.size_bytes


class SharedWindow(Window):
    """One half is for whichever queues need it; of the other each queue has an equal share.

    So a queue that rests leaves the others their shares, and one that is busy alone is not bound to
    its own. The whole is for a queue that is alone.
    """

    def __init__(self, limits: FlowLimits, wake: Callable[[], None]) -> None:
        """*wake* ends a poll that waits; called when queues are full no more."""
        super().__init__(limits)
        self._wake = wake
        self._queues: AbstractSet[int] = frozenset()
        self._counts: dict[int, tuple[int, int]] = {}  # messages and bytes
        self.full: set[int] = set()

    def share(self, queue_ids: AbstractSet[int]) -> None:
        """In the thread: the limits are divided among these queues."""
        super().share(queue_ids)
        if queue_ids != self._queues:
            with self._changed:
                self._queues = queue_ids
                self._open()

    def _count(self, queue_id: int, messages: int, size_bytes: int) -> None:
        super()._count(queue_id, messages, size_bytes)
        old_messages, old_bytes = self._counts.get(queue_id, (0, 0))
        self._counts[queue_id] = old_messages + messages, old_bytes + size_bytes
        if self._open():
            self._wake()

    def _open(self) -> bool:
        """Whether queues that were full are so no more."""
        opened = {queue_id for queue_id in self.full if not self._is_full(queue_id)}
        self.full -= opened
        return bool(opened)

    def _is_full(self, queue_id: int) -> bool:
        messages, size_bytes = self._counts[queue_id]
        limits = self._limits
        return self._is_over(messages, self._messages, limits.messages) or self._is_over(
            size_bytes, self._bytes, limits.size_bytes
        )

    def _is_over(self, own: int, total: int, limit: int) -> bool:
        queues = len(self._queues)
        if queues < 2:  # with one there is nothing to share
            return own >= limit
        return 2 * total >= limit and 2 * queues * own >= limit

    def _has_room(self) -> bool:
        self.full.update(filter(self._is_full, self._counts))
        return not self._queues or not self._queues <= self.full

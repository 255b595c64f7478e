"""Flow control: the limits of messages in flight between the node and the handlers.

RocketMQ's limits for a queue, ``pullThresholdForQueue``, ``pullThresholdSizeForQueue`` and
``consumeConcurrentlyMaxSpan``, applied to a feed, which reads all queues of one member. An ordered
feed divides them among its queues, because one of them may pause for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from rocketray.errors import ConfigError

_MIB = 1024 * 1024
_QUEUE_POLL_MIN = 256  # smaller polls cost more than they bound


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """The limits at which an agent stops reading until its handlers have caught up.

    - ``messages`` and ``size_bytes``, of stored records, limit what waits for the handlers of one
      agent in this process. A poll may exceed either once, the first by half of it, or by 256
      messages a queue where that is more. Half of both is divided among the queues of an ordered
      agent.
    - ``span`` limits the finished messages of a queue behind an unfinished one. When the process
      dies, so many are redelivered, and those that wait. For an ordered agent it applies only where
      messages are acknowledged by hand.
    """

    messages: int = 8192  # two full polls: one is handled while the next is read
    size_bytes: int = 100 * _MIB  # RocketMQ's pullThresholdSizeForQueue
    span: int = 65_536

    def __post_init__(self) -> None:
        for name in ("messages", "size_bytes", "span"):
            if getattr(self, name) < 1:
                raise ConfigError(f"flow limit {name} is {getattr(self, name)}; give 1 or more")


class Window:
    """Counts messages in flight; one thread adds and waits, the app's loop removes."""

    full: AbstractSet[int] = frozenset()
    """The queues that are full now and must not be read."""

    def __init__(self, limits: FlowLimits) -> None:
        self.queue_poll_max = min(_QUEUE_POLL_MIN, limits.messages)
        """How many messages of each queue a poll may return: of all together half the limit."""
        self._limits = limits
        self._messages = self._bytes = 0
        self._held = False
        self._changed = threading.Condition()

    def share(self, queue_ids: AbstractSet[int]) -> None:
        """Set the queues that are read; called in the thread."""
        part = self._limits.messages // (2 * max(1, len(queue_ids)))
        self.queue_poll_max = max(part, min(_QUEUE_POLL_MIN, self._limits.messages))

    def wait_for_room(self, timeout_s: float) -> bool:
        """Return True as soon as a poll may follow, False after *timeout_s*."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._held and self._has_room(), timeout_s)

    def add(self, queue_id: int, messages: int, size_bytes: int) -> None:
        with self._changed:
            self._count(queue_id, messages, size_bytes)

    def remove(self, queue_id: int, messages: int, size_bytes: int) -> None:
        """Remove messages that a handler has passed, or that were dropped."""
        with self._changed:
            self._count(queue_id, -messages, -size_bytes)
            self._changed.notify()

    def hold(self, *, held: bool) -> None:
        """Stop further polls, or allow them again."""
        with self._changed:
            self._held = held
            self._changed.notify()

    # SharedWindow counts by queue; here all queues are one.
    def _count(self, queue_id: int, messages: int, size_bytes: int) -> None:  # noqa: ARG002
        self._messages += messages
        self._bytes += size_bytes

    def _has_room(self) -> bool:
        return self._messages < self._limits.messages and self._bytes < self._limits.size_bytes


class SharedWindow(Window):
    """A window where queues share one half as needed, and each has an equal part of the other.

    So a queue that pauses leaves the others their parts, and a single busy queue may use more than
    its own. A queue that is alone has the whole.
    """

    def __init__(self, limits: FlowLimits, wake: Callable[[], None]) -> None:
        """Create a window; *wake* ends a waiting poll; it is called when queues have room again."""
        super().__init__(limits)
        self._wake = wake
        self._queues: AbstractSet[int] = frozenset()
        self._counts: dict[int, tuple[int, int]] = {}  # messages and bytes
        self.full: set[int] = set()

    def share(self, queue_ids: AbstractSet[int]) -> None:
        """Divide the limits among these queues; called in the thread."""
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
        """Reopen the queues that are no longer full; return whether there were any."""
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
        # The shared half is in use, and so is the queue's equal part of the other half.
        return 2 * total >= limit and 2 * queues * own >= limit

    def _has_room(self) -> bool:
        self.full.update(filter(self._is_full, self._counts))
        return not self._queues or not self._queues <= self.full

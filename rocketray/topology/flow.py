"""Flow control: how much of a queue may be on its way between the node and the handlers.

RocketMQ's limits for a queue, ``pullThresholdForQueue``, ``pullThresholdSizeForQueue`` and
``consumeConcurrentlyMaxSpan``, for a feed, which reads all queues of one member.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from rocketray.errors import ConfigError

__all__ = ["FlowLimits", "Window"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """When an agent stops reading until its handlers caught up.

    ``messages`` and ``size_bytes``, of stored records, are what may wait for the handlers of one
    agent in this process; a poll may go over either once. ``span`` is how many messages of a queue
    may be finished behind one that is not: so many come again when the process dies, and those
    that wait.
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

    def __init__(self, limits: FlowLimits) -> None:
        self._limits = limits
        self._messages = self._bytes = 0
        self._held = False
        self._changed = threading.Condition()

    def wait_for_room(self, timeout_s: float) -> bool:
        """True as soon as a poll may follow."""
        with self._changed:
            return self._changed.wait_for(self._has_room, timeout_s)

    def add(self, messages: int, size_bytes: int) -> None:
        """Messages set out."""
        with self._changed:
            self._messages += messages
            self._bytes += size_bytes

    def remove(self, messages: int, size_bytes: int) -> None:
        """Messages arrived at a handler and were passed, or were dropped."""
        with self._changed:
            self._messages -= messages
            self._bytes -= size_bytes
            self._changed.notify()

    def hold(self, *, held: bool) -> None:
        """Let nothing follow, or let it again."""
        with self._changed:
            self._held = held
            self._changed.notify()

    def _has_room(self) -> bool:
        limits = self._limits
        return (
            not self._held and self._messages < limits.messages and self._bytes < limits.size_bytes
        )

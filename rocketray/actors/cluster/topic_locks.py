"""The locks of topics that come or go: a new topic waits for the old one's stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rocketray.hashing import java_hash_code

_LOCKS = 64  # topics that share a lock only wait for each other


class TopicLocks:
    """A lock for each topic, by its name; taken before the lock of the state, never under it."""

    def __init__(self) -> None:
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    @contextmanager
    def of(self, *names: str) -> Iterator[None]:
        """Hold the locks of topics; callers with several take them in one order."""
        with ExitStack() as held:
            for number in sorted({java_hash_code(name) % _LOCKS for name in names}):
                held.enter_context(self._locks[number])
            yield

"""What a member on another node finished and gave back, on its way to the gateway.

Invariants
  1. Commits reach the stand-in in the order in which they were made: one call at a time.
     Each has a number: one that is carried out late, after a later one, commits nothing.
  2. What a call that failed was to say is said again, unless the member joined again meanwhile:
     what it had not committed then comes again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["RemoteCommits"]

_T = TypeVar("_T")


class RemoteCommits:
    """Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calling = threading.Lock()  # held from taking commits until they are answered
        self._name = ""
        self._commits: dict[int, int] = {}
        self._sent_back = self._dead_lettered = 0
        self._number = 0

    def begin(self, name: str) -> None:
        """The stand-in is that of *name*; what was to be said to another one is forgotten."""
        with self._lock:
            self._name, self._commits = name, {}

    def put(self, queue_id: int, next_queue_offset: int) -> None:
        """Everything of the queue below the offset is finished."""
        with self._lock:
            self._commits[queue_id] = next_queue_offset

    def count_returns(self, sent_back: int, dead_lettered: int) -> None:
        """Add to what the member gave back."""
        with self._lock:
            self._sent_back += sent_back
            self._dead_lettered += dead_lettered

    def send(self, call: Callable[[str, dict[int, int], int], _T]) -> _T:
        """Have *call* tell the stand-in what is finished, with its number; and what it answers."""
        with self._calling:
            with self._lock:
                name, commits = self._name, self._commits
                self._commits = {}
                self._number += 1
                number = self._number
            try:
                return call(name, commits, number)
            except Exception:
                with self._lock:
                    if name == self._name:
                        self._commits = {**commits, **self._commits}
                raise

    def tell_returns(self, tell: Callable[[str, int, int], None]) -> None:
        """Have *tell* say how many were given back, if any were."""
        with self._lock:
            name, sent_back, dead_lettered = self._name, self._sent_back, self._dead_lettered
        if sent_back or dead_lettered:
            tell(name, sent_back, dead_lettered)
        with self._lock:
            self._sent_back -= sent_back
            self._dead_lettered -= dead_lettered

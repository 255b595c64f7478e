"""The commits and returns of a remote member, on their way to the gateway.

Invariants
  1. Commits reach the proxy in the order in which they were made: one call at a time. Each call has
     a number; a call carried out after a later one commits nothing.
  2. The content of a failed call is sent again, unless the member joined again meanwhile: then the
     uncommitted messages are redelivered.
  3. Returns travel as sums since the member joined, so a repeated call counts nothing twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["RemoteCommits"]

_T = TypeVar("_T")


class RemoteCommits:
    """Unsent commits and counts of one remote member; any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calling = threading.Lock()  # held until the taken commits are answered
        self._name = ""
        self._commits: dict[int, int] = {}
        self._returns = self._told_returns = (0, 0)  # sent back, dead-lettered
        self._number = 0

    def begin(self, name: str) -> None:
        """Send to the proxy *name* from now on; drop the commits for another one."""
        with self._lock:
            self._name, self._commits = name, {}
            self._returns = _difference(self._returns, self._told_returns)
            self._told_returns = 0, 0

    def put(self, queue_id: int, next_queue_offset: int) -> None:
        """Mark the queue as finished below the offset."""
        with self._lock:
            self._commits[queue_id] = next_queue_offset

    def count_returns(self, sent_back: int, dead_lettered: int) -> None:
        """Add to the messages that the member sent back or dead-lettered."""
        with self._lock:
            self._returns = self._returns[0] + sent_back, self._returns[1] + dead_lettered

    def send(self, call: Callable[[str, dict[int, int], int], _T]) -> _T:
        """Pass name, commits and number to *call*; keep the commits if it fails."""
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
        """Pass name and sums of returned messages to *tell*, if they grew since it took them."""
        with self._lock:
            name, returns, told = self._name, self._returns, self._told_returns
        if returns == told:
            return
        tell(name, *returns)
        with self._lock:
            if name == self._name:
                self._told_returns = returns
            else:  # counted under the earlier name
                self._returns = _difference(self._returns, _difference(returns, told))


def _difference(sums: tuple[int, int], less: tuple[int, int]) -> tuple[int, int]:
    return sums[0] - less[0], sums[1] - less[1]

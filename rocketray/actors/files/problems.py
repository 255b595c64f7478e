"""Current problems of a running node: lines of text for ``rocketray status``.

- A problem is noted under its subject: a state file, a shard, a directory. A new line for a subject
  replaces the one before it; a problem that is over is resolved.
- Each line says what is wrong, where, and what to do.
- A state file that was damaged and repaired, by any process, is a problem until the operator
  removes the damaged file (state_files.py).
- The coordinator keeps the node's problems and returns their lines.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from .state_files import repaired_files

__all__ = ["Problems"]

_LOG = logging.getLogger(__name__)


class Problems:
    """The problems of one node. Safe to use from several threads."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._lines: dict[str, str] = {}

    def note(self, subject: str, line: str) -> None:
        """Record that something is wrong with *subject*; logged when it is new."""
        with self._lock:
            is_new = self._lines.get(subject) != line
            self._lines[subject] = line
        if is_new:
            _LOG.warning("%s", line)

    def resolve(self, subject: str) -> None:
        """Record that nothing is wrong with *subject* any more."""
        with self._lock:
            self._lines.pop(subject, None)

    def lines(self) -> list[str]:
        """Return the lines: of files first, then of the rest, ordered by subject."""
        with self._lock:
            noted = [line for _, line in sorted(self._lines.items())]
        return repaired_files(self._data) + noted

"""What is wrong with a node that runs: lines of text for ``rocketray status``.

A problem is noted under the name of what it is about: a file of the state, a shard, a directory.
Noted again, it replaces the line before it; once it is over, it is resolved. Each says what is
wrong, where, and what to do. A file that was damaged and mended, by whichever process, is a problem
until somebody removes what was damaged (state_files.py). The coordinator has the node's problems, and
answers with their lines.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from .state_files import mended_files

__all__ = ["Problems"]

_LOG = logging.getLogger(__name__)


class Problems:
    """The problems of one node. Safe to use from several threads."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._lines: dict[str, str] = {}

    def note(self, subject: str, line: str) -> None:
        """Say that something is wrong with *subject*; logged when it is new."""
        with self._lock:
            is_new = self._lines.get(subject) != line
            self._lines[subject] = line
        if is_new:
            _LOG.warning("%s", line)

    def resolve(self, subject: str) -> None:
        """Say that nothing is wrong with *subject* any more."""
        with self._lock:
            self._lines.pop(subject, None)

    def lines(self) -> list[str]:
        """The lines: of files first, then of the rest, ordered by what they are about."""
        with self._lock:
            noted = [line for _, line in sorted(self._lines.items())]
        return mended_files(self._data) + noted

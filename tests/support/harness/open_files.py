"""Keeps the number of open files low, where cycles of objects hold files that are closed to us.

A mapped control page or doorbell lives as long as its owner, and the owners refer to each other;
only a collection frees them. The default limit of open files is 1,024 in most shells, and Spark's
tests need descriptors below that number (``check_callbacks``).

Some descriptors stay open for good. Each collection takes a third of a second in a process with
many modules, so it is not repeated after each test for their sake.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

MANY_FILES = 500
MORE_FILES = 100


class _OpenFiles:
    """How many files may be open until garbage is collected."""

    def __init__(self) -> None:
        self._limit = MANY_FILES

    def look(self) -> None:
        """Collect garbage if more are open; those that stay count as needed."""
        if _next_descriptor() > self._limit:
            gc.collect()
            self._limit = max(MANY_FILES, _next_descriptor() + MORE_FILES)


_FILES = _OpenFiles()


def close_unreachable_files() -> None:
    """Collect garbage if this process has many open files."""
    _FILES.look()


def _next_descriptor() -> int:
    with Path(os.devnull).open() as file:
        return file.fileno()

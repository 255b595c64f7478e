"""Keeps the number of open files low, where cycles of objects hold files that are closed to us.

A mapped control page or doorbell lives as long as its owner, and the owners refer to each other;
only a collection frees them. The default limit of open files is 1,024 in most shells, and Spark's
tests need descriptors below that number (``check_callbacks``).
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

__all__ = ["close_unreachable_files"]

MANY_FILES = 500


def close_unreachable_files() -> None:
    """Collect garbage if this process has many open files."""
    with Path(os.devnull).open() as file:
        next_descriptor = file.fileno()
    if next_descriptor > MANY_FILES:
        gc.collect()

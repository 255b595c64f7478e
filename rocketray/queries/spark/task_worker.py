"""What a task does once in its worker, which Spark uses for many tasks."""

from __future__ import annotations

import gc
from functools import lru_cache


@lru_cache(maxsize=1)
def freeze_modules() -> None:
    """Leave what this worker has loaded out of its collections of garbage (daemon.py)."""
    gc.freeze()

"""How much a random test does: in ``make test`` a tenth of it, and all of it in ``make test-slow``.

A test that repeats a seed with which it failed in the past always does all, unless the entry in
data/failed_seeds.json says why a fifth is enough, or why ``make test`` needs none of it: the fixture
``amount`` of conftest.py.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

ALL = bool(os.environ.get("ROCKETRAY_TEST_ALL"))
"""Whether this is a run of ``make test-slow``."""


def tenth(count: int) -> int:
    """Return how much to do of *count* steps, histories or examples."""
    return count if ALL else max(1, count // 10)


def fifth(count: int) -> int:
    """Return how much of it to do with a seed whose entry says that a fifth repeats the failure."""
    return count if ALL else max(1, count // 5)


def examples(count: int, **options: Any) -> settings:
    """Return the settings of a test with up to *count* examples that may take long."""
    return settings(max_examples=tenth(count), deadline=None, **options)

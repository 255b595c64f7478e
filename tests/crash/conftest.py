"""What tests with a disk in memory leave behind them: nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _close_files() -> Iterator[None]:
    """A simulated disk in a cycle keeps its files open, and Spark's tests need low descriptors."""
    yield
    gc.collect()

"""Pytest fixtures: ``pytest_plugins = ["rocketray.testing.fixtures"]`` in a ``conftest.py``.

Named there and not by an entry point, so that test runs that do not use them do not pay for them.
The broker is imported when a test first requests one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from . import Broker, Clock

__all__ = ["broker", "clock"]


@pytest.fixture
def clock() -> Clock:
    """Return the broker's clock; it stands still until the test advances it."""
    from . import Clock  # noqa: PLC0415 - at the first request

    return Clock()


@pytest.fixture
def broker(tmp_path: Path, clock: Clock) -> Iterator[Broker]:
    """Yield an empty node in this process that is driven by ``clock``."""
    from . import Broker  # noqa: PLC0415 - at the first request

    with Broker(tmp_path / "rocketray", clock=clock) as node:
        yield node

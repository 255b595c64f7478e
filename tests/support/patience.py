"""What a supervisor does for a program: begin again until it can."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from rocketray.errors import StreamError

__all__ = ["AGAIN_S", "at_last"]

AGAIN_S = 0.5
_T = TypeVar("_T")


def at_last(begin: Callable[[], _T]) -> _T:
    """Begin when the node lets it: it may have no room just now, or be down."""
    while True:
        try:
            return begin()
        except StreamError as error:
            sys.stderr.write(f"it cannot begin yet: {error}\n")
            time.sleep(AGAIN_S)

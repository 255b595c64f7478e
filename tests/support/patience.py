"""How long tests wait: their seconds are those of a quick machine, times one factor.

A run measures the factor once, in the process that begins it, and hands it on in the environment:
``ROCKETRAY_TEST_PATIENCE``, which a person may set as well. A wait ends when what it waits for is
there, so a large factor costs a passing run nothing. A time limit that has to pass before a test
can go on is no wait, and is not multiplied.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from rocketray.errors import StreamError

__all__ = ["AGAIN_S", "at_last", "patience", "settle_patience", "wait_until"]

_VARIABLE = "ROCKETRAY_TEST_PATIENCE"
_QUICK_S = 0.6
"""The time of one import of pyarrow in a new process, on the machine whose seconds tests give."""
_LEAST = 2.0
"""The processes of a run wait for each other: four share what are often two processors."""
_MOST = 20.0
"""A test that hangs still ends: three minutes become an hour at most."""
_INTERVAL_S = 0.02
AGAIN_S = 0.5
_T = TypeVar("_T")


def settle_patience() -> float:
    """Return the factor of this run; measured here unless a parent process or a person gave it."""
    if _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = f"{_measured():.1f}"
    return float(os.environ[_VARIABLE])


def _measured() -> float:
    begun_s = time.monotonic()
    subprocess.run([sys.executable, "-c", "import pyarrow"], check=True)
    return min(_MOST, max(_LEAST, (time.monotonic() - begun_s) / _QUICK_S))


def patience(seconds: float) -> float:
    """Return how long to wait on this machine for what takes *seconds* at most on a quick one."""
    return seconds * float(os.environ.get(_VARIABLE, _LEAST))


def wait_until(
    holds: Callable[[], _T],
    otherwise: Callable[[], object] | str = "it does not come true",
    *,
    within_s: float = 60.0,
) -> _T:
    """Return the first true answer of *holds*; fail with *otherwise* after ``patience(within_s)``."""
    end_s = time.monotonic() + patience(within_s)
    while not (found := holds()):
        if time.monotonic() > end_s:
            said = otherwise if isinstance(otherwise, str) else otherwise()
            raise AssertionError(f"after {patience(within_s):.0f} s: {said}")
        time.sleep(_INTERVAL_S)
    return found


def at_last(begin: Callable[[], _T]) -> _T:
    """Begin when the node lets it, as a program's supervisor does: it may be down, or full."""
    while True:
        try:
            return begin()
        except StreamError as error:
            sys.stderr.write(f"it cannot begin yet: {error}\n")
            time.sleep(AGAIN_S)

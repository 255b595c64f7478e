"""How long tests wait: their seconds are those of a quick machine, times one factor.

A run measures the factor once, in the process that begins it, and hands it on in the environment:
``ROCKETRAY_TEST_PATIENCE``, which a person may set as well. A wait ends when what it waits for is
there, so a large factor costs a passing run nothing. A time limit that has to pass before a test
can go on is no wait, and is not multiplied.

All waits of the tests are here (``test_architecture.py``): nothing else compares a clock with a
limit, because a verdict must not depend on the seconds of a machine that others use as well.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from rocketray.errors import StreamError

_VARIABLE = "ROCKETRAY_TEST_PATIENCE"
_QUICK_S = 0.6
"""The time of one import of pyarrow in a new process, on the machine whose seconds tests give."""
_PROCESSES = 4
"""Those of a run wait for each other: each has its share of the processors."""
_LEAST = 2.0
"""Four processes on the two processors that are the least for a good run."""
_MOST = 20.0
"""A test that hangs still ends: three minutes become an hour at most."""
_PAUSE_SHARE = 0.1
"""A wait looks again after a tenth of the time that it has lasted, so it ends in time and is cheap."""
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.001, 0.2
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
    alone = max(1.0, (time.monotonic() - begun_s) / _QUICK_S)
    return min(_MOST, max(_LEAST, alone * _PROCESSES / len(os.sched_getaffinity(0))))


def patience(seconds: float) -> float:
    """Return how long to wait on this machine for what takes *seconds* at most on a quick one."""
    return seconds * float(os.environ.get(_VARIABLE, _LEAST))


def extended(seconds: float) -> float:
    """Return a time limit of the product as it is on a quick machine, and longer on a slow one.

    It is for a limit that has to pass in some tests, and must not in others.
    """
    return patience(seconds) / _LEAST


def wait_until(
    holds: Callable[[], _T | None],
    otherwise: Callable[[], object] | str = "",
    *,
    within_s: float = 60.0,
) -> _T:
    """Return the first true answer of *holds*; fail with *otherwise* after ``patience(within_s)``.

    Where nothing is to be said otherwise, the error shows what *holds* looked at.
    """
    for pause_s in _looks(within_s, otherwise or partial(_looked_at, holds)):
        if found := holds():
            return found
        time.sleep(pause_s)
    raise AssertionError("looks never end without an error")


async def until(
    holds: Callable[[], object],
    otherwise: Callable[[], object] | str = "",
    *,
    within_s: float = 60.0,
) -> None:
    """Wait until *holds*, as :func:`wait_until` does, while other tasks of the loop go on."""
    for pause_s in _looks(within_s, otherwise or partial(_looked_at, holds)):
        if holds():
            return
        await asyncio.sleep(pause_s)


def wait_until_answered(
    ask: Callable[[], _T], *errors: type[Exception], within_s: float = 60.0
) -> _T:
    """Return the first answer of *ask*, which raises one of *errors* until then."""
    said = [""]  # not the error, which would keep what its frames hold, as sockets
    for pause_s in _looks(within_s, said.pop):
        try:
            return ask()
        except errors as error:
            said[:] = [repr(error)]
        time.sleep(pause_s)
    raise AssertionError("looks never end without an error")


def _looks(within_s: float, otherwise: Callable[[], object] | str) -> Iterator[float]:
    """Yield before each look how long to pause after it; fail after one that began when time was up.

    So a machine that stood still all the time looks once more before it fails.
    """
    begun_s = time.monotonic()
    while True:
        waited_s = time.monotonic() - begun_s
        yield min(_PAUSE_MAX_S, max(_PAUSE_MIN_S, waited_s * _PAUSE_SHARE))
        if waited_s > patience(within_s):
            said = otherwise if isinstance(otherwise, str) else otherwise()
            raise AssertionError(f"after {patience(within_s):.0f} s: {said!s:.4000}")


def _looked_at(holds: Callable[[], object]) -> Any:
    """What a condition reads of its test, as a lambda or a partial does."""
    if isinstance(holds, partial):
        return holds.args
    return inspect.getclosurevars(holds).nonlocals if inspect.isfunction(holds) else holds


def at_last(begin: Callable[[], _T]) -> _T:
    """Begin when the node lets it, as a program's supervisor does: it may be down, or full."""
    while True:
        try:
            return begin()
        except StreamError as error:
            sys.stderr.write(f"it cannot begin yet: {error}\n")
            time.sleep(AGAIN_S)

"""The parent of Spark's task workers, with their modules loaded before it forks.

Spark forks a worker for each task slot, ends it after a minute without work, and forks another.
Loading Numba and the kernels takes 0.5 s of processor time, here once and not in each worker.
The session names this module in the place of ``pyspark.daemon``; planners keep the latter.

A worker collects garbage after each task, and looks through all that was loaded: 90 ms, for which
its next task waits. So what is loaded here is frozen. A worker of another session does the same
when it has loaded it (source.py).

Nothing is opened here: maps and threads do not survive a fork.
"""

from __future__ import annotations

import gc

import pyarrow as pa
from pyspark.daemon import manager

from rocketray.actors.fetching import reading
from rocketray.kernels import warm_imported

__all__ = ["preload"]


def preload() -> list[str]:
    """Load the modules that reading imports late, and the kernels; return the modules' names."""
    warm_imported()
    pa.scalar("")  # Arrow looks for pandas at its first value, and imports it where it is installed
    return [reading.__name__]


if __name__ == "__main__":
    preload()
    gc.freeze()
    manager()

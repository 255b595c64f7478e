"""The parent of Spark's task workers, with their modules loaded before it forks.

Spark forks a worker for each task slot, ends it after a minute without work, and forks another.
Loading Numba and the kernels takes 0.5 s of processor time, here once and not in each worker.
The session names this module in the place of ``pyspark.daemon``; planners keep the latter.

Nothing is opened here: maps and threads do not survive a fork.
"""

from __future__ import annotations

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
    manager()

"""The parent of Spark's task workers, with their modules loaded before it forks.

Spark forks a worker for each task slot, ends it after a minute without work, and forks another.
Loading Numba and the kernels takes 0.5 s of processor time, here once and not in each worker.
The session names this module in the place of ``pyspark.daemon``, and the warm Python runs it there
for planners, too, which Spark has no setting for.

A worker collects garbage after each task, and looks through all that was loaded: 90 ms, for which
its next task waits. So what is loaded here is frozen. A worker of another session does the same
when it has loaded it (task_worker.py).

When a query is stopped, Spark closes the sockets of its workers. Each would print a traceback about
what it could not write; here it just ends.

Nothing is opened here: maps and threads do not survive a fork.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import Any

import pyarrow as pa
from pyspark import daemon

from rocketray.base.environment import with_environ
from rocketray.broker.fetching import reading
from rocketray.kernels import warm_imported
from rocketray.services.staging import message_rows

_RAISE = {"PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}  # instead of printing the traceback


def preload() -> list[str]:
    """Load the kernels, and the modules that tasks import late; return the modules' names."""
    warm_imported()
    pa.scalar("")  # Arrow looks for pandas at its first value, and imports it where it is installed
    return [reading.__name__, message_rows.__name__]


def until_closed(worker: Callable[..., int]) -> Callable[..., int]:
    """Let *worker*, which serves tasks and returns an exit code, end when its socket is closed."""

    @wraps(worker)
    def serve(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except ConnectionError:
            return 1

    return serve


if __name__ == "__main__":
    preload()
    gc.freeze()
    daemon.worker = until_closed(daemon.worker)
    with with_environ(_RAISE):
        daemon.manager()

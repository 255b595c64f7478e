"""Which Python a Spark session of this process runs: this one, unless somebody said otherwise.

Spark's JVM looks data sources up, and runs tasks, with PYSPARK_PYTHON's interpreter, by default
the ``python3`` of the PATH. Where a program was started by the path of its Python, as cron,
systemd and editors do it, that is another one, without rocketray, and Spark says
DATA_SOURCE_NOT_FOUND. So ``import rocketray`` sets the variable then, and only then: for the session
that this process starts later, and for the processes that it starts.

A library should leave the environment alone, but in a program that makes its own session there is no
later moment: nothing else of rocketray runs in it. A variable that is set is left alone, so
PYSPARK_PYTHON=python3, Spark's own default, keeps all as Spark has it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

__all__ = ["name_interpreter", "python_for_spark"]

_PYTHON = "PYSPARK_PYTHON"
_JVM_RUNS = "PYSPARK_GATEWAY_PORT"  # spark-submit has chosen, and its JVM reads nothing of ours


def name_interpreter() -> None:
    """Have Spark run this interpreter, unless it does or was told of another."""
    chosen = python_for_spark(os.environ, sys.executable)
    if chosen is not None:
        os.environ[_PYTHON] = chosen


def python_for_spark(environ: Mapping[str, str], executable: str) -> str | None:
    """What PYSPARK_PYTHON has to be set to for *executable* to run; None to leave it alone."""
    if not executable or environ.get(_PYTHON) or _JVM_RUNS in environ:
        return None
    found = shutil.which("python3", path=environ.get("PATH"))
    return None if found is not None and _is_same(found, executable) else executable


def _is_same(one: str, other: str) -> bool:
    """Whether two paths are one environment's: a virtual one is the directory, not the file."""
    folders = (os.path.realpath(os.path.dirname(os.path.abspath(path))) for path in (one, other))  # noqa: PTH100, PTH120
    return len(set(folders)) == 1 and os.path.realpath(one) == os.path.realpath(other)

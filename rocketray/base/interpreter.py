"""The Python interpreter of Spark sessions that this process starts: this one, unless it is set.

Spark's JVM looks up data sources, and runs tasks, with PYSPARK_PYTHON's interpreter, by default
the ``python3`` of the PATH. If a program was started by the path of its Python (cron, systemd,
editors), that is another interpreter, without rocketray, and Spark reports DATA_SOURCE_NOT_FOUND.
In that case, and only then, ``import rocketray`` sets the variable: for the session that this
process starts later, and for its child processes.

A library should not change the environment. But a program that creates its own session runs no
other code of rocketray before that session starts, so the import is the last chance. A variable
that is set is never changed: with PYSPARK_PYTHON=python3, Spark's own default, Spark behaves as
usual.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

_PYTHON = "PYSPARK_PYTHON"
_JVM_RUNS = "PYSPARK_GATEWAY_PORT"  # spark-submit has chosen; its JVM ignores ours


def name_interpreter() -> None:
    """Make Spark run this interpreter, unless it would anyway or is configured otherwise."""
    chosen = python_for_spark(os.environ, sys.executable)
    if chosen is not None:
        os.environ[_PYTHON] = chosen


def python_for_spark(environ: Mapping[str, str], executable: str) -> str | None:
    """Return the value of PYSPARK_PYTHON that makes Spark run *executable*; None to set nothing."""
    if not executable or environ.get(_PYTHON) or _JVM_RUNS in environ:
        return None
    found = shutil.which("python3", path=environ.get("PATH"))
    return None if found is not None and _is_same(found, executable) else executable


def _is_same(one: str, other: str) -> bool:
    """Return whether both paths are of one environment, which is a directory if it is virtual."""
    # A virtual environment's python is a link to the base interpreter, so only its folder tells the
    # two apart. Texts, because importing rocketray runs this, and otherwise needs no pathlib.
    folders = (os.path.realpath(os.path.dirname(os.path.abspath(path))) for path in (one, other))  # noqa: PTH100, PTH120
    return len(set(folders)) == 1 and os.path.realpath(one) == os.path.realpath(other)

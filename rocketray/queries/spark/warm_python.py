"""The Python of a session's Spark: a script that has each process forked from one that is warm.

The script is in the user's cache and stays there: a path below /tmp may be removed while a session
runs. It finds the warm Python, which ends with this process, by a variable of the JVM's
environment; where that does not answer, it runs the ordinary Python.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pyspark import SparkContext

from rocketray.base.environment import process_environ

from . import warm_client
from .shims import cache_directory, make_script

_SCRIPT = """\
#!/bin/sh
# Made by rocketray: Spark's Python, forked from a process that has the modules loaded.
exec {python} -I -S {client} "$@"
"""
_SERVER = "rocketray.queries.spark.warm_server"
_SOCKETS = "/tmp"  # noqa: S108 - mkdtemp's own is safe there; TMPDIR may be too long for a socket
_BACKLOG = 64  # processes that may ask while the modules are still being loaded
_LISTENER = 3  # the descriptor of the server's socket, after the three standard streams
_LIKE_TASKS = {"OMP_NUM_THREADS": "1"}  # what Spark gives to tasks' workers, unless the user did
_LIKE_SUBMIT = {"PYTHONHASHSEED": "0"}  # what spark-submit gives to all of them, whatever it was
_GATEWAY = "PYSPARK_GATEWAY_PORT"  # of a JVM that spark-submit started

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WarmPython:
    """A process that forks others; it ends when the pipe to it, *life*, is closed."""

    process_id: int
    life: int
    socket: Path


def python_environ() -> dict[str, str]:
    """Return the variables by which this process's JVM runs this interpreter, warm if it can be.

    The first call starts the warm Python, unless the JVM is there already: it has its environment.
    """
    python, warm = _pythons()
    variables = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    return variables if warm is None else {**variables, warm_client.VARIABLE: str(warm.socket)}


@lru_cache(maxsize=1)
def _pythons() -> tuple[str, WarmPython | None]:
    """Return what Spark runs as Python, once for the JVM of this process."""
    environ = process_environ()
    if vars(SparkContext)["_gateway"] is None and _GATEWAY not in environ:
        try:
            return str(make_python(cache_directory(environ))), start_warm(environ)
        except OSError as error:
            logger.warning("Spark's Python processes take half a second longer to start: %s", error)
    return sys.executable, None


def make_python(cache: Path) -> Path:
    """Return the script in *cache* that stands for this interpreter; create it if necessary.

    Raises:
        OSError: the cache cannot be written.
    """
    client = str(Path(warm_client.__file__))
    content = _SCRIPT.format(python=shlex.quote(sys.executable), client=shlex.quote(client))
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    return make_script(cache / f"python-{key}" / "python", content)


def start_warm(environ: Mapping[str, str]) -> WarmPython:
    """Start the warm Python of this process.

    It listens at once, and answers when it has loaded the modules. It ends with this process, and
    removes the socket and its directory, which only this user can enter.

    Raises:
        OSError: it cannot be started.
    """
    directory = Path(tempfile.mkdtemp(prefix="rocketray-spark-", dir=_SOCKETS))
    path = directory / "socket"
    until_closed, life = os.pipe()
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(_BACKLOG)
            streams = ((until_closed, 0), (listener.fileno(), _LISTENER))
            process_id = os.posix_spawn(
                sys.executable,
                [sys.executable, "-m", _SERVER, str(_LISTENER)],
                {**_LIKE_TASKS, **environ, **_LIKE_SUBMIT, "PYTHONUNBUFFERED": "YES"},
                file_actions=[(os.POSIX_SPAWN_DUP2, *each) for each in streams],
                setpgroup=0,  # Ctrl-C is for the program
            )
    except OSError:
        os.close(life)
        with suppress(OSError):
            path.unlink(missing_ok=True)
            directory.rmdir()
        raise
    finally:
        os.close(until_closed)
    return WarmPython(process_id, life, path)

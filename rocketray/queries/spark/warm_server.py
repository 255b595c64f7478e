"""The warm Python of a Spark session: with all modules loaded, it forks Spark's Python processes.

    python -m rocketray.queries.spark.warm_server DESCRIPTOR     of a socket that listens

Spark starts a Python process for each stream, for each kind of planning, and as the parent of its
tasks' workers. Each would load pyspark, Arrow and the source, for half a second and more.
warm_client.py has the protocol, and runs in the place of each of them.

It ends with its standard input, so with the process of the session; what it forked lives on.

Invariants
  1. A forked process has the arguments, the directory, the environment, the standard streams and
     the module path that it would have had. What an interpreter reads only when it starts cannot
     be changed: a request whose environment differs there is refused.
  2. Of Spark's modules that are run, or tell a process what it is, a forked process has loaded only
     those that it would have.
  3. It has one thread, opens no files, and never runs what it forks for.
"""

from __future__ import annotations

import gc
import os
import re
import runpy
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pyspark

from .daemon import preload
from .warm_client import READY

_SPARKS = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
)
_OURS = ("pyspark_rocketray", "rocketray.queries.spark.topic_writer")
_DAEMON = "rocketray.queries.spark.daemon"
_STANDS_FOR = {"pyspark.daemon": _DAEMON}
"""Spark has settings for the daemon of tasks only: planners' workers would print tracebacks."""
# What Python, its allocator, the linker or a library reads once, when it starts or is loaded.
# PYTHONPATH is applied after the fork, and PYTHONUNBUFFERED is set for the server, too.
_READ_AT_THE_START = re.compile(
    r"PYTHON(?!PATH$|UNBUFFERED$)[A-Z]|(ARROW|LC|LD|MALLOC|MKL|NUMBA|OMP|OPENBLAS)_|LANG"
)
_REQUEST_MAX_BYTES = 4 << 20  # Linux gives a process at most 2 MiB of arguments and environment
_REQUEST_S = 5.0  # one at a time: a client that hangs delays others, whose Spark waits for 10 s
_STREAMS = 3  # input, output and errors
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    """A process that is asked for: ``python -m *arguments*``."""

    arguments: list[str]
    directory: str
    environ: Mapping[str, str]


def load() -> None:
    """Load what Spark's processes import, but not the modules that they are.

    One of those is run as the main module, or tells the source in which process it is.
    """
    for name in (*_OURS, *_SPARKS):
        import_module(name)
    preload()
    for name in (*_SPARKS, _DAEMON):
        sys.modules.pop(name, None)


def parse_request(content: bytes) -> Request | None:
    """Return the request of a client; None if it is not whole."""
    texts = [os.fsdecode(text) for text in content.split(b"\0")]
    if texts.pop() or not texts or not texts[0].isascii() or not texts[0].isdigit():
        return None
    count = int(texts[0])
    arguments, rest = texts[1 : 1 + count], texts[1 + count :]
    if not arguments or not rest:
        return None
    pairs = [setting.partition("=") for setting in rest[1:]]
    return Request(arguments, rest[0], {name: value for name, _, value in pairs})


def can_fork(request: Request, own: Mapping[str, str]) -> bool:
    """Return whether an interpreter with the environment *own* can become what is asked for."""
    return all(
        own.get(name) == value
        for name, value in request.environ.items()
        if _READ_AT_THE_START.match(name)
    )


def path_changes(python_path: str, known: list[str]) -> list[str]:
    """Return the entries of PYTHONPATH that *known* lacks, without Spark's own archives.

    They have the modules that are loaded from the installed package.
    """
    spark = str(Path(pyspark.__file__).parent)
    entries = [entry for entry in python_path.split(os.pathsep) if entry]
    return [one for one in entries if one not in known and not one.startswith(spark + os.sep)]


def serve(listener: socket.socket, own: Mapping[str, str]) -> Request | None:
    """Fork a process for each request, until the standard input ends.

    Returns the request in each forked process, and None in this one, at the end.
    """
    waiting = select.poll()
    waiting.register(sys.stdin.fileno(), select.POLLIN)
    waiting.register(listener, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in waiting.poll()}
        if sys.stdin.fileno() in ready:
            return None
        with suppress(OSError):
            # A client that has left, or was cut short, must not end the server of the others.
            link, _ = listener.accept()
            with link:
                request = _answer(link, own)
            if request is not None:
                listener.close()
                return request


def _answer(link: socket.socket, own: Mapping[str, str]) -> Request | None:
    """Fork what is asked for, and tell its id; return the request in the forked process only."""
    link.settimeout(_REQUEST_S)
    link.sendall(READY)
    content, streams, _, _ = socket.recv_fds(link, _BLOCK_BYTES, _STREAMS)
    try:
        while len(content) <= _REQUEST_MAX_BYTES and (more := link.recv(_BLOCK_BYTES)):
            content += more
        request = parse_request(content) if len(content) <= _REQUEST_MAX_BYTES else None
        if request is None or len(streams) != _STREAMS or not can_fork(request, own):
            return None
        child = os.fork()
        if not child:
            for target, stream in enumerate(streams):
                os.dup2(stream, target)
            return request
        link.sendall(str(child).encode())
        return None
    finally:
        for stream in streams:
            os.close(stream)


def _become(request: Request) -> None:
    """Run the module that is asked for, as the interpreter would have begun it."""
    # The server ignores it, and a process that does cannot learn how its own children ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with suppress(OSError):  # its command line remains the server's, so its name says what it is
        _, _, last = request.arguments[-1].rpartition(".")
        Path("/proc/self/comm").write_text(f"spark:{last}")
    os.environ.clear()
    os.environ.update(request.environ)
    os.chdir(request.directory)
    time.tzset()
    # ``python -m`` puts the directory first, unless its path is safe (-P).
    first = 0 if sys.flags.safe_path else 1
    sys.path[:first] = [request.directory][:first]
    sys.path[first:first] = path_changes(request.environ.get("PYTHONPATH", ""), sys.path)
    sys.argv = request.arguments
    module = request.arguments[0]
    runpy.run_module(_STANDS_FOR.get(module, module), run_name="__main__", alter_sys=True)


def _main(descriptor: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what was forked is not waited for
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark's JVM, whose children they stand for
    load()
    gc.freeze()
    listener = socket.socket(fileno=descriptor)
    request = serve(listener, dict(os.environ))
    if request is None:
        place = Path(listener.getsockname())
        place.unlink(missing_ok=True)
        with suppress(OSError):
            place.parent.rmdir()
        return
    _become(request)


if __name__ == "__main__":
    _main(int(sys.argv[1]))

"""Two raylets of one Ray that do not see each other's files, as on two machines.

The second one has mounts, a host name and process ids of its own: an empty disk lies over the data
directory, over shared memory and over the directory of the first one's Ray, and its host name is
``elsewhere``.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.own_mounts import with_mounts

__all__ = ["ELSEWHERE", "MachinesApart", "machines_apart"]

ELSEWHERE = "elsewhere"
_RAY = str(Path(sys.executable).with_name("ray"))
_HERE, _THERE = "127.0.0.2", "127.0.0.3"
_START_S = 60.0
_STOP_S = 20.0
_STARTED = "Ray runtime started"
_OWN_NAMES = ("--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
_OWN_FILES = 'hostname "$1"; for each in "$2" "$3" "$4"; do mount -t tmpfs none "$each"; done'


@dataclass(frozen=True, slots=True)
class MachinesApart:
    """Where the Ray is, and what a program needs in its environment to join it."""

    address: str
    environ: Mapping[str, str]


@contextmanager
def machines_apart(directory: Path, data: Path) -> Iterator[MachinesApart]:
    """Start both; *data* is there on the first one only. Skips where the system allows no such thing."""
    first, second = directory / "r1", directory / "r2"
    for each in (first, second, data):
        each.mkdir()
    hidden = data, Path("/dev/shm"), first
    apart = with_mounts("two machines", _OWN_FILES, ELSEWHERE, *hidden, names=_OWN_NAMES)
    with socket.create_server((_HERE, 0)) as free:
        port = free.getsockname()[1]
    address = f"{_HERE}:{port}"
    environ = {
        **{name: text for name, text in os.environ.items() if name != "RAY_ADDRESS"},
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    }
    # Ray on loopback (tests/conftest.py) lets no second raylet in, unless that one says otherwise.
    with_another = {**environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}
    start = [_RAY, "start", "--block", "--num-cpus=2"]
    head = [*start, "--head", "--include-dashboard=false", f"--port={port}"]
    head += [f"--node-ip-address={_HERE}", f"--temp-dir={first}"]
    worker = [*apart, *start, f"--address={address}"]
    worker += [f"--node-ip-address={_THERE}", f"--temp-dir={second}"]
    with ExitStack() as running:
        ended = signal.SIGTERM  # ray start --block ends what it started
        running.enter_context(_started(head, directory / "r1.log", environ, ended))
        switched_off = signal.SIGKILL  # with unshare all ends that has its process ids
        running.enter_context(_started(worker, directory / "r2.log", with_another, switched_off))
        yield MachinesApart(address, environ)


@contextmanager
def _started(
    command: Sequence[str], log: Path, environ: Mapping[str, str], end: signal.Signals
) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=dict(environ))
    try:
        deadline = time.monotonic() + _START_S
        while _STARTED not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(end)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

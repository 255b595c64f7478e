"""A Redis of a test's own, on loopback, in which the head of a Ray keeps its state."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.harness import machine
from support.harness.patience import wait_until_answered

_HOST = "127.0.0.1"


@contextmanager
def redis_server(directory: Path) -> Iterator[Mapping[str, str]]:
    """Start one; yield the variables with which a head uses it. Skips where there is none."""
    with socket.create_server((_HOST, 0)) as free:
        port = free.getsockname()[1]
    machine.require("redis")
    command = ["redis-server", "--bind", _HOST, "--port", str(port), "--dir", str(directory)]
    process = subprocess.Popen(
        [*command, "--appendonly", "yes"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _await_answer(port)
        yield {
            "RAY_REDIS_ADDRESS": f"{_HOST}:{port}",
            "RAY_external_storage_namespace": "rocketray",
        }
    finally:
        process.kill()
        process.wait()


def _await_answer(port: int) -> None:
    wait_until_answered(lambda: socket.create_connection((_HOST, port), 1.0).close(), OSError)

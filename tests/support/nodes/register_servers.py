"""Servers in which a register may be: moto's S3 in a thread, and Debian's etcd in a process."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
from support.harness import machine
from support.harness.patience import patience, wait_until_answered

from rocketray.runtime.register.register import Register

BUCKET = "registers"
DIRECTLY = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
"""What leads to them past a proxy of the environment, which clients of such stores use."""


@contextmanager
def s3_server() -> Iterator[str]:
    """Serve an S3 with one bucket; its URL."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        with _one_put_at_a_time():
            host, port = server.get_host_and_port()
            url = f"http://{host}:{port}"
            bucket = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
            urllib.request.urlopen(bucket, timeout=patience(30)).close()
            yield url
    finally:
        server.stop()


@contextmanager
def _one_put_at_a_time() -> Iterator[None]:
    """Make a conditional write of moto atomic, as it is in S3.

    Moto looks for the key of an ``If-None-Match: *`` and writes the object later, and serves each
    request in a thread: of writers that race, two would hear that they created it.
    """
    lock, put = threading.Lock(), S3Response.put_object

    def one_at_a_time(response: S3Response) -> object:
        with lock:
            return put(response)

    with mock.patch.object(S3Response, "put_object", one_at_a_time):
        yield


def s3_variables(url: str) -> dict[str, str]:
    """Return the variables that lead to such a server."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        **DIRECTLY,
    }


@contextmanager
def etcd_server(directory: Path, *options: str, scheme: str = "http") -> Iterator[str]:
    """Run an etcd of one member; the host and port of its clients."""
    machine.require("etcd")
    clients, peers, plain = (f"127.0.0.1:{free_port()}" for _ in range(3))
    command = [
        *("etcd", "--data-dir", str(directory), "--logger", "zap", "--log-level", "error"),
        *("--listen-client-urls", f"{scheme}://{clients}"),
        *("--advertise-client-urls", f"{scheme}://{clients}"),
        *("--listen-peer-urls", f"http://{peers}", "--listen-metrics-urls", f"http://{plain}"),
        *options,
    ]
    with (directory.parent / "etcd.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory.parent)
    try:
        _wait_for(f"http://{plain}/health", process, directory.parent / "etcd.log")
        with mock.patch.dict(os.environ, DIRECTLY):
            yield clients
    finally:
        process.terminate()
        process.wait(patience(30))


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    def answer() -> None:
        assert process.poll() is None, log.read_text()[-2000:]
        urllib.request.urlopen(url, timeout=patience(5)).close()

    wait_until_answered(answer, OSError)  # it does not listen yet, or has no leader


def free_port() -> int:
    """Return a port of the loopback that nothing uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def every_call(register: Register) -> list[Callable[[], object]]:
    """Return a call of each method."""
    return [
        lambda: register.create("a/b", b"x"),
        lambda: register.read("a/b"),
        lambda: register.names("a"),
        lambda: register.remove("a/b"),
    ]

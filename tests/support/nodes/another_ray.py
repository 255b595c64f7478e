"""A Ray that somebody else keeps: started by ``ray start --head``, on loopback, with a token."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.harness.patience import patience

SHORT = "/tmp"
"""Where Ray's directories are, whatever TMPDIR is: names of sockets have at most 107 bytes."""
NO_READER = "--include-log-monitor=false"
"""Leaves out a process that reads all logs of Ray, the whole time; and ``--no-monitor`` another one."""
_RAY = str(Path(sys.executable).with_name("ray"))
_HOST = "127.0.0.2"  # Ray with more than one raylet takes 127.0.0.1 for another address


@dataclass(frozen=True, slots=True)
class AnotherRay:
    """Where it is, what a program needs in its environment to join it, and where its files are."""

    address: str
    environ: Mapping[str, str]
    directory: str

    def start_words(self) -> list[str]:
        """The words after ``ray`` that start its head."""
        host, _, port = self.address.partition(":")
        options = (f"--node-ip-address={host}", f"--port={port}", f"--temp-dir={self.directory}")
        return ["start", "--head", *options, "--include-dashboard=false", "--no-monitor", NO_READER]

    def servers(self) -> dict[str, int]:
        """The processes that its keeper started, by the name of their program."""
        return {
            Path(line.partition(b"\0")[0].decode()).name: pid
            for pid, line in self._processes().items()
            if Path(line.partition(b"\0")[0].decode()).name in {"gcs_server", "raylet"}
        }

    def raylet_at(self, host: str) -> int:
        """The process of the raylet with that address, also on a machine apart."""
        option = f"--node_ip_address={host}\0".encode()
        (found,) = (pid for pid, line in self._processes().items() if option in line)
        return found

    def start(self) -> None:
        """Start its head, also again when all of it was ended."""
        _run([_RAY, *self.start_words(), "--num-cpus=1"], self.environ)

    def lose_gcs(self) -> Callable[[], None]:
        """Kill the GCS alone; return what starts it again as it was."""
        pid = self.servers()["gcs_server"]
        command = _texts(pid, "cmdline")
        environ = dict(each.split("=", 1) for each in _texts(pid, "environ") if "=" in each)
        os.kill(pid, signal.SIGKILL)
        # The shell ends at once, so that no process of the test is its parent.
        shell = ["sh", "-c", '"$@" < /dev/null > /dev/null 2>&1 &', "sh"]
        return lambda: _run([*shell, *command], environ)

    def start_raylet(self, *options: str) -> None:
        """Start one in place of a raylet that has ended; its GCS goes on."""
        address = f"--address={self.address}", f"--node-ip-address={_HOST}"
        command = [_RAY, "start", *address, NO_READER]
        # Ray on loopback (tests/conftest.py) lets no second raylet in, unless that one says otherwise.
        environ = {**self.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}
        _run([*command, "--num-cpus=1", f"--temp-dir={self.directory}", *options], environ)

    def stop(self) -> None:
        """End all of it, as ``ray stop --force`` does for every Ray of the machine."""
        while pids := [*self._processes(), *self._workers()]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def _processes(self) -> dict[int, bytes]:
        """Those that have its directory among their arguments."""
        found = {}
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (each / "cmdline").read_bytes()
                if self.directory.encode() in line and runs(int(each.name)):
                    found[int(each.name)] = line
        return found

    def _workers(self) -> list[int]:
        """Those that it started, and that gave themselves a title."""
        token, found = self.environ["RAY_AUTH_TOKEN"].encode(), []
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                is_worker = (each / "cmdline").read_bytes().startswith(b"ray::")
                if is_worker and token in (each / "environ").read_bytes() and runs(int(each.name)):
                    found.append(int(each.name))
        return found


def planned_ray(directory: str) -> AnotherRay:
    """One that is not started yet, whose files are in a *directory* with a short name."""
    with socket.create_server((_HOST, 0)) as free:
        port = free.getsockname()[1]
    environ = {name: text for name, text in os.environ.items() if name != "RAY_ADDRESS"}
    environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environ["RAY_prestart_worker_first_driver"] = "0"  # a second of processor time each
    return AnotherRay(f"{_HOST}:{port}", environ, directory)


@contextmanager
def another_ray() -> Iterator[AnotherRay]:
    """Start one; it is ended with the block."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir=SHORT) as directory:
        found = planned_ray(directory)
        try:
            found.start()
            yield found
        finally:
            found.stop()


def _texts(pid: int, name: str) -> list[str]:
    """The texts in a file of /proc: the arguments or the environment of a process."""
    return Path(f"/proc/{pid}/{name}").read_bytes().decode().split("\0")[:-1]


def _run(command: list[str], environ: Mapping[str, str]) -> None:
    limit_s = patience(120)
    done = subprocess.run(
        command, env=dict(environ), capture_output=True, text=True, timeout=limit_s, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

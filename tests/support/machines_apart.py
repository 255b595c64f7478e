"""Two raylets of one Ray that do not see each other's files, as on two machines.

The second one has mounts, a host name and process ids of its own: a disk of its own lies over the data
directory, empty ones over shared memory and over the directory of the first one's Ray, and its host
name is ``elsewhere``.
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

import pytest
from support.own_mounts import with_mounts

__all__ = ["ELSEWHERE", "THERE", "MachinesApart", "apart", "machines_apart"]

ELSEWHERE = "elsewhere"
_RAY = str(Path(sys.executable).with_name("ray"))
_HERE, THERE = "127.0.0.2", "127.0.0.3"
_START_S = 60.0
_STOP_S = 20.0
_STARTED = "Ray runtime started"
_OWN_NAMES = ("--uts", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(frozen=True, slots=True)
class MachinesApart:
    """Where the Ray is, and what a program needs in its environment to join it."""

    address: str
    environ: Mapping[str, str]
    _second: _SecondMachine
    _network: _Network | None = None

    def on_second(self, *command: str) -> list[str]:
        """Return the command before which *command* runs on the second machine."""
        return [*self._second.entered(), *command]

    def lose_second(self) -> None:
        """Switch the second machine off: every process on it ends, and its disk stays."""
        self._second.lose()

    def start_second(self) -> None:
        """Switch it on again: its raylet joins the Ray."""
        self._second.start()

    @contextmanager
    def partition(self) -> Iterator[None]:
        """Cut the network between the machines, for the time of the block."""
        assert self._network is not None
        self._network.set("down")
        try:
            yield
        finally:
            self._network.set("up")


class _Network:
    """A name space with a network of its own, and a pair of interfaces that lead there."""

    def __init__(self) -> None:
        number = secrets.randbelow(250) + 1
        self.here, self.there = f"10.77.{number}.1", f"10.77.{number}.2"
        self.name = f"rocketray{number}"
        self._near, far = f"rrt{number}a", f"rrt{number}b"
        inside = ("netns", "exec", self.name, "ip")
        for command in (
            ("netns", "add", self.name),
            ("link", "add", self._near, "type", "veth", "peer", "name", far, "netns", self.name),
            ("addr", "add", f"{self.here}/24", "dev", self._near),
            (*inside, "addr", "add", f"{self.there}/24", "dev", far),
            ("link", "set", self._near, "up"),
            (*inside, "link", "set", far, "up"),
            (*inside, "link", "set", "lo", "up"),
        ):
            self._run(*command)

    def set(self, state: str) -> None:
        """Let packets pass ("up") or not ("down")."""
        self._run("link", "set", self._near, state)

    def close(self) -> None:
        """Remove it, with its interfaces."""
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)

    def _run(self, *command: str) -> None:
        try:
            done = subprocess.run(["ip", *command], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("NOT TESTED a partition: there is no ip command here")
        if done.returncode:
            self.close()
            pytest.skip(
                f"NOT TESTED a partition: no network of its own here: {done.stderr.strip()}"
            )


class _SecondMachine:
    """The second raylet, in name spaces of its own."""

    def __init__(
        self, command: Sequence[str], log: Path, environ: Mapping[str, str], spaces: Sequence[str]
    ) -> None:
        self._command = command
        self._spaces = spaces
        self._log = log
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; return when its raylet has joined."""
        self._process = _start(self._command, self._log, self._environ)

    def entered(self) -> list[str]:
        """Return the command that enters its name spaces."""
        assert self._process is not None
        pid = self._process.pid
        (inside,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        rights = [] if os.getuid() == 0 else ["--user", "--preserve-credentials"]
        return [
            "nsenter",
            f"--target={inside}",
            *rights,
            "--mount",
            "--uts",
            "--pid",
            *self._spaces,
        ]

    def lose(self) -> None:
        """End it with all that has its process ids."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def apart(data: Path, disk: Path, *hidden: Path) -> list[str]:
    """Return the command before one that runs on a machine of its own, and ends with all it starts.

    The directory *disk* is at *data* there, empty ones at *hidden*. Skips where the system allows no
    such thing.
    """
    script = 'hostname "$1"; mount --bind "$2" "$3"; ' + "".join(
        f'mount -t tmpfs none "${number}"; ' for number in range(4, 4 + len(hidden))
    )
    return with_mounts("two machines", script, ELSEWHERE, disk, data, *hidden, names=_OWN_NAMES)


@contextmanager
def machines_apart(
    directory: Path, data: Path, *, disk: str = "", has_network: bool = False
) -> Iterator[MachinesApart]:
    """Start both; the second one has a disk of its own at *data*: ``directory / "second"`` here.

    The label of its raylet says that it has *disk*. They are on loopback, unless each *has_network*:
    an address of its own, on a network that can be cut. Skips where the system allows no such thing.
    """
    first, second, its_data = directory / "r1", directory / "r2", directory / "second"
    for each in (first, second, data, its_data):
        each.mkdir(exist_ok=True)
    with ExitStack() as running:
        network = _Network() if has_network else None
        if network is not None:
            running.callback(network.close)
        yield running.enter_context(
            _started(directory, (first, second, data, its_data), disk, network)
        )


@contextmanager
def _started(
    directory: Path, directories: Sequence[Path], disk: str, network: _Network | None
) -> Iterator[MachinesApart]:
    first, second, data, its_data = directories
    here, other_here = (_HERE, THERE) if network is None else (network.here, network.there)
    there = apart(data, its_data, Path("/dev/shm"), first)
    if network is not None:
        there = ["ip", "netns", "exec", network.name, *there]
    with socket.create_server((here, 0)) as free:
        port = free.getsockname()[1]
    address = f"{here}:{port}"
    environ = {
        **{name: text for name, text in os.environ.items() if name != "RAY_ADDRESS"},
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        "RAY_prestart_worker_first_driver": "0",  # a second of processor time each, for nothing
    }
    # Ray on loopback (tests/conftest.py) lets no second raylet in, unless that one says otherwise.
    with_another = {**environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}
    start = [_RAY, "start", "--block", "--num-cpus=2"]
    head = [*start, "--head", "--include-dashboard=false", f"--port={port}"]
    head += [f"--node-ip-address={here}", f"--temp-dir={first}"]
    worker = [*there, *start, f"--address={address}"]
    worker += [f"--node-ip-address={other_here}", f"--temp-dir={second}"]
    if disk:
        worker += ["--labels", f"rocketray-disk={disk}"]
    with ExitStack() as running:
        head_process = _start(head, directory / "r1.log", environ)
        running.callback(_end, head_process)
        spaces = [] if network is None else ["--net"]
        other = _SecondMachine(worker, directory / "r2.log", with_another, spaces)
        running.callback(other.lose)
        other.start()
        yield MachinesApart(address, environ, other, network)


def _start(
    command: Sequence[str], log: Path, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=dict(environ))
    deadline = time.monotonic() + _START_S
    while _STARTED not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            _end(process)
            pytest.fail(log.read_text())
        time.sleep(0.1)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what ray start --block started."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

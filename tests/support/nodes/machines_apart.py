"""Raylets of one Ray that do not see each other's files, as on two machines or more.

All but the first have mounts, a host name and process ids of their own: a disk of its own lies over
the data directory, empty ones over shared memory and over the directories of the other ones' Ray. The
host name of the second is ``elsewhere``.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from support.harness import machine
from support.harness.patience import patience, wait_until
from support.harness.process_tree import children_of
from support.harness.source_tree import ROOT
from support.nodes.another_ray import NO_READER, AnotherRay
from support.nodes.own_mounts import with_mounts

ELSEWHERE = "elsewhere"
OTHERS = ("second", "third", "fourth")
"""The machines beside the first, and the directories of their disks."""
_RAY = str(Path(sys.executable).with_name("ray"))
_MACHINE = ROOT / "deploy" / "machine.sh"
_LOOPBACK = "127.0.0."
_FIRST_HOST = 2  # Ray with more than one raylet takes 127.0.0.1 for another address
THERE = f"{_LOOPBACK}{_FIRST_HOST + 1}"
_OPTIONS = ("--num-cpus=2", "--block")
_STOP_S = 20.0
_STARTED = "Ray runtime started"
_OWN_PROCESSES = ("--pid", "--fork", "--kill-child", "--mount-proc")
_OWN_NAMES = ("--uts", *_OWN_PROCESSES)
Lost = Literal["both ways", "to the second", "from the second"]
"""The packets that a cut takes."""


@dataclass(frozen=True, slots=True)
class MachinesApart:
    """Where the Ray is, and what a program needs in its environment to join it."""

    address: str
    environ: Mapping[str, str]
    head: AnotherRay
    _others: Sequence[_Machine]
    _network: _Network | None = None
    _first: _Machine | None = None

    def on_second(self, *command: str) -> list[str]:
        """Return the command before which *command* runs on the second machine."""
        return self.on_other(OTHERS[0], *command)

    def on_other(self, name: str, *command: str) -> list[str]:
        """Return the same for the machine of that *name* in OTHERS."""
        return [*self._others[OTHERS.index(name)].entered(), *command]

    def on_first(self, *command: str) -> list[str]:
        """Return the command before which *command* runs on the first machine."""
        return [*(self._first.entered() if self._first else ()), *command]

    def lose_second(self) -> None:
        """Switch the second machine off: every process on it ends, and its disk stays."""
        self._others[0].lose()

    def start_second(self) -> None:
        """Switch it on again: its raylet joins the Ray."""
        self._others[0].start()

    @contextmanager
    def partition(self, lost: Lost = "both ways") -> Iterator[None]:
        """Cut the network between the machines, for the time of the block, or one direction of it."""
        assert self._network is not None
        self._network.cut(lost)
        try:
            yield
        finally:
            self._network.mend()


class _Network:
    """A name space with a network of its own, and a pair of interfaces that lead there."""

    def __init__(self) -> None:
        number = secrets.randbelow(250) + 1
        self.here, self.there = f"10.77.{number}.1", f"10.77.{number}.2"
        self.name = f"rocketray{number}"
        self._near, far = f"rrt{number}a", f"rrt{number}b"
        inside = ("netns", "exec", self.name, "ip")
        self._ways: list[tuple[Lost, tuple[str, ...], str, str]] = [
            ("to the second", (), self.there, self._near),
            ("from the second", inside, self.here, far),
        ]
        """The side that sends in each direction: its command, whom it sends to, and over what."""
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

    def command(self) -> list[str]:
        """Return the command before one that runs there."""
        return ["ip", "netns", "exec", self.name]

    def cut(self, lost: Lost) -> None:
        """Let no packets pass, or none in that direction: they leave, for an address nobody has."""
        if lost == "both ways":
            self._run("link", "set", self._near, "down")
        for direction, side, target, interface in self._ways:
            if direction == lost:
                nobody = ("lladdr", "02:00:00:00:00:01", "nud", "permanent")
                self._run(*side, "neigh", "replace", target, *nobody, "dev", interface)

    def mend(self) -> None:
        """Let all packets pass."""
        self._run("link", "set", self._near, "up")
        for _, side, _, interface in self._ways:
            self._run(*side, "neigh", "flush", "dev", interface, "nud", "permanent")

    def close(self) -> None:
        """Remove it, with its interfaces."""
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)

    def _run(self, *command: str) -> None:
        machine.require("network")
        done = subprocess.run(["ip", *command], capture_output=True, text=True, check=False)
        if done.returncode:
            self.close()
            machine.skip("network", done.stderr.strip())


class _Machine:
    """A raylet in name spaces of its own."""

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
        (inside,) = children_of(pid)
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


def apart(
    data: Path, disk: Path, *hidden: Path, room: str = "", name: str = ELSEWHERE
) -> list[str]:
    """Return the command before one that runs on a machine of its own, and ends with all it starts.

    The directory *disk* is at *data* there, or with *room* a copy of it on a disk of that size, and
    empty ones at *hidden*; its host has that *name*. Skips where the system allows no such thing.
    """
    mount = 'mount --bind "$2" "$3"; '
    if room:
        mount = f'mount -t tmpfs -o size={room},mode=700 none "$3"; cp -a "$2/." "$3"; '
    script = f'hostname "$1"; {mount}' + "".join(
        f'mount -t tmpfs none "${number}"; ' for number in range(4, 4 + len(hidden))
    )
    return with_mounts(script, name, disk, data, *hidden, names=_OWN_NAMES)


@contextmanager
def machines_apart(
    directory: Path,
    data: Path,
    *,
    disks: Sequence[str] = ("",),
    addresses: str = _LOOPBACK,
    has_network: bool = False,
    of_head: Mapping[str, str] | None = None,
    supervised: str = "",
    room: str = "",
) -> Iterator[MachinesApart]:
    """Start the first, and one for each of *disks*, with a disk of its own at *data*.

    That of the second is at ``directory / "second"`` here, those of others at their names in OTHERS.
    The labels of their raylets say which of *disks* they have. Their *addresses* begin with that text,
    unless two of them have a network that can be cut (*has_network*), with an address each. The head
    has the variables *of_head*; with them, its raylet outlives its GCS. With *supervised*, the name of
    a cluster, each machine runs ``deploy/machine.sh``, which starts a node of it, too. With *room*
    those disks have that size, and are not to be seen here. Skips where the system allows no such thing.
    """
    plan = _Plan(directory, data, disks, addresses, of_head, supervised, room)
    for each in (data, *plan.rays(), *(directory / name for name in OTHERS[: len(disks)])):
        each.mkdir(exist_ok=True)
    with ExitStack() as running:
        network = _Network() if has_network else None
        if network is not None:
            running.callback(network.close)
        yield running.enter_context(_started(plan, network))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is started: the arguments of :func:`machines_apart`, and the commands that follow."""

    directory: Path
    data: Path
    disks: Sequence[str]
    addresses: str
    of_head: Mapping[str, str] | None
    supervised: str
    room: str

    def environ(self, address: str) -> dict[str, str]:
        """Return what both machines have in their environment."""
        found = {name: text for name, text in os.environ.items() if name != "RAY_ADDRESS"}
        found |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            "RAY_prestart_worker_first_driver": "0",  # a second of processor time each, for nothing
        }
        if self.supervised:
            path = os.pathsep.join((str(Path(_RAY).parent), found.get("PATH", os.defpath)))
            found |= {"PATH": path, "RAY_ADDRESS": address}
        return found

    def head(self, words: Sequence[str]) -> list[str]:
        """Return the command of the head, whose arguments of ray are *words*."""
        return [*self._ray(), *words, *_OPTIONS]

    def hosts(self, network: _Network | None) -> list[str]:
        """Return the addresses of all machines."""
        if network is not None:
            return [network.here, network.there]
        return [f"{self.addresses}{_FIRST_HOST + number}" for number in range(1 + len(self.disks))]

    def rays(self) -> list[Path]:
        """Return the directories of Ray on all machines."""
        return [self.directory / f"r{1 + number}" for number in range(1 + len(self.disks))]

    def worker(self, number: int, address: str, host: str) -> list[str]:
        """Return the command of another machine's raylet, with that *host* as its own."""
        command = [*self._ray("--join"), "start", f"--address={address}", *_OPTIONS, NO_READER]
        command += [f"--node-ip-address={host}", f"--temp-dir={self.rays()[1 + number]}"]
        if self.disks[number] and not self.supervised:
            command += ["--labels", f"rocketray-disk={self.disks[number]}"]
        return command

    def apart(self, number: int) -> list[str]:
        """Return the command before one that runs on another machine."""
        own, name = self.rays()[1 + number], OTHERS[number]
        hidden = Path("/dev/shm"), *(each for each in self.rays() if each != own)
        host = f"{ELSEWHERE}-{name}" if number else ELSEWHERE
        return apart(self.data, self.directory / name, *hidden, room=self.room, name=host)

    def _ray(self, *options: str) -> list[str]:
        if not self.supervised:
            return [_RAY]
        machine = ["bash", str(_MACHINE), str(self.data), "--cluster", self.supervised]
        return [*machine, *options, "ray"]


@contextmanager
def _started(plan: _Plan, network: _Network | None) -> Iterator[MachinesApart]:
    directory = plan.directory
    here, *elsewhere = plan.hosts(network)
    with socket.create_server((here, 0)) as free:
        port = free.getsockname()[1]
    address = f"{here}:{port}"
    environ = plan.environ(address)
    head = AnotherRay(address, {**environ, **(plan.of_head or {})}, str(directory / "r1"))
    with ExitStack() as running:
        running.callback(head.stop)
        first = None
        if plan.supervised:
            # A head does not start while another process of its machine names its address.
            alone = with_mounts("", names=_OWN_PROCESSES)
            command = [*alone, *plan.head(head.start_words())]
            first = _Machine(command, directory / "r1.log", environ, [])
            running.callback(first.lose)
            first.start()
        elif plan.of_head is None:
            command = plan.head(head.start_words())
            running.callback(_end, _start(command, directory / "r1.log", environ))
        else:
            head.start()
        enter, spaces = ([], []) if network is None else (network.command(), ["--net"])
        # Ray on loopback (tests/conftest.py) lets no second raylet in, unless that one says otherwise.
        with_another = {**environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}
        others = []
        for number, host in enumerate(elsewhere):
            worker = [*enter, *plan.apart(number), *plan.worker(number, address, host)]
            log = directory / f"{plan.rays()[1 + number].name}.log"
            others.append(_Machine(worker, log, with_another, spaces))
            running.callback(others[-1].lose)
            others[-1].start()
        yield MachinesApart(address, environ, head, others, network, first)


def _start(
    command: Sequence[str], log: Path, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=dict(environ))

    def has_started() -> bool:
        is_there = _STARTED in log.read_text()
        assert is_there or process.poll() is None, log.read_text()
        return is_there

    try:
        wait_until(has_started, log.read_text)
    except BaseException:
        _end(process)
        raise
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what ray start --block started."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(patience(_STOP_S))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

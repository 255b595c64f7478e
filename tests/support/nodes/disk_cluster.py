"""A cluster with a disk on each of several machines apart, and programs that use it on any of them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from support.harness.command_server import CommandServer, Done
from support.harness.commands import COMMAND, ONE_PROCESS, await_ready
from support.harness.patience import patience, wait_until
from support.harness.source_tree import ROOT
from support.nodes.another_ray import SHORT
from support.nodes.machines_apart import OTHERS, MachinesApart, machines_apart

from rocketray.runtime.files.home import settle_identity

NAME = "trade"
_DRIVER = ROOT / "tests/support/programs/joined_disks.py"
_WATCH = (str(_DRIVER), "watch")


class Cluster:
    """A node on each of the machines apart; the others join the cluster of the first."""

    def __init__(self, machines: MachinesApart, directory: Path, disks: Sequence[str]) -> None:
        self.machines = machines
        self.directory = directory
        self.data = directory / "data"
        self.disks = disks
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._drivers: dict[tuple[str, ...], subprocess.Popen[str]] = {}
        self._stack = ExitStack()

    @property
    def disk(self) -> str:
        """The disk of the second machine."""
        return self.disks[0]

    def start(
        self,
        machine: str,
        *options: str,
        prefix: tuple[str, ...] = (),
        name: str = NAME,
        data: Path | None = None,
    ) -> None:
        """Start a node; return when it is ready."""
        command = [COMMAND, "start", "--cluster", name, "--ray-address", self.machines.address]
        command = [*prefix, *command, "--data", str(data or self.data), *options]
        with self._log(machine).open("w") as output:
            environ = dict(self.machines.environ)
            node = subprocess.Popen(command, stdout=output, stderr=output, env=environ)
        self.nodes[machine] = node
        await_ready(node, partial(self.said, machine))

    def await_said(self, said: str, count: int, *logs: str) -> None:
        """Wait until what keeps each machine running, "r1" or "r2", has said that so many times."""
        paths = [self.directory / f"{name}.log" for name in logs]
        wait_until(
            lambda: min(path.read_text().count(said) for path in paths) >= count,
            lambda: [path.read_text() for path in paths],
            within_s=240,
        )

    def start_second(self) -> None:
        """Start the node on the second machine."""
        self.join(OTHERS[0])

    def join(self, machine: str) -> None:
        """Start the node on another machine."""
        self.start(machine, "--join", prefix=tuple(self.machines.on_other(machine)))

    def stop(self, machine: str, data: Path, prefix: tuple[str, ...] = ()) -> None:
        """Stop a node in order, by the process id in its lock."""
        self.enter([*prefix, "sh", "-c", f"kill -TERM $(grep -o '[0-9]*' '{data}/node.lock')"])
        assert self.nodes.pop(machine).wait(patience(60)) == 0, self.said(machine)

    def said(self, machine: str) -> str:
        """What a node printed so far."""
        return self._log(machine).read_text()

    def _log(self, machine: str) -> Path:
        return self.directory / f"{machine}.log"

    def run(self, *arguments: str, code: int = 0, prefix: tuple[str, ...] = ()) -> str:
        """Run a command of rocketray; return what it printed."""
        done = subprocess.run(
            [*prefix, COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=dict(self.machines.environ),
            timeout=patience(120),
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def enter(self, command: list[str]) -> None:
        """Run a command on the second machine."""
        limit_s = patience(60)
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
        assert done.returncode == 0, done.stderr

    def drive(self, phase: str, prefix: tuple[str, ...] = (), name: str = NAME) -> dict[str, Any]:
        """Run a phase of the driver, on the machine that *prefix* enters."""
        if prefix not in self._drivers:
            self._drivers[prefix] = subprocess.Popen(
                [*prefix, sys.executable, str(_DRIVER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=dict(self.machines.environ),
            )
        line = json.dumps([phase, self.machines.address, name])
        code, printed = _answer(self._drivers[prefix], line)
        assert code == 0, f"{phase}: see the traceback in what is captured of stderr"
        found: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return found

    def topology(self) -> list[dict[str, Any]]:
        """What the command says of disks and topics."""
        return self.ask("topology", "--json").lines()

    def coordinator(self) -> str:
        """The machine on which the coordinator runs; "" while no command finds it."""
        done = self.ask("topology", "--json")
        disks = [line for line in done.lines() if "disk" in line] if done.code == 0 else []
        return next((disk["machine"] for disk in disks if disk["isCoordinator"]), "")

    def await_coordinator(self, machine: str) -> None:
        """Wait until it runs there."""
        said = partial(self.said, "first")
        wait_until(lambda: self.coordinator() == machine, said, within_s=120)

    def ask(self, *arguments: str, name: str = NAME) -> Done:
        """Run a command about a cluster on the first machine, in one process with others."""
        return self._commands("--cluster", name, "--ray-address", self.machines.address, *arguments)

    @cached_property
    def _commands(self) -> CommandServer:
        return self._stack.enter_context(CommandServer(self.machines.environ))

    def close(self) -> None:
        """End its commands, drivers and nodes."""
        self._stack.close()
        for driver in self._drivers.values():
            driver.communicate(timeout=patience(60))
        for node in self.nodes.values():
            node.kill()
            node.wait()


def _answer(driver: subprocess.Popen[str], line: str) -> Any:
    """Return a driver's answer to a line, which is a line of JSON."""
    assert driver.stdin is not None
    assert driver.stdout is not None
    with suppress(BrokenPipeError):  # it has ended by itself
        driver.stdin.write(line + "\n")
        driver.stdin.flush()
    said = driver.stdout.readline()
    assert said, f"the driver has ended with {driver.wait(patience(60))}"
    return json.loads(said)


class Watch:
    """A driver on a machine, which answers lines; by default it uses a queue of each disk."""

    def __init__(
        self, cluster: Cluster, prefix: Sequence[str] = (), program: Sequence[str] = _WATCH
    ) -> None:
        self._driver = subprocess.Popen(
            [*prefix, sys.executable, *program, cluster.machines.address, NAME],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(cluster.machines.environ),
        )

    def ask(self, line: str) -> dict[str, Any]:
        """Return the answer to a line."""
        found: dict[str, Any] = _answer(self._driver, line)
        return found

    def kill(self) -> None:
        """End it, whatever it does."""
        self._driver.kill()
        self._driver.wait()
        for stream in (self._driver.stdin, self._driver.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # it has ended by itself
                stream.close()

    def end(self) -> dict[str, Any]:
        """Return what became of all messages."""
        said, _ = self._driver.communicate(timeout=patience(120))
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        return found


def nothing_is_lost(history: Iterable[Mapping[str, Any]]) -> None:
    """Check what :meth:`Watch.end` gave: each queue has all its messages, in their order."""
    for traffic in history:
        assert traffic["errors"] == []
        assert traffic["lost"] == 0
        assert traffic["in order"]


@contextmanager
def cluster_of_two(*, is_supervised: bool = False, **options: Unpack[Options]) -> Iterator[Cluster]:
    """Start a node on each of two machines."""
    with two_machines(is_supervised=is_supervised, **options) as found:
        if is_supervised:
            found.await_said("ready: pid", 1, "r1", "r2")
        else:
            found.start("first", *ONE_PROCESS)
            found.start_second()
        yield found


@contextmanager
def cluster_of(count: int, **options: Unpack[Options]) -> Iterator[Cluster]:
    """Start a node on each of *count* machines, as users do."""
    with _machines(count, **options) as found:
        found.start("first")
        for name in OTHERS[: count - 1]:
            found.join(name)
        yield found


class Options(TypedDict, total=False):
    """Those of :func:`machines_apart`."""

    addresses: str
    has_network: bool
    of_head: Mapping[str, str] | None
    room: str


@contextmanager
def two_machines(*, is_supervised: bool = False, **options: Unpack[Options]) -> Iterator[Cluster]:
    """Start two machines for the nodes of a cluster."""
    with _machines(2, is_supervised=is_supervised, **options) as found:
        yield found


@contextmanager
def _machines(
    count: int, *, is_supervised: bool = False, **options: Unpack[Options]
) -> Iterator[Cluster]:
    # Ray puts sockets there, whose paths have at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="two-", dir=SHORT, ignore_cleanup_errors=True) as name:
        directory = Path(name)
        disks = []
        for other in OTHERS[: count - 1]:
            (directory / other).mkdir()
            disks.append(settle_identity(directory / other))
        apart = machines_apart(
            *(directory, directory / "data"),
            disks=disks,
            supervised=NAME if is_supervised else "",
            **options,
        )
        with apart as machines:
            found = Cluster(machines, directory, disks)
            try:
                yield found
            finally:
                found.close()

"""What may happen to a fleet (fleet.py), its node and its machine, while messages flow.

A strike returns when it is over: who was stopped goes on, and a disk has room again. What is killed
starts again by itself, by Ray or from here.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Self

from support.harness.patience import patience, wait_until
from support.harness.process_tree import descendants
from support.harness.set_clock import CLOCK, set_clock
from support.harness.source_tree import ROOT
from support.nodes.fleet import ACTORS, Fleet, pid_of

from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.runtime.calls.endpoint import GATEWAY_NAME

KILLS = ("member", "leave", "host", "producer", GATEWAY_NAME, *ACTORS)
"""What is killed, or leaves, and is back at once."""
PAUSES = ("stop", *(f"stop {name}" for name in ACTORS), "clock", "clock")
"""What stops, or finds that the clock was set; beside these there are ``node`` and ``slow``."""
DISKS = ("memory", "disk")
"""What fills up; only where both are small file systems."""

_SHARED_MEMORY = Path("/dev/shm")
_SMALL_BYTES = 1 << 30
_PIECE = bytes(1 << 16)
_FULL_S = 3.0
_HOUR_NS = 3_600 * 10**9


class NodeProcess:
    """A node in a process of its own, with a Ray of its own, that is started as often as needed."""

    def __init__(self, directory: Path) -> None:
        """Take the directory of everything; the clock of all that is started is there."""
        self.data = directory / "data"
        self._said = directory / "node.log"
        self.clock = directory / "clock"
        set_clock(self.clock, 0)
        os.environ[CLOCK] = str(self.clock)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Return when it is ready."""
        script = ROOT / "tests/support/programs/node_process.py"
        with self._said.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(script), str(self.data)], stdout=output, stderr=output
            )
        wait_until(self._is_ready, self._said.read_text)

    def kill(self) -> None:
        """End it, and all processes that it started, at once."""
        doomed = [self._process.pid, *descendants(self._process.pid)]
        for pid in doomed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(patience(60))

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._said.read_text()
        return "ready\n" in self._said.read_text()


class Nemesis:
    """The strikes, by their names."""

    def __init__(self, fleet: Fleet, node: NodeProcess, random: Random, pause_ms: int) -> None:
        self._fleet, self._node, self._random = fleet, node, random
        self._strikes: dict[str, Callable[[], None]] = {
            "member": fleet.kill_member,
            "host": fleet.kill_host,
            "producer": lambda: fleet.kill_producer(pause_ms),
            "leave": self._change_members,
            "stop": self._stop_some,
            "clock": self._set_clock,
            "slow": self._slow_down,
            "node": self._lose_node,
            "memory": lambda: self._fill(_SHARED_MEMORY),
            "disk": lambda: self._fill(node.data),
        }

    def strike(self, kind: str) -> None:
        """Let it happen."""
        if kind in self._strikes:
            self._strikes[kind]()
        elif kind.startswith("stop "):
            self._stop(kind.removeprefix("stop "))
        else:
            self._fleet.kill_actor(kind)

    def _change_members(self) -> None:
        self._fleet.start_member()
        assert self._fleet.leave_member() == 0

    def _stop_some(self) -> None:
        """Stop a member and a host until their leases are over; they go on and find out."""
        go_on = self._fleet.stop_some()
        try:
            time.sleep(self._random.uniform(1.1, 1.6) * SESSION_TIMEOUT_MS / 1000)
        finally:
            go_on()

    def _set_clock(self) -> None:
        """Set the wall clock to another time of this month or the next."""
        set_clock(self._node.clock, self._random.randrange(-720, 720) * _HOUR_NS)

    def _stop(self, name: str) -> None:
        """Stop an actor, at times for longer than leases last."""
        pid = pid_of(name)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._random.uniform(0.2, 1.2) * SESSION_TIMEOUT_MS / 1000)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def _slow_down(self) -> None:
        """Let each sync of the shards take a third of a second for a while."""
        pids = [str(pid_of(name)) for name in ACTORS if ":" in name]
        targets = [word for pid in pids for word in ("-p", pid)]
        inject = "inject=fdatasync,fsync,msync:delay_enter=300000"
        with subprocess.Popen(
            ["strace", "-f", "-qq", "-o", "/dev/null", "-e", inject, *targets]
        ) as watcher:
            time.sleep(2 * _FULL_S)
            watcher.send_signal(signal.SIGINT)

    def _lose_node(self) -> None:
        """End the node with its Ray, and so its app's hosts; start all of them again."""
        note = self._fleet.ask_all()
        self._node.kill()
        note()
        # After the ends of the others: what they had committed since the last save is forgotten.
        self._fleet.note_forgotten(time.monotonic_ns())
        self._node.start()
        self._fleet.see_offsets()  # when it answers
        self._fleet.start_app()

    def _fill(self, directory: Path) -> None:
        """Leave no room in a small file system for a while; a member dies and comes meanwhile."""
        stats = os.statvfs(directory)
        assert stats.f_blocks * stats.f_frsize <= _SMALL_BYTES, f"{directory} is the machine's"
        ballast = directory / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(_PIECE)
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017 - this is no test function
        try:
            self._fleet.kill_member()
            time.sleep(_FULL_S)
        finally:
            ballast.unlink()

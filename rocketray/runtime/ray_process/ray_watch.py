"""Detection of a lost Ray under a node, and the processes that it leaves.

Ray itself notices the loss of its GCS after a minute, and aborts; a call to it meanwhile blocks. So
a node's process keeps connecting to the two servers that it cannot do without, the GCS and its own
raylet, and ends when one of them is gone:

    connection      raylet      GCS of the node's own Ray   GCS of another's Ray
    refused         at once     at once                     for 40 s
    other errors    for 10 s    for 10 s                    for 40 s
    silent          –           never                       never

A refused connection means that no process listens. A raylet never comes back, and neither does the
GCS of a Ray that lives as long as the node. Other errors, such as a timeout, count only if they
last: a packet may be lost on the way to another machine, and this process may be short of
descriptors. A GCS is silent that says nothing on an open connection (server_probe.py), because its
machine is too busy, or because it was stopped. Ray waits for it: one that was stopped for 75 s had
ended nothing, and actors had answered each other. So it is told, and is not lost.

The GCS of a separate Ray may be started again. Meanwhile processes that know each other continue to
call each other, so the Ray counts as lost only shortly before its own processes abort: 20 s
earlier. A GCS that is started again with its state (Ray's GCS fault tolerance) knows the id of this
Ray, and everything continues. One without it is another Ray: this one is lost at once.

The processes that a raylet started are found when Ray answers nothing more, also those that outlive
it: they were its children when the watch began, or are now, or name it in their environment. None
of the three is enough: a process that lost its raylet has another parent, and one that sets a title
may overwrite the environment that /proc shows. Linux only, as /proc is.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rocketray.base.environment import process_environ
from rocketray.runtime.processes import is_alive, parent_and_start

from .server_probe import ServerProbe

_LOG = logging.getLogger(__name__)
_CONNECT_TIMEOUT_S = 2.0  # of each of two servers: a look takes 4 s at worst, and not 1
_SILENCE_S = 10.0  # several looks, so that one lost packet is no loss
_GCS_AWAY_MIN_S = 3.0  # where an operator gives Ray's processes less than 23 s
_GIVE_UP_EARLIER_S = 20.0  # without its GCS, a process takes 8 s to leave a Ray, more if it is busy
_GCS_WAIT_VARIABLE = "RAY_gcs_rpc_server_reconnect_timeout_s"
_GCS_WAIT_S = 60.0  # Ray's default
_END_TIMEOUT_S = 2.0  # a killed process that waits for a disk ends when the disk answers
_LOOK_AGAIN_S = 0.02
_RAYLET_VARIABLE = b"RAY_RAYLET_PID="
_ACTOR_TITLE = re.compile(rb"ray::(\w+)")


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that a raylet started; ``title`` is the class of its actor."""

    pid: int
    title: str


class AwayNote:
    """What is said of a GCS that is unavailable: logged once, and once that it answers again."""

    def __init__(self) -> None:
        self.said: str | None = None
        """What is said of it now; None while it answers."""

    def look(self, watch: RayWatch | None) -> None:
        """Note what the last :meth:`RayWatch.lost` found; None without a Ray."""
        is_away = watch is not None and watch.is_gcs_away
        if is_away == (self.said is not None):
            return
        if watch is None or not is_away:
            self.said = None
            _LOG.info("Ray's GCS answers again")
            return
        self.said = f"Ray's GCS at {watch.gcs} does not answer: what needs it has to wait"
        _LOG.warning("%s", self.said)


class RayWatch:
    """The servers of one Ray that this process needs, by their addresses on the network."""

    def __init__(
        self,
        gcs: str,
        raylet: str,
        worker: int = 0,
        *,
        gcs_away_s: float = 0.0,
        knows_us: Callable[[], bool | None] = lambda: True,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the servers' addresses, and a process that the raylet started, for :meth:`workers`.

        *gcs_away_s* is how long the GCS of a Ray that lives longer than the node may be away;
        *knows_us* returns whether the one that came back is of this Ray, None if it does not say.
        """
        self._servers = {"GCS": gcs, "raylet": raylet}
        self._probe = ServerProbe(gcs, clock_s)
        self._gcs_away_s = gcs_away_s
        self._knows_us = knows_us
        self._is_another = False
        """Whether the GCS may be another one: it did not answer, nor confirm the id since."""
        self._raylet = (_raylet_above(worker) or _raylet_of(worker)) if worker else 0
        self._first = _children(self._raylet) if self._raylet else {}
        self._clock_s = clock_s
        self._failing_since_s: dict[str, float] = {}

    @property
    def gcs(self) -> str:
        """Address of the GCS."""
        return self._servers["GCS"]

    @property
    def raylet(self) -> str:
        """Address of the raylet."""
        return self._servers["raylet"]

    @property
    def is_gcs_away(self) -> bool:
        """Whether the GCS did not answer the last time, and may come back."""
        return "GCS" in self._failing_since_s

    def lost(self) -> str | None:
        """Return the server that is gone, or None; call this every second."""
        for name, address in self._servers.items():
            error = connect_error(address, _CONNECT_TIMEOUT_S)
            now_s = self._clock_s()
            if error is None:
                if name == "GCS" and self._probe.silent_s() >= _SILENCE_S:
                    self._failing_since_s.setdefault(name, now_s)
                else:
                    self._failing_since_s.pop(name, None)
                continue
            failing_s = now_s - self._failing_since_s.setdefault(name, now_s)
            if failing_s >= self._patience_s(name, error):
                return f"its {name} at {address} does not answer ({error})"
        return self._lost_state()

    def _patience_s(self, name: str, error: OSError) -> float:
        """Return how long a server may fail with that error."""
        if name == "GCS" and self._gcs_away_s:
            return self._gcs_away_s
        return 0.0 if isinstance(error, ConnectionRefusedError) else _SILENCE_S

    def _lost_state(self) -> str | None:
        """Return what to say of a GCS that came back without its state, or None."""
        if self.is_gcs_away:
            self._is_another = True
        elif self._is_another:
            is_ours = self._knows_us()
            if is_ours is False:
                return f"its GCS at {self.gcs} was started again, without its state"
            self._is_another = is_ours is None
        return None

    def workers(self) -> list[Worker]:
        """Return the processes that the raylet started, which may have outlived it."""
        if not self._raylet:
            return []
        now = _children(self._raylet)
        found = []
        for pid in _processes():
            is_first = self._first.get(pid) == parent_and_start(pid)[1]  # else its id was reused
            if (pid in now or is_first or _raylet_of(pid) == self._raylet) and _runs(pid):
                try:
                    title = _ACTOR_TITLE.match(Path(f"/proc/{pid}/cmdline").read_bytes())
                except OSError:
                    continue  # it has ended meanwhile
                found.append(Worker(pid, title[1].decode() if title else ""))
        return found


def gcs_away_s() -> float:
    """Return how long a GCS may be away before this process has to leave its Ray.

    Ray waits for it as long as its variable in the environment of each process says.
    """
    try:
        waits_s = float(process_environ().get(_GCS_WAIT_VARIABLE, _GCS_WAIT_S))
    except ValueError:
        waits_s = _GCS_WAIT_S
    return max(_GCS_AWAY_MIN_S, waits_s - _GIVE_UP_EARLIER_S)


def connect_error(address: str, timeout_s: float) -> OSError | None:
    """Return the error of connecting to a server, or None."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
    except OSError as error:
        return error
    return None


def _processes() -> list[int]:
    return [int(directory.name) for directory in Path("/proc").glob("[0-9]*")]


def _children(pid: int) -> dict[int, int]:
    """Return the processes below *pid*, and when each was started."""
    found = {each: parent_and_start(each) for each in _processes()}
    return {each: started for each, (parent, started) in found.items() if parent == pid}


def _raylet_above(pid: int) -> int:
    """Return the parent of a process, if that is a raylet; else 0."""
    parent, _ = parent_and_start(pid)
    try:
        return parent if Path(f"/proc/{parent}/comm").read_text().strip() == "raylet" else 0
    except OSError:
        return 0


def _raylet_of(pid: int) -> int:
    """Return the raylet that a process's environment names; 0 if it names none."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return 0  # it has ended, or is another user's
    said = next((each for each in variables if each.startswith(_RAYLET_VARIABLE)), b"")
    number = said.removeprefix(_RAYLET_VARIABLE)
    return int(number) if number.isdigit() else 0


def end_processes(pids: Iterable[int]) -> list[int]:
    """Kill processes; return those that are still there after some time."""
    left = list(pids)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    end = time.monotonic() + _END_TIMEOUT_S
    while (left := [pid for pid in left if _runs(pid)]) and time.monotonic() < end:
        time.sleep(_LOOK_AGAIN_S)
    return left


def _runs(pid: int) -> bool:
    """Return whether the process still has files open: a zombie waits for its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return is_alive(pid)
    return state not in "ZX"

"""The failure that ended a host, described so that the app's author finds the place.

A failure outlives its process, as JSON: the process that asks later is another one. The last one
of each host is stored at Ray's head, in its key-value store, which holds it as long as it holds the
named actors themselves. Any process that has joined that Ray can read it. A failure's place is
the last line of the author's own code that the error, or its cause, went through: in the app's
module or package, else in a file that is neither Python's, nor installed, nor ours.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

from ray.exceptions import RayActorError, RayError, RuntimeEnvSetupError
from ray.experimental import internal_kv

from rocketray.topology.app.own_code import is_installed

__all__ = ["HostFailure", "forget_failure", "last_failure", "store_failure", "why_no_answer"]

_MESSAGE_LIMIT = 2000  # characters; a message may quote the input it failed on
_NAMESPACE = "rocketray-hosts"


@dataclass(frozen=True, slots=True)
class HostFailure:
    """An exception's type and message, the place as ``file:line``, the time, and the machine."""

    kind: str
    message: str
    place: str | None
    time_ms: int
    machine: str = ""

    @classmethod
    def of(
        cls, error: BaseException | None, time_ms: int, module: str | None = None
    ) -> HostFailure:
        """Describe *error*; *module* is the app's."""
        machine = socket.gethostname()
        if error is None:
            return cls("Crash", "the app crashed without a reason", None, time_ms, machine)
        message = str(error)
        if len(message) > _MESSAGE_LIMIT:
            message = f"{message[:_MESSAGE_LIMIT]}…"
        place = _place(error, _own_files(module))
        return cls(type(error).__name__, message, place, time_ms, machine)

    @property
    def is_here(self) -> bool:
        """Whether it was on this machine, or on one that is not known."""
        return self.machine in ("", socket.gethostname())

    def __str__(self) -> str:
        where = "" if self.place is None or self.place in self.message else f" ({self.place})"
        return f"{self.kind}: {self.message}{where}"


def _own_files(module: str | None) -> Path | None:
    """Return the file of *module*, or the directory of its package."""
    imported = sys.modules.get(module or "")
    file = getattr(imported, "__file__", None)
    if file is None:
        return None
    return Path(file).parent if getattr(imported, "__package__", None) else Path(file)


def _place(error: BaseException | None, own: Path | None) -> str | None:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # causes may form a cycle
        seen.add(id(error))
        frames = list(enumerate(traceback.extract_tb(error.__traceback__)))
        nearest = max(((_nearness(each.filename, own), at) for at, each in frames), default=(0, 0))
        if nearest[0]:
            frame = frames[nearest[1]][1]
            return f"{frame.filename}:{frame.lineno}"
        error = error.__cause__ or error.__context__
    return None


def _nearness(file: str, own: Path | None) -> int:
    """Return how close *file* is to the author's own code; 0: not at all."""
    path = Path(file)
    if own is not None and path.is_relative_to(own):
        return 2
    return 0 if not path.is_absolute() or is_installed(path) else 1


def why_no_answer(error: RayError) -> str:
    """Return a line on *error*, with which Ray answered for a host that has no process.

    Ray's text ends with the error itself if the process could not be set up.
    """
    lines = str(error).splitlines() or [type(error).__name__]
    address = re.search(r"\bip=([^,)\s]+)", lines[0])
    if isinstance(error, RuntimeEnvSetupError):
        return f"Ray cannot set up its code: {lines[-1]}; see runtime_env_agent.log in Ray's logs"
    if address is not None and lines[-1].startswith("ModuleNotFoundError: "):
        return (
            f"the Python of Ray on the machine {address[1]} lacks a package: {lines[-1]}; install "
            "rocketray there, or choose other machines with --label"
        )
    if isinstance(error, RayActorError):
        return f"its process ended: {lines[0]}"
    return lines[0]


def store_failure(name: str, failure: HostFailure) -> None:
    """Store *failure* as the last one of the host *name*."""
    internal_kv._internal_kv_put(  # noqa: SLF001  # Ray has no other
        name, json.dumps(asdict(failure)), overwrite=True, namespace=_NAMESPACE
    )


def last_failure(name: str) -> HostFailure | None:
    """Return the last failure of the host *name*; None if there is none that can be read."""
    text = internal_kv._internal_kv_get(name, namespace=_NAMESPACE)  # noqa: SLF001  # the same
    try:
        return None if text is None else HostFailure(**json.loads(text))
    except (TypeError, ValueError):
        return None


def forget_failure(name: str) -> None:
    """Delete the failure of the host *name*, which has been removed."""
    internal_kv._internal_kv_del(name, namespace=_NAMESPACE)  # noqa: SLF001  # the same

"""The failure that ended a host, described so that the app's author finds the place.

A failure outlives its process: the process that asks later is another one (stored_failures.py). Its
place is the last line of the author's own code that the error, or its cause, went through: in the
app's module or package, else in a file that is neither Python's, nor installed, nor ours.
"""

from __future__ import annotations

import socket
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from rocketray.topology.app.own_code import is_installed

_MESSAGE_LIMIT = 2000  # characters; a message may quote the input it failed on


@dataclass(frozen=True, slots=True)
class HostFailure:
    """An exception's type and message, the place as ``file:line``, the time, and the machine."""

    kind: str
    message: str
    place: str | None
    time_ms: int
    machine: str = ""

    @classmethod
    def of(cls, error: BaseException, time_ms: int, module: str | None = None) -> HostFailure:
        """Describe *error*; *module* is the app's."""
        message = str(error)
        if len(message) > _MESSAGE_LIMIT:
            message = f"{message[:_MESSAGE_LIMIT]}…"
        place = _place(error, _own_files(module))
        return cls(type(error).__name__, message, place, time_ms, socket.gethostname())

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

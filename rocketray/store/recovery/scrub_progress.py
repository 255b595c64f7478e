"""``scrub.json``: how far a store was read again (scrub.py), and the damage that was found.

    {"version": 1, "position": 67108864, "begunMs": 17…, "verifiedMs": 17…,
     "damage": [{"file": "commitlog/000…", "offset": 90, "what": "…"}], "lost": [[4711, 8192]]}

``position`` is the log file that is read next, ``begunMs`` when the pass under way began, or null,
and ``verifiedMs`` when the last one ended, or null. ``lost`` are the parts of the log without a
record that ``rocketray store recover`` has reported: they are not reported again.

The file only helps: without it, or with a damaged one, the next pass begins at the begin of the
log, and finds the damage again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import orjson

from rocketray.base.file_form import FileForm, UnknownVersionError
from rocketray.base.json_fields import Natural, json_fields, read_value
from rocketray.errors import StoreError
from rocketray.store.files.file_system import FileSystem, replace_file

from .problem import Problem
from .replay import Hole

_NAME = "scrub.json"
_FORM = FileForm(_NAME)
_MAX_BYTES = 16 * 1024 * 1024  # _DAMAGE_MAX problems, and what repairs reported as lost
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScrubProgress:
    """What ``scrub.json`` has. Files of ``damage`` are relative to the store's directory."""

    position: Natural = 0
    begun_ms: Natural | None = None
    verified_ms: Natural | None = None
    damage: tuple[Problem, ...] = ()
    lost: tuple[tuple[Natural, Natural], ...] = ()

    def knows_as_lost(self, start: int, end: int) -> bool:
        """Return whether a repair has reported the bytes from *start* to *end* of the log."""
        return any(first <= start and end <= behind for first, behind in self.lost)


def read_progress(file_system: FileSystem, directory: Path) -> ScrubProgress:
    """Return what is known of the store *directory*: nothing, if its file is not readable.

    Raises:
        UnknownVersionError: a later release wrote the file, which is to be left as it is.
    """
    path = directory / _NAME
    try:
        value = _FORM.content(orjson.loads(file_system.read(path, _MAX_BYTES)), path)
        return read_value(ScrubProgress, value)
    except FileNotFoundError:
        return ScrubProgress()
    except UnknownVersionError:
        raise
    except (StoreError, OSError, ValueError) as error:
        _LOG.warning("%s: not readable, so the store is read from its begin: %s", path, error)
        return ScrubProgress()


def write_progress(file_system: FileSystem, directory: Path, progress: ScrubProgress) -> None:
    """Write the file; durable on return. Raises the system's ``OSError``, or ``StoreError``."""
    content = orjson.dumps(_FORM.of(json_fields(progress)))
    replace_file(file_system, directory / _NAME, content)


def accept_holes(file_system: FileSystem, directory: Path, holes: Iterable[Hole]) -> None:
    """Forget the damage of a store that was repaired; its *holes* are known from now on."""
    lost = tuple((hole.start, hole.end) for hole in holes)
    if lost:
        write_progress(file_system, directory, ScrubProgress(lost=lost))
    elif file_system.exists(directory / _NAME):
        file_system.unlink(directory / _NAME)
        file_system.sync(directory)

"""``recovered.json``: the report of a store's last recovery, for later questions.

    {"time_ms": 17…, "start_offset": 0, "end_offset": 4711, "records_read": 12, …, "holes": […]}

It is for people: no code depends on it, and a store without it, or with a damaged one, is
valid. An opening after a clean stop leaves it unchanged. A directory of RocketMQ's gets none.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import orjson

from rocketray.errors import StoreError
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem, replace_file

from .recovery import RecoveryReport
from .replay import Hole

__all__ = ["PastRecovery", "read_past_recovery", "write_past_recovery"]

_NAME = "recovered.json"
_MAX_BYTES = 1 << 20
_HOLES_MAX = 1000  # the first ones; the log has a line for each
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PastRecovery:
    """The time of a store's recovery, and its report."""

    time_ms: int
    report: RecoveryReport


def write_past_recovery(
    directory: Path, report: RecoveryReport, time_ms: int, file_system: FileSystem
) -> None:
    """Write *report* to *directory*; a failure is only logged."""
    kept = replace(report, holes=report.holes[:_HOLES_MAX])
    content = orjson.dumps({"time_ms": time_ms, **asdict(kept)})
    try:
        replace_file(file_system, directory / _NAME, content)
    except (OSError, StoreError) as error:
        _LOG.warning("%s: the report of its recovery is not saved: %s", directory, error)


def read_past_recovery(
    directory: Path, file_system: FileSystem = SYSTEM_FILES
) -> PastRecovery | None:
    """Return the last recovery of *directory*; None if there was none, or no readable report."""
    try:
        value: Any = orjson.loads(file_system.read(directory / _NAME, _MAX_BYTES))
        holes = tuple(
            Hole(_number(one["start"]), _number(one["end"]), str(one["reason"]))
            for one in value["holes"]
        )
        numbers = {
            field.name: _number(value[field.name])
            for field in fields(RecoveryReport)
            if field.name not in {"holes", "was_clean"}
        }
        report = RecoveryReport(was_clean=False, holes=holes, **numbers)
        return PastRecovery(_number(value["time_ms"]), report)
    except (FileNotFoundError, StoreError, LookupError, TypeError, ValueError):
        return None


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value

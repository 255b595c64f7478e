"""How far a sink is: its last micro-batch, its checkpoint, and the log lines about both.

A checkpoint of Spark has a directory ``offsets`` with a file for each micro-batch that was begun,
and ``commits`` with one for each that was completed. A file of offsets has a line with its version,
one with metadata, and one with the end offsets of each source, as JSON. The last batch that was
begun is repeated unless it was completed, so the query continues from the end of the one before.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rocketray.base.quantity import counted
from rocketray.topology.app.sink_statistics import SinkState, SinkStatistics

Position = Mapping[str, Mapping[str, int]]
"""The next queue offset by topic and queue; under ``@`` there is something else."""

_LOG_EVERY_S = 10.0  # with a batch a second, a line for each would hide all others
_OFFSETS_MAX_BYTES = 64 * 1024 * 1024  # some 20 bytes a queue: larger, it is not Spark's

logger = logging.getLogger(__name__)


class Query(Protocol):
    """The part of Spark's ``StreamingQuery`` that a runner needs."""

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        """The last micro-batch's report, or None."""

    @property
    def status(self) -> Any:
        """What it does now: ``message`` is for people."""

    def awaitTermination(self) -> Any:  # noqa: N802 - Spark's name
        """Block until the query ends; raise its error if it failed."""

    def stop(self) -> None:
        """End the query."""


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A micro-batch: its number, the rows it read, and the position in each queue after it."""

    batch_id: int
    input_rows: int
    rows_per_s: float | None
    end_offset: Position

    @classmethod
    def of(cls, query: Query) -> QueryProgress | None:
        """Return the query's last micro-batch, or None before the first."""
        progress = query.lastProgress
        if progress is None or not progress["sources"]:
            return None
        end = progress["sources"][0]["endOffset"]
        if isinstance(end, str):
            end = json.loads(end)
        rate = progress.get("processedRowsPerSecond")
        return cls(int(progress["batchId"]), int(progress["numInputRows"] or 0), rate, end or {})


def checkpoint_position(checkpoint: str) -> Position | None:
    """Return where a query continues from a *checkpoint*: an empty one where it would begin.

    None if that is not known here: the checkpoint is a URI, or has another form.
    """
    if "://" in checkpoint:
        return None
    offsets = Path(checkpoint) / "offsets"
    batches = _batches(offsets)
    if not batches:
        return {}
    last = batches[-1]
    if last not in _batches(Path(checkpoint) / "commits"):
        batches.pop()
    return _read_offsets(offsets / str(batches[-1])) if batches else {}


def _batches(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(file.name) for file in directory.iterdir() if file.name.isdecimal())


def _read_offsets(file: Path) -> Position | None:
    try:
        if file.stat().st_size > _OFFSETS_MAX_BYTES:
            return None
        _version, _metadata, offset = file.read_text(encoding="utf-8").splitlines()
        found = json.loads(offset)
    except (OSError, ValueError):  # Spark removes old batches; another form has other lines
        return None
    return found if isinstance(found, dict) else None


class ProgressLog:
    """Logs the first micro-batch of each sink, the last one of every ten seconds, and its catch-up.

    Also that a sink still starts, every ten seconds. An idle sink has no lines. One thread uses it.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._logged: dict[str, tuple[SinkStatistics, float]] = {}

    def note(self, sinks: Iterable[SinkStatistics]) -> None:
        for sink in sinks:
            before, time_s = self._logged.get(sink.name, (None, 0.0))
            now_s = self._clock_s()
            line = _line(before, sink, is_due=now_s - time_s >= _LOG_EVERY_S)
            if line:
                logger.info("sink %s %s", sink.name, line)
            if line or before is None or sink.state is not before.state:
                self._logged[sink.name] = sink, now_s


def _line(before: SinkStatistics | None, sink: SinkStatistics, *, is_due: bool) -> str:
    """Return what to say of *sink*, of which *before* was said last; empty for nothing."""
    if sink.state is SinkState.FINISHED:
        is_new = before is None or before.state is not SinkState.FINISHED
        return f"has read all; its last was {_batch(sink)}" if is_new else ""
    if sink.state is SinkState.STARTING and before is not None and is_due:
        return "still starts on Spark"
    if sink.state is not SinkState.RUNNING:
        return ""
    if before is None or before.state is not SinkState.RUNNING:
        at = "first batch" if sink.batch_id is None else f"behind batch {sink.batch_id}"
        return f"reads {sink.topic}: {at}, {_behind(sink)}"
    if sink.batch_id == before.batch_id or not (is_due or (before.lag != 0 and sink.lag == 0)):
        return ""
    return f"has written {_batch(sink)}, {_behind(sink)}"


def _batch(sink: SinkStatistics) -> str:
    if sink.batch_id is None:
        return "no batch"
    rate = "" if not sink.rows_per_s else f" at {sink.rows_per_s:,.0f} rows/s"
    return f"batch {sink.batch_id} with {counted(sink.batch_rows or 0, 'row')}{rate}"


def _behind(sink: SinkStatistics) -> str:
    if sink.lag is None:
        return "from its starting offsets"
    return "up to date" if sink.lag == 0 else f"{counted(sink.lag, 'message')} behind"

"""What a sink reports of itself: values, for the processes that show them. Imports no pyspark."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SinkState(Enum):
    """The state of a sink.

    A WAITING sink waits for its topic to be created; a STARTING one for Spark. FINISHED is the
    successful end of a run over what was available.
    """

    IDLE = "idle"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """The present state of one sink, which reads *topic*.

    ``batch_id``, ``batch_rows`` and ``rows_per_s`` are of its last micro-batch, None before the
    first. ``lag`` counts the messages that it has not read yet, whether they match or not; None if
    that is not known. ``error`` is the last one, and ``place`` the line of the app that it went
    through, as ``file:line``.
    """

    name: str
    topic: str
    state: SinkState
    restarts: int
    batch_id: int | None = None
    batch_rows: int | None = None
    rows_per_s: float | None = None
    lag: int | None = None
    error: str | None = None
    place: str | None = None

    def failure(self) -> str | None:
        """Return the last error with its place; None without one."""
        return self.error and f"{self.error}{f' ({self.place})' if self.place else ''}"

"""A failure of an agent, as it is shown: a value without Faust, for processes that report it."""

from __future__ import annotations

from dataclasses import dataclass

from rocketray.runtime.process_logs.log_line import MessagePlace


@dataclass(frozen=True, slots=True)
class NotedFailure:
    """A failure of an agent: when, why, and at which message, if it was at one or a list."""

    time_ms: int
    reason: str
    place: MessagePlace | None = None

    def __str__(self) -> str:
        return self.reason if self.place is None else f"{self.reason} [{self.place}]"

"""An explanation: the cause for which a message was or was not delivered, and its steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rocketray.filters.verdict_values import ExplainStep

from .cause import Cause

Found = tuple[Cause | None, ExplainStep]
"""A step, with the cause if it is the last one."""


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One event: ``time_ms`` since 1970 is None if it is not recorded, ``event`` for programs.

    ``place`` is "topic/queue, offset n" of the copy that shows it; "" for the events of a group.
    """

    time_ms: int | None
    event: str
    place: str
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Return the event in the form that commands print as JSON."""
        return {
            "timeMs": self.time_ms,
            "event": self.event,
            "place": self.place or None,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation; ``message_id`` is the offset id, None if no message was found.

    ``timeline`` has the events of the message in order of time.
    """

    cause: Cause
    steps: tuple[ExplainStep, ...]
    message_id: str | None = None
    timeline: tuple[TimelineEvent, ...] = ()

    @classmethod
    def of(
        cls, found: Iterator[Found], message_id: str | None, first: tuple[ExplainStep, ...] = ()
    ) -> Explanation:
        """Create an explanation of the steps up to the first one with a cause."""
        steps = list(first)
        for cause, step in found:
            steps.append(step)
            if cause is not None:
                return cls(cause, tuple(steps), message_id)
        raise AssertionError("the last step has a cause")

    def to_json(self) -> dict[str, Any]:
        """Return the explanation in the form that commands print as JSON."""
        return {
            "cause": self.cause.value,
            "offsetMsgId": self.message_id,
            "steps": [asdict(step) for step in self.steps],
            "timeline": [event.to_json() for event in self.timeline],
        }

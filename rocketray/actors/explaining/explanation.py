"""An explanation: the cause for which a message was or was not delivered, and its steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rocketray.filters.verdict_values import ExplainStep

from .cause import Cause

__all__ = ["Cause", "Explanation", "Found"]

Found = tuple[Cause | None, ExplainStep]
"""A step, with the cause if it is the last one."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation; ``message_id`` is the offset id, None if no message was found."""

    cause: Cause
    steps: tuple[ExplainStep, ...]
    message_id: str | None = None

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
        }

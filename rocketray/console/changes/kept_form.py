"""A form that was sent and failed, as the page of the failure shows it again.

So nothing that was typed is lost while the node does not answer, and the page says what is known:
that nothing was done, or that the node may have done it, because it was asked and did not answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

_STEP = ("step", "check")
"""A form with a step is checked again before it is sent."""
_NOT_TYPED = frozenset({"csrf", "step", "action", "group", "topic", "letter"})


class WriteOutcome(Enum):
    """The outcome of a write."""

    UNDONE = "undone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class KeptForm:
    """The fields of a form by name, some of them repeated; ``is_begun`` once the node is asked."""

    fields: list[tuple[str, str]]
    is_begun: bool

    @classmethod
    def of(cls, form: Mapping[str, Any], *, is_begun: bool) -> KeptForm:
        """Return what a form has, but for its token and for files."""
        texts = [(name, text) for name, text in form.items() if isinstance(text, str)]
        kept = [pair for pair in texts if pair[0] not in ("csrf", _STEP[0])]
        return cls([*kept, _STEP] if _STEP[0] in form else kept, is_begun)

    @property
    def typed(self) -> list[tuple[str, str]]:
        """What a person gave, or left empty."""
        return [(name, text) for name, text in self.fields if name not in _NOT_TYPED]

    @property
    def others(self) -> list[tuple[str, str]]:
        """What the page gave."""
        return [(name, text) for name, text in self.fields if name in _NOT_TYPED]

    def outcome(self, *, has_answer: bool) -> WriteOutcome | None:
        """Return what is known; None if the node's answer says it itself."""
        if not self.is_begun:
            return WriteOutcome.UNDONE
        return None if has_answer else WriteOutcome.UNKNOWN

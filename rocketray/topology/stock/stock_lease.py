"""How a stock app stops without a lease: its events appear to be of another generation.

Right before a stream of Faust delivers an event, it compares the event's generation with the app's,
and drops the event where they differ. Ours are equal only while the lease holds: so a process that
was stopped for longer than that drops its fetched events when it resumes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

__all__ = ["LeasedGeneration"]


class LeasedGeneration(int):
    """The generation in which a message was fetched."""

    _may_hand_out: Callable[[], bool]

    def __new__(cls, number: int, may_hand_out: Callable[[], bool]) -> Self:
        """Create a generation; *may_hand_out* is called at every comparison."""
        self = super().__new__(cls, number)
        self._may_hand_out = may_hand_out
        return self

    def __eq__(self, other: object) -> bool:
        return int(self) == other and self._may_hand_out()

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__

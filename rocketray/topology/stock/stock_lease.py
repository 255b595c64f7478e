"""How a stock app stops without a lease: its events count as those of another generation.

Right before a stream of Faust hands an event out, it compares the event's generation with the
app's, and drops the event where they differ. Ours are equal only as long as the lease runs: so a
process that was stopped for longer than that drops what it had fetched when it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

__all__ = ["LeasedGeneration"]


class LeasedGeneration(int):
    """The generation in which a message was fetched."""

    _may_hand_out: Callable[[], bool]

    def __new__(cls, number: int, may_hand_out: Callable[[], bool]) -> Self:
        """*may_hand_out* is asked at every comparison."""
        self = super().__new__(cls, number)
        self._may_hand_out = may_hand_out
        return self

    def __eq__(self, other: object) -> bool:
        return int(self) == other and self._may_hand_out()

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__

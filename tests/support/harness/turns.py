"""Turns of two systems that alternate, and the row of a table that they make: for benchmarks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

LEVEL = 1.1
"""Up to this factor, two systems are level."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What is measured."""

    question: str
    unit: str
    is_less_better: bool = False


class Turn(NamedTuple):
    """One measurement."""

    value: float
    server_us: float | None
    """Processor time of the broker or the node for a message, if the turn is about messages."""
    others: float
    """Cores that processes used meanwhile which do not belong to the side."""


@dataclass
class Result:
    """The turns of both sides that were not disturbed, in pairs."""

    figure: Figure
    ours: list[Turn] = field(default_factory=list)
    theirs: list[Turn] = field(default_factory=list)
    disturbed: int = 0
    """Number of pairs that were thrown away."""

    @property
    def ratio(self) -> float:
        """The median of the ratios of adjacent turns, above 1 where ours is better."""
        ratios = [ours.value / theirs.value for ours, theirs in self._pairs()]
        return statistics.median(
            [1 / one for one in ratios] if self.figure.is_less_better else ratios
        )

    @property
    def word(self) -> str:
        """The ratio in a word."""
        return "ahead" if self.ratio >= LEVEL else "behind" if self.ratio * LEVEL <= 1 else "level"

    def row(self) -> str:
        """The row of a table in Markdown: the question, theirs, ours, and what to think of it."""
        question = self.figure.question
        if not self.ours:
            return f"| {question} | | | | disturbed | 0, {self.disturbed} thrown away | |"
        others = statistics.median(turn.others for pair in self._pairs() for turn in pair)
        turns = f"{len(self.ours)}" + f", {self.disturbed} thrown away" * (self.disturbed > 0)
        cells = f"{self._cell(self.theirs)} | {self._cell(self.ours)} | {self.ratio:.2f}"
        return f"| {question} | {cells} | {self.word} | {turns} | {others:.1f} cores |"

    def _pairs(self) -> Sequence[tuple[Turn, Turn]]:
        return list(zip(self.ours, self.theirs, strict=True))

    def _cell(self, turns: Sequence[Turn]) -> str:
        value = statistics.median(turn.value for turn in turns)
        times = [turn.server_us for turn in turns if turn.server_us is not None]
        used = f" ({statistics.median(times):,.1f} µs)" if times else ""
        digits = 0 if value >= 100 else 1 if value >= 10 else 2
        return f"{value:,.{digits}f} {self.figure.unit}{used}"

"""The turns of rocketray and of a peer that alternate, and their row: for benchmarks/python_peers.py."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .turns import LEVEL

HEAD = (
    "| as users write it | rocketray | instead | | ratio of rates | of processor time | "
    "| load, others |\n|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class PeerTurn:
    """One measurement: messages a second, and processor time of a message in µs."""

    rate: float
    program_us: float
    server_us: float
    """Of the broker, or of the node with Ray's processes."""
    load: float
    others: float
    """Cores that other processes of the machine used meanwhile."""
    p50_us: float | None = None

    @property
    def used_us(self) -> float:
        """Of program and broker, or node."""
        return self.program_us + self.server_us


@dataclass(frozen=True, slots=True)
class PeerResult:
    """The turns of both sides, in pairs."""

    ours: Sequence[PeerTurn]
    theirs: Sequence[PeerTurn]

    @property
    def rate_ratio(self) -> float:
        """The median of the ratios of adjacent turns, above 1 where rocketray is faster."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(ours.rate / theirs.rate for ours, theirs in pairs)

    @property
    def used_ratio(self) -> float:
        """The same, above 1 where rocketray uses less processor time."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(theirs.used_us / ours.used_us for ours, theirs in pairs)

    @property
    def word(self) -> str:
        """ "ahead" only where both ratios are better; "mixed" where only one is."""
        worse, better = sorted((self.rate_ratio, self.used_ratio))
        if worse >= LEVEL:
            return "ahead"
        if better >= LEVEL:
            return "mixed"
        return "behind" if worse * LEVEL <= 1 else "level"

    def row(self, question: str, instead: str) -> str:
        """The row of a table in Markdown."""
        ratios = f"{self.rate_ratio:.2f} | {self.used_ratio:.2f} | {self.word}"
        around = around_of([*self.ours, *self.theirs])
        return f"| {question} | {cell(self.ours)} | {instead} | {cell(self.theirs)} | {ratios} | {around} |"


def cell(turns: Sequence[PeerTurn]) -> str:
    """The medians: the rate, the processor time of program + server, and the time that one takes."""

    def median(name: str) -> float:
        return statistics.median(float(getattr(turn, name)) for turn in turns)

    used = f"{median('program_us'):.1f} + {median('server_us'):.1f} µs"
    p50 = "" if turns[0].p50_us is None else f", p50 {median('p50_us'):.0f} µs"
    return f"{median('rate') / 1000:,.1f} k/s, {used}{p50}"


def around_of(turns: Sequence[PeerTurn]) -> str:
    """What else the machine did: the load average's median, and the cores of other processes."""
    load = statistics.median(turn.load for turn in turns)
    others = statistics.median(turn.others for turn in turns)
    return f"{load:.1f}, {others:.1f} cores"


def row_without(question: str, ours: Sequence[PeerTurn], instead: str, reason: str) -> str:
    """The row where the peer is not there."""
    return (
        f"| {question} | {cell(ours)} | {instead} | skipped: {reason} | | | | {around_of(ours)} |"
    )

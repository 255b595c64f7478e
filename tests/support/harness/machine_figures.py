"""Figures of a cluster on several machines, and their tables: for benchmarks/machines.py."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from support.harness.process_use import PARTS, RAY

from rocketray.base.quantity import counted

_WAYS = {
    "send_async": "`send_async`",
    "send_many": "lists of 1,024",
    "records": "read as records",
    "arrow": "read as Arrow batches",
}
_Key = TypeVar("_Key", bound=Hashable)
_PLACE = "| machines | queues, elsewhere |"


@dataclass(frozen=True, slots=True)
class Place:
    """The queues of a topic: on how many machines, and how many are on others than the programs."""

    machines: int
    queues: int
    elsewhere: int
    has_tls: bool

    def columns(self) -> str:
        """Return the first cells of a row."""
        tls = "" if self.has_tls else ", no TLS"
        return f"| {self.machines}{tls} | {self.queues}, {self.elsewhere} |"


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured: where, and the way to send or to read."""

    place: Place
    way: str

    def __str__(self) -> str:
        place, tls = self.place, "" if self.place.has_tls else ", no TLS"
        on = f"{counted(place.machines, 'machine')}, {counted(place.queues, 'queue')}"
        return f"{on}, {place.elsewhere} elsewhere{tls}: {_WAYS[self.way]}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement: processor time in µs a message, by part; and what else the machine did."""

    cell: Cell
    rate: float
    used_us: dict[str, float]
    load: float
    other_cores: float

    @property
    def own_us(self) -> float:
        """The processor time of a message without that of Ray's own processes."""
        return sum(self.used_us.values()) - self.ray_us

    @property
    def ray_us(self) -> float:
        """That of Ray's own processes."""
        return self.used_us.get(RAY, 0.0)

    def __str__(self) -> str:
        parts = sorted(self.used_us.items(), key=lambda part: -part[1])
        named = ", ".join(f"{part} {used:.2f}" for part, used in parts if used)
        return (
            f"{self.cell!s:66} {self.rate:10,.0f} messages/s {self.own_us:6.2f} µs/message "
            f"({named}; load {self.load:.1f}, others used {self.other_cores:.1f} cores)"
        )


def rates_table(figures: Sequence[Figure]) -> Iterator[str]:
    """Return the lines of a table in Markdown: medians of the rates, and of the processor times."""
    ways = [way for way in _WAYS if any(figure.cell.way == way for figure in figures)]
    yield f"{_PLACE} {' | '.join(map(_WAYS.__getitem__, ways))} | load | others |"
    yield "|---" * (4 + len(ways)) + "|"
    for place, row in _grouped(figures, lambda cell: cell.place):
        rates = [_rate([each for each in row if each.cell.way == way]) for way in ways]
        loads = sorted(figure.load for figure in row)
        others = statistics.median(figure.other_cores for figure in row)
        load = f"{loads[0]:.1f} to {loads[-1]:.1f} | {others:.1f} cores"
        yield f"{place.columns()} {' | '.join(rates)} | {load} |"


def parts_table(figures: Sequence[Figure]) -> Iterator[str]:
    """Return the lines of a table of the parts' processor times in µs a message: medians."""
    parts = [part for part in PARTS if any(figure.used_us.get(part) for figure in figures)]
    yield f"{_PLACE} way | {' | '.join(parts)} |"
    yield "|---" * (3 + len(parts)) + "|"
    for cell, row in _grouped(figures, lambda cell: cell):
        used = [statistics.median(each.used_us.get(part, 0.0) for each in row) for part in parts]
        cells = " | ".join(f"{used_us:.2f}" for used_us in used)
        yield f"{cell.place.columns()} {_WAYS[cell.way]} | {cells} |"


def _grouped(
    figures: Iterable[Figure], key: Callable[[Cell], _Key]
) -> Iterable[tuple[_Key, list[Figure]]]:
    found: dict[_Key, list[Figure]] = defaultdict(list)
    for figure in figures:
        found[key(figure.cell)].append(figure)
    return found.items()


def _rate(figures: Sequence[Figure]) -> str:
    rate, own_us, ray_us = (
        statistics.median(numbers)
        for numbers in zip(
            *((each.rate, each.own_us, each.ray_us) for each in figures), strict=True
        )
    )
    return f"{rate / 1000:,.0f} k/s, {own_us:.2f} + {ray_us:.2f} µs"

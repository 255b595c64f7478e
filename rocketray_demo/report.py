"""The result of a run: found beside expected numbers, as one table or one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .queries import Lookup
from .tally import Delays

__all__ = ["ConsumerResult", "DemoReport", "SparkResult"]

_WIDTH = 110  # where stdout is no terminal
_BUSIEST = 3
_Cells = tuple[str, str, int, int | None, bool, str]


@dataclass(frozen=True, slots=True)
class ConsumerResult:
    """One agent: the messages that matched its filter, and the matching rows in the data.

    ``passed_per_s`` counts the messages that it went through, matching or not, from the first one
    sent to the last one that matched; 0 where this process sent none.
    """

    name: str
    filter: str
    matched: int
    expected: int
    passed_per_s: float


@dataclass(frozen=True, slots=True)
class SparkResult:
    """The rows that Spark reads back from the sink's Parquet files."""

    path: Path
    filter: str
    rows: int
    expected: int


@dataclass(frozen=True, slots=True)
class DemoReport:
    """A whole run. *produced* are the messages in the topic, *rows* those of the data."""

    directory: Path
    rows: int
    produced: int
    consumers: tuple[ConsumerResult, ...]
    delays: Mapping[str, Delays]
    expected_delays: Mapping[str, Delays]
    spark: SparkResult
    lookups: tuple[Lookup, ...]
    produce_per_s: float

    @property
    def consume_per_s(self) -> float:
        """The messages of the topic that the slowest agent went through in a second."""
        return min(one.passed_per_s for one in self.consumers)

    @property
    def ok(self) -> bool:
        """Whether all results are as brute force says."""
        return (
            self.produced == self.rows
            and all(one.matched == one.expected for one in self.consumers)
            and self.delays == self.expected_delays
            and self.spark.rows == self.spark.expected
            and all(lookup.is_right for lookup in self.lookups)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        return {
            "ok": self.ok,
            "rows": self.rows,
            "produced": self.produced,
            "consumers": [
                {name: getattr(one, name) for name in ("name", "filter", "matched", "expected")}
                for one in self.consumers
            ],
            "spark": {
                "path": str(self.spark.path),
                "rows": self.spark.rows,
                "expected": self.spark.expected,
            },
            "queries": [
                {"by": one.by, "arg": one.argument, "found": one.found, "ms": round(one.ms, 3)}
                for one in self.lookups
            ],
            "produce_per_s": round(self.produce_per_s, 1),
            "consume_per_s": round(self.consume_per_s, 1),
        }

    def print_table(self) -> None:
        """Print the report for people, on stdout."""
        width = None if sys.stdout.isatty() else _WIDTH
        console = Console(highlight=False, markup=False, width=width)
        console.print(self._table())
        console.print(f"Parquet files: {self.spark.path}", soft_wrap=True)
        console.print(f"everything else: {self.directory}", soft_wrap=True)
        verdict = "all counts are those of the original data" if self.ok else "COUNTS DIFFER"
        console.print(f"{verdict}; {self._busiest()}", soft_wrap=True)

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("", "what", "found", "expected", "", "speed"):
            is_number = column in ("found", "expected", "speed")
            table.add_column(column, justify="right" if is_number else "left", overflow="fold")
        for section in self._sections():
            for who, what, found, expected, is_right, speed in section:
                wanted = "-" if expected is None else f"{expected:,}"
                verdict = "ok" if is_right else "WRONG"
                table.add_row(who, what, f"{found:,}", wanted, verdict, speed)
            table.add_section()
        return table

    def _sections(self) -> Iterator[list[_Cells]]:
        is_whole, speed = self.produced == self.rows, _rate(self.produce_per_s)
        yield [("sent", "rows as messages", self.produced, self.rows, is_whole, speed)]
        agents: list[_Cells] = []
        for one in self.consumers:
            is_right, speed = one.matched == one.expected, _rate(one.passed_per_s)
            name = f"agent {one.name}"
            agents.append((name, one.filter, one.matched, one.expected, is_right, speed))
        found, wanted = len(self.delays), len(self.expected_delays)
        is_right = self.delays == self.expected_delays
        yield [*agents, ("", "mean delays of destinations", found, wanted, is_right, "")]
        what, found, wanted = f"{self.spark.filter} → Parquet", self.spark.rows, self.spark.expected
        yield [("Spark", what, found, wanted, found == wanted, "")]
        yield [
            (
                f"by {one.by}",
                one.argument,
                one.found,
                one.expected,
                one.is_right,
                f"{one.ms:.2f} ms",
            )
            for one in self.lookups
        ]

    def _busiest(self) -> str:
        busiest = sorted(self.delays.items(), key=lambda item: -item[1].flights)[:_BUSIEST]
        texts = [
            f"{dest} {delays.flights:,} flights, {delays.mean_minutes or 0:+.1f} min"
            for dest, delays in busiest
        ]
        return f"busiest destinations of UA and DL: {'; '.join(texts) or 'none'}"


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f} msg/s"

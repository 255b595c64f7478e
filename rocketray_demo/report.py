"""The result of a run: found beside expected numbers, as one table or one JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketray.cli.terminal.output import TextTable

from .queries import Lookup
from .tally import Delays

_COLUMNS = ("result", "what", "found", "expected", "verdict", "speed")
_VERDICTS = ("WRONG", "ok")
_BUSIEST = 3  # as many as fit in a line
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
        return all(is_right for *_, is_right, _ in self._rows())

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

    def shown(self) -> Iterator[str | TextTable]:
        """Yield the report for people."""
        rows = [
            (who, what, _number(found), _number(expected), _VERDICTS[is_right], speed)
            for who, what, found, expected, is_right, speed in self._rows()
        ]
        yield TextTable(_COLUMNS, rows, right=("found", "expected", "speed"))
        yield f"\nParquet files: {self.spark.path}"
        yield f"everything else: {self.directory}"
        verdict = "all counts are those of the original data" if self.ok else "COUNTS DIFFER"
        yield f"{verdict}; {self._busiest()}"

    def _rows(self) -> Iterator[_Cells]:
        is_whole, speed = self.produced == self.rows, _rate(self.produce_per_s)
        yield "sent", "rows as messages", self.produced, self.rows, is_whole, speed
        for one in self.consumers:
            is_right, speed = one.matched == one.expected, _rate(one.passed_per_s)
            yield f"agent {one.name}", one.filter, one.matched, one.expected, is_right, speed
        found, wanted = len(self.delays), len(self.expected_delays)
        is_right = self.delays == self.expected_delays
        yield "", "mean delays of destinations", found, wanted, is_right, ""
        what, found, wanted = f"{self.spark.filter} → Parquet", self.spark.rows, self.spark.expected
        yield "Spark", what, found, wanted, found == wanted, ""
        for each in self.lookups:
            by, took = f"by {each.by}", f"{each.ms:.2f} ms"
            yield by, each.argument, each.found, each.expected, each.is_right, took

    def _busiest(self) -> str:
        busiest = sorted(self.delays.items(), key=lambda item: -item[1].flights)[:_BUSIEST]
        texts = [
            f"{dest} {delays.flights:,} flights, {delays.mean_minutes or 0:+.1f} min"
            for dest, delays in busiest
        ]
        return f"busiest destinations of UA and DL: {'; '.join(texts) or 'none'}"


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f} msg/s"


def _number(count: int | None) -> str | None:
    return None if count is None else f"{count:,}"

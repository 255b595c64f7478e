"""A query of the Spark source without Spark: its reader, driven as Spark does."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from rocketray.queries.spark.source import RangesTask, RocketRaySource

_SCHEMA = StructType([StructField("body", BinaryType())])
Offset = dict[str, Any]


class Stream:
    """One run of a query, as Spark drives it."""

    def __init__(self, data: Path, **options: str) -> None:
        given = {"topic": "Trade", "data": str(data), "longPollMs": "0", **options}
        given.setdefault("startingOffsets", "earliest")
        self._reader: Any = RocketRaySource(given).streamReader(_SCHEMA)
        self._in_tasks: Any = pickle.loads(pickle.dumps(self._reader))

    def start(self) -> Offset:
        found: Offset = self._reader.initialOffset()
        return found

    def read(self, start: Offset) -> tuple[Offset, list[bytes]]:
        """Return the end of the next micro-batch, and what is in it; it is planned twice."""
        end: Offset = self._reader.latestOffset(start, ReadAllAvailable())
        first, again = (self.rows(start, end) for _ in range(2))
        assert first == again
        return end, first

    def rows(self, start: Offset, end: Offset) -> list[bytes]:
        """Return what is in a micro-batch."""
        tasks = [
            task for task in self._reader.partitions(start, end) if isinstance(task, RangesTask)
        ]
        batches = [batch for task in tasks for batch in self._in_tasks.read(task)]
        return [body for batch in batches for body in batch.column("body").to_pylist()]

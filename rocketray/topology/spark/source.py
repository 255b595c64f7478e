"""``format("rocketray")``: topics as a Spark table, batch and streaming.

Where it runs, which Spark decides: the options are checked in a short-lived worker; the offset
methods of one query run in one process beside the JVM; ``read`` runs in pooled workers. They
share nothing but what is pickled, so readers hold plain values and open files where they read.

Invariants
  1. Two runs of one planned batch read the same messages: its range is fixed by two offsets.
  2. An offset never covers messages that the shard has not published.
  3. With AvailableNow nothing beyond the ends seen at the start is read, so a run always ends.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rocketray.errors import ConfigError

from .environment import process_environ
from .offsets import LATEST, OffsetRule, QueueOffsets, from_json, resolve_rule, to_json
from .options import SourceOptions, parse_options
from .planning import Range, ReadPlan, next_ends, plan_batch, plan_stream
from .queues import TopicQueues
from .schema import SOURCE_SCHEMA, arrow_schema, check_schema

__all__ = ["QueueRange", "RocketRaySource"]


@dataclass(frozen=True, slots=True)
class QueueRange(InputPartition):
    """What one task reads."""

    range: Range


class RocketRaySource(DataSource):
    """The data source; options.py lists its options, schema.py its columns."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = parse_options(options, process_environ())

    @classmethod
    def name(cls) -> str:
        """The short name that users write."""
        return "rocketray"

    def schema(self) -> StructType:
        """All columns but those that come only on request."""
        return SOURCE_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for ``spark.read``."""
        if self._options.max_offsets_per_trigger is not None:
            raise ConfigError("maxOffsetsPerTrigger is for readStream; limit a batch by its ends")
        return _BatchReader(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """A reader for ``spark.readStream``."""
        if self._options.ending is not None:
            raise ConfigError("endingOffsets is for spark.read; a stream has no end")
        return _StreamReader(self._options, schema)


class _Reading:
    """What batch and stream readers share: the columns, and reading one range."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._plan = ReadPlan(
            data=options.data,
            subscription=options.subscription,
            columns=tuple(check_schema(schema)),
            schema=arrow_schema(schema),
            batch_rows=options.arrow_batch_rows,
            fail_on_data_loss=options.fail_on_data_loss,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The matching messages of one range, in queue order."""
        if isinstance(partition, QueueRange):  # Spark makes one of its own when there is none
            from .range_reader import read_range  # noqa: PLC0415 - loads kernels: not for planners

            yield from read_range(self._plan, partition.range)


class _BatchReader(_Reading, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        """One range a queue that has something to read."""
        queues = TopicQueues(self._options.data, self._options.topics)
        return [QueueRange(part) for part in plan_batch(self._options, queues.bounds())]


class _StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._opened: TopicQueues | None = None
        self._target: QueueOffsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint starts."""
        rule = self._options.starting or OffsetRule(LATEST, {})
        return to_json(resolve_rule(rule, self._queues().bounds(), "startingOffsets"))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What a micro-batch may take."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of this run."""
        self._target = self._queues().ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends; waits ``longPollMs`` for a message when idle."""
        starts = from_json(start, self._options.topics)
        if self._target is None:
            self._queues().wait_for_more(starts, self._options.long_poll_ms / 1000)
        bounds = self._queues().bounds()
        ends = self._target or {key: held.visible for key, held in bounds.items()}
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json(next_ends(starts, ends, bounds, max_rows))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of each queue now; a query's lag is this less its own end offset."""
        return to_json(self._queues().ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One range a queue that has something to read between two offsets."""
        topics = self._options.topics
        starts, ends = from_json(start, topics), from_json(end, topics)
        ranges = plan_stream(
            starts,
            ends,
            self._queues().bounds(),
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return [QueueRange(part) for part in ranges]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint is Spark's, and messages stay until they are too old."""

    def stop(self) -> None:
        """Nothing: maps are closed with the process."""

    def _queues(self) -> TopicQueues:
        """Opened in the process that uses it: the reader itself is pickled and sent to others."""
        if self._opened is None:
            self._opened = TopicQueues(self._options.data, self._options.topics)
        return self._opened

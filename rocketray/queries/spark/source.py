"""``format("rocketray")``: topics as a Spark table, batch and streaming.

Spark decides where each part runs: the options are checked in a short-lived worker; the offset
methods of one query run in one process beside the JVM; ``read`` runs in pooled workers. They share
only pickled values, so readers hold plain values and open files where they read.

Invariants
  1. Two runs of one planned batch read the same messages: its range is fixed by two offsets.
  2. An offset never covers messages that the shard has not published.
  3. With AvailableNow nothing beyond the ends seen at the start is read, so a run always ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rocketray.base.environment import process_environ
from rocketray.broker.fetching.read_plan import Bounds, QueueKey, Range, ReadPlan
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.queries.ranges.division import divide
from rocketray.queries.ranges.filter_lookup import find_filter, warn_of_later
from rocketray.queries.ranges.offset_rules import (
    EARLIEST,
    LATEST,
    OffsetRule,
    QueueOffsets,
    offsets_to_json,
)
from rocketray.queries.ranges.planning import (
    BatchPace,
    count_waiting,
    next_ends,
    plan_batch,
    plan_stream,
)
from rocketray.queries.ranges.range_tasks import TaskRanges, placed, read_ranges
from rocketray.queries.ranges.topic_queues import TopicQueues

from .failures import plainly
from .positions import Admission, Position, from_json, to_json
from .pushed_filters import PushedFilters, are_handed_over
from .source_columns import Projection, default_schema
from .source_options import SourceOptions, may_be_writing, parse_options
from .task_worker import freeze_modules
from .writer_options import parse_writer_options

_EARLIEST, _LATEST = OffsetRule(EARLIEST, {}), OffsetRule(LATEST, {})
_FOR_STREAMS = (
    "maxOffsetsPerTrigger",
    "maxRowsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
_FOR_BATCHES = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


@dataclass(frozen=True, slots=True)
class RangesTask(InputPartition):
    """The ranges of one task, read one after another with a filter.

    The planner chose it: a task is read in another process, which does not see the checkpoint.
    """

    ranges: TaskRanges
    subscription: Subscription


class RocketRaySource(DataSource):
    """The data source; source_options.py lists its options, source_columns.py its columns."""

    @plainly
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed: SourceOptions | None = None
        if not may_be_writing(options):
            self._read_options()

    @classmethod
    def name(cls) -> str:
        """Return the short name that users write."""
        return "rocketray"

    @plainly
    def schema(self) -> StructType:
        """Return all columns except those that come only on request."""
        options = self._read_options()  # a writer has its own schema, so this is a reader
        return default_schema(options.columns, ("headers",) if options.has_headers else ())

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for ``spark.read``."""
        options = self._read_options()
        options.refuse(_FOR_STREAMS, "for readStream; limit a batch by its ends")
        kind = _FilteringReader if are_handed_over() else _BatchReader
        return kind(options, schema)

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return a reader for ``spark.readStream``."""
        options = self._read_options()
        options.refuse(_FOR_BATCHES, "for spark.read; a stream has no end")
        return _StreamReader(options, schema)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        """Return a writer for ``df.write``."""
        from .topic_writer import batch_writer  # noqa: PLC0415 - loads Flight

        options = parse_writer_options(self.options, process_environ(), is_stream=False)
        return batch_writer(options, schema, overwrite=overwrite)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001 - Spark's
        """Return a writer for a micro-batch of ``df.writeStream``."""
        from .topic_writer import stream_writer  # noqa: PLC0415 - loads Flight

        options = parse_writer_options(self.options, process_environ(), is_stream=True)
        return stream_writer(options, schema, overwrite=overwrite)

    def _read_options(self) -> SourceOptions:
        if self._parsed is None:
            self._parsed = parse_options(self.options, process_environ())
        return self._parsed


class _Reading:
    """The shared part of batch and stream readers: the columns, and reading one range."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._projection = Projection.of(schema, options.columns)
        self._found: Subscription | None = None
        self._begun: set[str] = set()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the matching messages of a task's ranges, each in queue order."""
        if isinstance(partition, RangesTask):  # Spark creates one of its own when there is none
            plan = ReadPlan(
                subscription=partition.subscription,
                columns=self._projection.stored,
                batch_rows=self._options.arrow_batch_rows,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
            batches = read_ranges(partition.ranges, plan)
            # Now that the kernels are loaded, which a worker of another session loads here.
            freeze_modules()
            yield from map(self._projection.shape, batches)

    def _filter(self) -> Subscription:
        """Return the filter of the query, looked up at its first use if it is a name."""
        if self._found is None:
            chosen = self._options.filter
            if isinstance(chosen, FilterName):
                [topic] = self._options.choice.names
                chosen = find_filter(self._options.node, topic, chosen).subscription
            self._found = chosen
        return self._found

    def _tasks(
        self,
        ranges: Iterable[Range],
        bounds: Mapping[QueueKey, Bounds],
        queues: TopicQueues,
        subscription: Subscription,
    ) -> list[InputPartition]:
        tasks = divide(ranges, bounds, self._options.division)
        found = placed(tasks, queues.place, self._begun)
        return [RangesTask(parts, subscription) for parts in found]


class _Batches(_Reading):
    """What the two readers of batches share."""

    _pushed = PushedFilters()

    @plainly
    def partitions(self) -> list[InputPartition]:
        """Return the tasks for what the queues hold between the start and the end."""
        queues = TopicQueues(self._options.node, self._options.choice)
        bounds = queues.bounds()
        starts = queues.offsets(self._options.starting or _EARLIEST, "startingOffsets", bounds)
        ends = queues.offsets(self._options.ending or _LATEST, "endingOffsets", bounds)
        ranges = self._pushed.ranges(plan_batch(starts, ends))
        return self._tasks(ranges, bounds, queues, self._pushed.subscription(self._filter()))


class _BatchReader(_Batches, DataSourceReader):
    """The reader where Spark hands no filters over: it would refuse one that could take some."""


class _FilteringReader(_Batches, DataSourceReader):
    """The reader that takes filters."""

    @plainly
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what the source can apply itself; return the others."""
        columns, chosen = self._options.columns, self._filter()
        self._pushed, left = PushedFilters.of(filters, columns, chosen)
        return left


class _StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._opened: TopicQueues | None = None
        self._target: QueueOffsets | None = None
        limits = options.limits
        self._pace = None if limits.least is None else BatchPace(limits.least, limits.delay_s)
        self._checked: Admission | None = None

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint."""
        queues, rule = self._queues(), self._options.starting or _LATEST
        bounds = queues.bounds()
        offsets = queues.offsets(rule, "startingOffsets", bounds)
        # A filter has rejected nothing yet; a batch that Spark has planned already has its own.
        return self._kept(offsets, bounds, None if self._follows else self._filter())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return what micro-batches are limited by; Spark has another limit for ``once``."""
        limits = self._options.limits
        if limits.most is not None:
            return ReadMaxRows(limits.most)
        return ReadAllAvailable() if limits.least is None else ReadMinRows(limits.least)

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of this run."""
        self._target = self._queues().ends()

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch; if idle, wait ``longPollMs`` for a message."""
        starts = self._admit(start, self._queues().bounds())
        if self._target is None and not self._wait(
            starts, is_paced=not isinstance(limit, ReadAllAvailable)
        ):
            return start
        bounds = self._queues().bounds()
        ends = self._target or {key: held.visible for key, held in bounds.items()}
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._kept(next_ends(starts, ends, bounds, max_rows), bounds, self._filter())

    @plainly
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of each queue now; a query's lag is this less its own end offset."""
        return dict(offsets_to_json(self._queues().ends()))

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks for what the queues hold between two offsets."""
        bounds = self._queues().bounds()
        ends = self._admit(end, bounds)  # first, as it has the filter
        ranges = plan_stream(
            self._admit(start, bounds),
            ends,
            bounds,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return self._tasks(ranges, bounds, self._queues(), self._filter())

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the checkpoint is Spark's, and retention removes messages."""

    def stop(self) -> None:
        """End this process of Spark's without a traceback of the socket that Spark closed."""
        sys.excepthook = _end_quietly

    def _wait(self, starts: QueueOffsets, *, is_paced: bool) -> bool:
        """Wait ``longPollMs`` for messages; return whether a micro-batch may begin."""
        queues, wait_s = self._queues(), self._options.long_poll_ms / 1000
        if self._pace is None or not is_paced:
            queues.wait_for_more(starts, wait_s)
            return True
        now_s = time.monotonic()
        left_s = self._pace.left_s(now_s)
        # 0 s left means that the delay is over, and not that there is no time to wait.
        queues.wait_for_more(starts, min(wait_s, left_s or wait_s), self._pace.least_now(now_s))
        now_s = time.monotonic()
        if count_waiting(starts, queues.bounds()) < self._pace.least_now(now_s):
            return False
        self._pace.begin(now_s)
        return True

    def _admit(self, offset: dict[str, Any], bounds: Mapping[QueueKey, Bounds]) -> QueueOffsets:
        """Return the offsets of a checkpoint that are still valid."""
        position = from_json(offset, self._options.choice)
        if self._checked is None:
            self._follow(position)
            self._checked = Admission(
                self._filter(),
                fail_on_data_loss=self._options.fail_on_data_loss,
                allow_filter_change=self._options.allow_filter_change,
            )
        return self._checked.admit(position, self._queues().topic_ids(), bounds)

    @property
    def _follows(self) -> bool:
        """Whether a checkpoint says which version of the query's filter is read."""
        chosen = self._options.filter
        is_open = isinstance(chosen, FilterName) and chosen.version is None
        return is_open and not self._options.allow_filter_change

    def _follow(self, position: Position) -> None:
        """Continue with the version of the filter with which the query began, if it is the same."""
        chosen, kept = self._options.filter, position.subscription
        if self._follows and isinstance(chosen, FilterName) and kept and chosen.is_of(kept.named):
            [topic] = self._options.choice.names
            warn_of_later(self._options.node, topic, chosen, kept)
            self._found = kept

    def _kept(
        self,
        offsets: QueueOffsets,
        bounds: Mapping[QueueKey, Bounds],
        subscription: Subscription | None,
    ) -> dict[str, Any]:
        ids = {topic: its_id for topic, its_id in self._queues().topic_ids().items() if its_id}
        restorations = frozenset(each.id for held in bounds.values() for each in held.restorations)
        return to_json(Position(offsets, ids, subscription, restorations))

    def _queues(self) -> TopicQueues:
        """Return the queues, opened in the process that uses them: the reader itself is pickled."""
        if self._opened is None:
            self._opened = TopicQueues(self._options.node, self._options.choice)
        return self._opened


def _end_quietly(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if not issubclass(kind, ConnectionError):
        sys.__excepthook__(kind, error, traceback)

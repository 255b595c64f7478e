"""Writers of Spark rows into topics: batch and streaming, with Arrow batches.

The driver makes a writer in a process that plans, tasks get a copy of it, and another process of
the driver commits, with a copy again. They share only pickled values, so what is open is opened
where it is used.

Invariants
  1. A task stages its rows as one fragment. Its message names the fragment; a task that fails, or
     is repeated, has none, or another.
  2. A commit asks for one decision about all fragments of a batch. Its name is the query's id (or
     txnAppId) and the number of the batch, so a repeated batch is dropped
     (services/staging/staging_engine.py).
  3. An abort removes fragments that are not decided, and undoes nothing: Spark also calls it after
     a commit that raised, which may have decided.
  4. At least once: a task publishes its fragment before it ends, and nothing is decided.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from rocketray.broker.fetching.read_plan import DiskPlace
from rocketray.errors import ConfigError, ShardUnavailableError, StreamError
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.fragment_file import BatchName, Fragment, FragmentWriter
from rocketray.services.staging.staging_api import StagedBatch
from rocketray.services.staging.staging_client import StagingClient

from .failures import plainly
from .staging_place import find_staging
from .task_worker import freeze_modules
from .writer_columns import WriterColumns
from .writer_options import WriterOptions

logger = logging.getLogger(__name__)

# Local properties that Spark sets for the jobs of a streaming query, and hands to their tasks.
_QUERY_ID, _BATCH_ID, _RUN_ID = (
    "sql.streaming.queryId",
    "streaming.sql.batchId",
    "spark.jobGroup.id",
)
_DECIDED_S = 60.0
"""How long a commit waits until its messages are in their topics; they are decided, and will be."""
# The end of this wait fails the task, and its repetition sends the messages again. So it is longer
# than the one above, after which the batch is applied in any case.
_PUBLISHED_S = 300.0


@dataclass(frozen=True, slots=True)
class StagedTask(WriterCommitMessage):
    """The batch of a task and its run; the fragment is None if the task had no rows."""

    batch: BatchName
    run: str
    fragment: Fragment | None


@dataclass(frozen=True, slots=True)
class _Rows:
    """What the tasks of a write share: columns, topic, place and guarantee."""

    place: DiskPlace
    columns: WriterColumns
    topic: str | None
    is_exactly_once: bool

    def stage(
        self, batch: BatchName, run: str, first_queue: int, rows: Iterator[pa.RecordBatch]
    ) -> StagedTask:
        """Write the rows of one task; return its message."""
        # Loads kernels, which tasks have and planners do not.
        from rocketray.services.staging.message_rows import MessageRows  # noqa: PLC0415

        freeze_modules()
        client, fragment = StagingClient(self.place), None
        messages = MessageRows(
            client.queues_of, self.topic, first_queue=first_queue, clock_ms=system_clock_ms
        )
        try:
            for each in rows:
                for frame in messages.frames(self.columns.shape(each)):
                    fragment = fragment or client.new_fragment(batch)
                    fragment.add(frame.topic, frame.queue_id, frame.content, frame.messages)
            if fragment is None:
                return StagedTask(batch, run, None)
            whole = fragment.finish()
        except BaseException:
            if fragment is not None:
                fragment.discard()
            raise
        if not self.is_exactly_once:
            self._publish(client, batch, fragment, whole)
        return StagedTask(batch, run, whole)

    def _publish(
        self, client: StagingClient, batch: BatchName, fragment: FragmentWriter, whole: Fragment
    ) -> None:
        client.calls.publish(batch, [whole])
        if not client.wait_applied(batch, _PUBLISHED_S):
            fragment.discard()
            what = f"topic {self.topic}" if self.topic else "a topic of the batch"
            reason = f"it did not take the messages within {_PUBLISHED_S:.0f} s"
            raise ShardUnavailableError(what, reason)

    def decide(self, tasks: Sequence[StagedTask], *, is_single: bool) -> None:
        """Decide the batch of the tasks, and wait until its messages are in their topics."""
        if not self.is_exactly_once or not tasks:
            return
        name, run = tasks[0].batch, tasks[0].run
        client = StagingClient(self.place)
        fragments = tuple(task.fragment for task in tasks if task.fragment is not None)
        verdict = client.calls.decide(StagedBatch(name, run, fragments, is_single))
        if verdict == "repeated":
            logger.warning(
                "batch %d of %s was decided before: its messages are those of the first decision",
                name.number, name.writer,
            )  # fmt: skip
        if not client.wait_applied(name, _DECIDED_S):
            logger.warning(
                "batch %d of %s is decided, and not wholly in its topics yet; see: rocketray "
                "staged", name.number, name.writer,
            )  # fmt: skip

    def drop(self, tasks: Sequence[StagedTask]) -> None:
        """Remove the fragments of the tasks, unless they are decided."""
        names = [task.fragment.name for task in tasks if task.fragment is not None]
        if self.is_exactly_once and names:
            try:
                StagingClient(self.place).calls.drop(tasks[0].batch, names)
            except StreamError as error:
                logger.warning("staged rows are removed later, as by their age: %s", error)


class TopicBatchWriter(DataSourceArrowWriter):
    """The writer of ``df.write``: one batch, under a new name or as version of an application."""

    def __init__(self, rows: _Rows, batch: BatchName, *, is_single: bool) -> None:
        self._rows = rows
        self._batch = batch
        self._run = uuid.uuid4().hex
        self._is_single = is_single

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        context = _task()
        batch = self._batch if self._rows.is_exactly_once else _of_task()
        return self._rows.stage(batch, self._run, context.partitionId(), iterator)

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Decide the batch."""
        self._rows.decide(_tasks(messages), is_single=self._is_single)

    @plainly
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what is staged, unless it is decided."""
        self._rows.drop(_tasks(messages))


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """The writer of one micro-batch; its name is that of the query, or the txnAppId."""

    def __init__(self, rows: _Rows, app_id: str | None) -> None:
        self._rows = rows
        self._app_id = app_id

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _task()
        query, number, run = (
            context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID, _RUN_ID)
        )
        if not query or number is None or not run:
            raise ConfigError(
                f"this Spark does not tell its tasks the query ({query}), the batch ({number}) and "
                f"the run ({run}); use Spark 4.3, or guarantee=at_least_once"
            )
        batch = BatchName(self._app_id or query, int(number))
        if not self._rows.is_exactly_once:
            batch = _of_task()
        return self._rows.stage(batch, run, context.partitionId(), iterator)

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        tasks = _tasks(messages)
        if self._rows.is_exactly_once and any(task.batch.number != batchId for task in tasks):
            raise ConfigError(f"tasks of another micro-batch than {batchId} were to be committed")
        self._rows.decide(tasks, is_single=False)

    @plainly
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Remove what is staged, unless it is decided."""
        self._rows.drop(_tasks(messages))


def batch_writer(
    options: WriterOptions, schema: StructType, *, overwrite: bool
) -> TopicBatchWriter:
    """Return the writer of ``df.write``.

    Raises:
        ConfigError: rows of that schema cannot be written; or *overwrite*.
        TopicNotFoundError: there is no such topic. NodeNotRunningError: the node does not run.
    """
    if overwrite:
        raise ConfigError("a topic is only appended to; write with .mode('append')")
    rows = _rows(options, schema)
    if options.app_id is None or options.version is None:
        return TopicBatchWriter(rows, BatchName(f"batch-{uuid.uuid4().hex}", 0), is_single=True)
    return TopicBatchWriter(rows, BatchName(options.app_id, options.version), is_single=False)


def stream_writer(
    options: WriterOptions, schema: StructType, *, overwrite: bool
) -> TopicStreamWriter:
    """Return the writer of a micro-batch; raises as :func:`batch_writer`."""
    if overwrite:
        raise ConfigError(
            "outputMode('complete') gives the whole result with each micro-batch, and a topic is "
            "only appended to; use outputMode('append') with a watermark, or write the rows that "
            "changed in a function of foreachBatch, by outputMode('update')"
        )
    return TopicStreamWriter(_rows(options, schema), options.app_id)


def _rows(options: WriterOptions, schema: StructType) -> _Rows:
    columns = WriterColumns.of(schema, options.columns, has_topic=options.topic is not None)
    place = find_staging(options.node)
    if options.topic is not None:
        StagingClient(place).queues_of(options.topic)
    return _Rows(place, columns, options.topic, options.guarantee == "exactly_once")


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _of_task() -> BatchName:
    """Return the name of what one task publishes."""
    return BatchName(f"task-{uuid.uuid4().hex}", 0)


def _tasks(messages: Sequence[Any]) -> list[StagedTask]:
    return [message for message in messages if isinstance(message, StagedTask)]

"""Reading one range of a queue as Arrow batches, from the files of its shard.

Maps of a queue's files stay open from one range to the next. They belong to this process: Spark's
workers are forked before anything is opened, and nothing is opened on import.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.broker.filtering.filter_advice import doubts
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.filtering.filter_stream import sql_states
from rocketray.broker.filtering.predicate_stream import asker
from rocketray.broker.topics.queue_views import open_queue
from rocketray.errors import OffsetOutOfRangeError
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.sql92.vectorized import VectorizedExpression
from rocketray.filters.subscription import Subscription
from rocketray.kernels.condition_codes import State
from rocketray.runtime.files.paths import control_path, shard_directory
from rocketray.runtime.ipc.control_page_reader import ControlView
from rocketray.store.reading.columns import read_columns
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns

from .read_plan import Bounds, Range, ReadPlan, Warn, check_loss

BATCH_BYTES = 8 * 1024 * 1024  # of records; 20 thousand messages of 4 MiB would not fit a worker
_OPEN_QUEUES = 64  # each with the files of its log that were read, as maps

_TAG_BLOCK_ENTRIES = 1 << 18  # 5 MiB of the consume queue
_RECORD_BLOCK_ENTRIES = 1 << 12  # the spans of their properties fit the cache


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Matching messages; all matches below *next_queue_offset* were read with them or before."""

    batch: pa.RecordBatch
    next_queue_offset: int


def read_range(
    data: Path, plan: ReadPlan, part: Range, warn: Warn, *, reader: QueueReader | None = None
) -> Iterator[ReadBatch]:
    """Yield the matching messages of *part* in the data directory *data*, in queue order.

    The batches have the columns of the plan, in the store's types. *reader* is one of the queue, by
    default one that this process keeps open.

    Raises:
        StoreError: messages of the range were deleted since it was planned, and that is an error.
    """
    if reader is None:
        directory = shard_directory(data, *part.key)
        reader = _open_reader(directory, directory.stat().st_ino, *part.key)
    control = control_path(data, *part.key)
    held = ControlView(control)
    if 0 < held.minimum() < held.visible():
        reader.let_go_before(held.minimum())  # deleted files occupy space while they are mapped

    def first_from(position: int) -> int:
        return _check_position(control, plan, part, position, warn)

    is_class = plan.subscription.expression_type == "CLASS"
    chosen = BlockFilter(plan.subscription, FilterRules.load(data).allowed if is_class else None)
    yield from _scan(reader, plan, part, chosen, warn, first_from=first_from)


def read_store_range(store: Path, plan: ReadPlan, part: Range, warn: Warn) -> Iterator[ReadBatch]:
    """Yield the same of a store directory, ours or a broker's, which may belong to no node.

    So no operator allows or refuses predicates.

    Raises:
        OffsetOutOfRangeError: messages of the range were deleted since it was planned.
    """
    with open_queue(store, *part.key) as reader:
        chosen = BlockFilter(plan.subscription)
        yield from _scan(reader, plan, part, chosen, warn, first_from=lambda position: position)


def _scan(
    reader: QueueReader,
    plan: ReadPlan,
    part: Range,
    chosen: BlockFilter,
    warn: Warn,
    *,
    first_from: Callable[[int], int],
) -> Iterator[ReadBatch]:
    """Yield the messages of *part* that *chosen* matches.

    *first_from* returns the first position from another one on that was not deleted.
    """
    position = first_from(part.start)
    while position < part.stop:
        stop = min(part.stop, position + chosen.block_entries)
        try:
            entries = chosen.select(reader, position, stop)
            reader.map_records(entries)
        except OffsetOutOfRangeError:
            later = first_from(position)
            if later == position:  # nothing was removed: the files are damaged
                raise
            position = later
            continue
        for rows in cut_batches(entries.sizes, plan.batch_rows, BATCH_BYTES):
            cut = entries.select(rows)
            after = stop if rows.stop == len(entries) else int(cut.queue_offsets[-1]) + 1
            yield ReadBatch(read_columns(reader, cut, plan.columns), after)
        position = stop
    if chosen.evaluation_errors:
        topic, queue_id = part.key
        warn(
            f"topic {topic} queue {queue_id}: {plan.subscription} failed on "
            f"{chosen.evaluation_errors} of the messages {part.start} to {part.stop - 1}; they do "
            "not match"
        )


def tell_doubts(data: Path, plan: ReadPlan, part: Range, warn: Warn) -> None:
    """Warn if the query's filter most likely rejects wanted messages of the topic of *part*."""
    for line in doubts(data, [part.key[0]], plan.subscription):
        warn(line)


def cut_batches(sizes: npt.NDArray[np.int32], max_rows: int, max_bytes: int) -> Iterator[slice]:
    """Yield slices of records of those *sizes*, each within the limits, or of one record alone."""
    ends = np.cumsum(sizes, dtype=np.int64)
    first, done = 0, 0
    while first < len(sizes):
        fitting = int(np.searchsorted(ends, done + max_bytes, side="right"))
        last = min(first + max_rows, max(fitting, first + 1))
        yield slice(first, last)
        first, done = last, int(ends[last - 1])


def _check_position(control: Path, plan: ReadPlan, part: Range, position: int, warn: Warn) -> int:
    """Return where to read: after *position* if messages were deleted since the planning."""
    minimum = ControlView(control).minimum()
    if position >= minimum:
        return position
    held = Bounds(minimum, max(minimum, part.stop))
    check_loss(part.key, position, held, fail=plan.fail_on_data_loss, warn=warn)
    return minimum


@lru_cache(maxsize=_OPEN_QUEUES)
def _open_reader(directory: Path, inode: int, topic: str, queue_id: int) -> QueueReader:
    """Return a cached reader; *inode* distinguishes a directory that was created again."""
    del inode
    return QueueReader(directory, topic, queue_id)


class BlockFilter:
    """A compiled subscription, for blocks of a queue.

    By TAG, codes are compared on the consume queue, then the tags themselves, because two tags can
    have one code. An SQL92 expression is evaluated over the properties that it names.
    ``evaluation_errors`` counts messages on which it failed. A predicate runs in the caller's
    thread, without a time limit.
    """

    def __init__(self, subscription: Subscription, allowed: Collection[str] | None = None) -> None:
        """Compile the subscription; its predicate has to be among the *allowed* ones, if given.

        Raises:
            FilterSyntaxError: it does not parse.
            PredicateError: its predicate cannot be imported, or is not allowed.
        """
        kind = subscription.expression_type
        self.evaluation_errors = 0
        self.block_entries = _TAG_BLOCK_ENTRIES if kind == "TAG" else _RECORD_BLOCK_ENTRIES
        self._filter = MessageFilter(subscription, allowed=allowed)
        self._is_class = kind == "CLASS"
        self._codes = self._filter.tag_codes
        self._tags = subscription.exact_tags

    def select(self, reader: QueueReader, start: int, stop: int) -> EntryColumns:
        """Return the matching entries from *start* up to, not including, *stop*, in queue order.

        Raises:
            PredicateError: the predicate failed on a message.
        """
        entries = reader.match_tags(start, stop, self._codes)
        if len(entries) == 0:
            return entries
        if self._is_class:
            return entries.select(self._ask(reader, entries))
        if self._filter.sql is not None:
            return entries.select(self._judge(reader, entries, self._filter.sql))
        if self._codes is not None:
            return entries.select(reader.have_tags(entries, self._tags))
        return entries

    def _ask(self, reader: QueueReader, entries: EntryColumns) -> npt.NDArray[np.bool_]:
        """Return the answers of a predicate: bool[n]."""
        ask = asker(self._filter, reader, entries)
        if self._filter.batch_columns is not None:
            return ask(0, len(entries))
        return np.concatenate([ask(row, row + 1) for row in range(len(entries))])

    def _judge(
        self, reader: QueueReader, entries: EntryColumns, expression: VectorizedExpression
    ) -> npt.NDArray[np.bool_]:
        """Return stage two of SQL92: bool[n]."""
        states = sql_states(expression, reader, entries)
        self.evaluation_errors += int(np.count_nonzero(states > State.NULL))
        return np.equal(states, State.TRUE)

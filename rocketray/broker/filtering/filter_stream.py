"""The broker-side filter of one stream: scans a queue's entries and writes the matches.

  1. Stage one reads ConsumeQueue entries in a kernel: the tags codes, and for SQL92 the bitmaps
     beside them, if the shard keeps any.
  2. Stage two, for SQL92, reads the records of the entries that are left.

Predicates have their own kind of stream, in predicate_stream.py.

Invariants
  1. An entry is scanned once it is visible, and not before.
  2. SQL92 that fails on a message is no match, and is counted. Any other failure stops the stream,
     because messages would be lost silently: the member is told the reason.
  3. Messages that were deleted before they were scanned are counted and logged as missed.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.errors import OffsetOutOfRangeError, StreamError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.sql92.vectorized import VectorizedExpression
from rocketray.groups.group_descriptions import LiveSubscription
from rocketray.kernels.condition_codes import State
from rocketray.runtime.files.paths import shard_directory
from rocketray.runtime.ipc.control_page import Doorbell, control_of
from rocketray.runtime.ipc.match_ring import MatchRing, StreamState
from rocketray.store.queues.ext_reader import BitTest
from rocketray.store.queues.gaps_file import gaps_of
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns

from .filter_rules import FilterRules
from .scan_position import ScanPosition
from .shard_bitmaps import StreamBits

_LOG = logging.getLogger(__name__)
SCAN_MAX = 16_384  # entries per step: 320 KiB of ConsumeQueue, which stays in the L2 cache
RECORDS_MAX = 1_024  # the same, if the records are read as well
_BEHIND_RECORDS_MAX = 4_096  # the same, of a stream with a backlog: half a millisecond
_NO_STATES = np.empty(0, np.uint8)
_NO_MATCHES = EntryColumns.room_for(0)


class FilterStream:
    """One member's stream of one queue, on the filter actor's side."""

    def __init__(self, path: Path, data: Path, rules: FilterRules) -> None:
        """Map the member's ring, compile its subscription, and open the queue.

        Raises:
            StreamError: the ring or the subscription is not usable.
            ShardUnavailableError: the queue is not on this disk, or not any more.
        """
        self.path = path
        self._ring = MatchRing(path)
        stream = self._ring.description()
        self._where = f"{stream.topic}/{stream.queue_id} for group {stream.group}"
        self._filter = MessageFilter(stream.subscription, allowed=rules.allowed)
        self._control = control_of(data, stream.topic, stream.queue_id)
        directory = shard_directory(data, stream.topic, stream.queue_id)
        self._reader = QueueReader(directory, stream.topic, stream.queue_id)
        self._doorbell = Doorbell(Path(stream.doorbell))
        subscription = LiveSubscription(stream.group, stream.topic, stream.subscription, 0)
        self._bits = StreamBits(directory, self._control, subscription)
        self._test: BitTest | None = None
        self._has_backlog = False  # the last step was as long as it may be
        self._position = ScanPosition(
            *(self._control, partial(gaps_of, directory, stream.topic, stream.queue_id)),
            self._ring.resume_at(),
            stop=stream.stop,
            where=self._where,
        )

    @property
    def closed(self) -> bool:
        """Whether the member closed it, or it failed."""
        return self._ring.state is not StreamState.RUNNING

    @property
    def is_waiting(self) -> bool:
        """Whether a predicate is running; it wakes the engine when it returns."""
        return False

    @property
    def stuck_calls(self) -> int:
        """Number of predicate calls that exceeded their time and still have not returned."""
        return 0

    def pump(self) -> bool:
        """Do one step; False if there is nothing to do now, or no room for matches."""
        limit = SCAN_MAX
        if self._filter.needs_record and self._test is None:
            limit = _BEHIND_RECORDS_MAX if self._has_backlog else RECORDS_MAX
        start, stop = self._window(limit)
        self._has_backlog = stop - start == limit
        if stop <= start:
            return False
        self._test = self._bits.test()  # after the window: see shard_bitmaps.py
        try:
            matches, counters = scan_block(self._filter, self._reader, start, stop, self._test)
            if counters.evaluation_errors and self._ring.first_error is None:
                self._note_error(start, start + counters.scanned)
        except Exception as error:  # noqa: BLE001 - the member is told
            self._fail(error)
            return False
        self._publish(matches, counters, start + counters.scanned)
        return True

    def close(self) -> None:
        """Unmap the queue's files."""
        self._reader.close()

    def _window(self, limit: int) -> tuple[int, int]:
        """Return the queue offsets to scan next: the first, and the one after the last.

        A gap before them is passed, and none is within.
        """
        before, minimum = self._position.next_offset, self._position.minimum
        missed = self._position.skip()
        # Removed files take room while they are mapped; the first message left tells which those
        # are.
        if minimum != self._position.minimum < self._control.visible():
            self._reader.let_go_before(self._position.minimum)
        if self._position.next_offset > before:
            self._publish(_NO_MATCHES, FilterCounters(missed=missed), self._position.next_offset)
        if missed:
            self._doorbell.ring()
        return self._position.window(min(limit, self._ring.room()))

    def _publish(self, matches: EntryColumns, counters: FilterCounters, stop: int) -> None:
        """Write the matches of everything below queue offset *stop* to the ring."""
        self._ring.count(counters)
        columns = (matches.physical_offsets, matches.sizes, matches.queue_offsets)
        self._ring.write(np.stack(columns, axis=1).astype(np.int64, copy=False), stop)
        self._position.next_offset = stop
        if len(matches):
            self._doorbell.ring()

    def _note_error(self, start: int, stop: int) -> None:
        """Report the first message from *start* on that the expression failed on to the member."""
        # Evaluated again, once in the life of a stream: the scan itself only counts.
        expression = self._filter.sql
        assert expression is not None, "only SQL92 has evaluation errors"
        if self._test is None:
            entries = self._reader.match_tags(start, stop, self._filter.tag_codes)
        else:
            entries, _ = self._reader.match_bits(start, stop, self._test, RECORDS_MAX)
        states = sql_states(expression, self._reader, entries)
        failed = np.flatnonzero((states >= State.NOT_INT32) & (states < State.ODD))
        self._ring.note_error(int(entries.queue_offsets[failed[0]]))

    def _fail(self, error: Exception) -> None:
        if isinstance(error, OffsetOutOfRangeError) and self._position.is_behind:
            return  # deleted while it was read: the next step continues behind it
        _LOG.error("the stream of %s stops: %s", self._where, error)
        kind = "" if isinstance(error, StreamError) else f"{type(error).__name__}: "
        self._ring.fail(f"{self._where}: {kind}{error}")
        self._doorbell.ring()


def scan_block(
    matcher: MessageFilter,
    reader: QueueReader,
    start: int,
    stop: int,
    test: BitTest | None = None,
) -> tuple[EntryColumns, FilterCounters]:
    """Return the entries from *start* to *stop*, exclusive, that match by tags code or by SQL92.

    With a *test* for SQL92, bitmaps are read first, and the scan may end earlier: ``scanned``
    tells.
    """
    if test is not None and matcher.sql is not None:
        return _scan_bits(matcher.sql, reader, start, stop, test)
    entries = reader.match_tags(start, stop, matcher.tag_codes)
    if matcher.sql is None:
        scanned = stop - start
        return entries, FilterCounters(scanned, tag_rejected=scanned - len(entries))
    states = sql_states(matcher.sql, reader, entries)
    holes = stop - start - len(entries)
    counters = _sql_counters(states) + FilterCounters(holes, sql_rejected=holes)
    return entries.select(states == State.TRUE), counters


def _scan_bits(
    expression: VectorizedExpression, reader: QueueReader, start: int, stop: int, test: BitTest
) -> tuple[EntryColumns, FilterCounters]:
    entries, stop = reader.match_bits(start, stop, test, RECORDS_MAX)
    states = sql_states(expression, reader, entries)
    rejected = stop - start - len(entries)
    counters = FilterCounters(scanned=rejected, bloom_rejected=rejected) + _sql_counters(states)
    return entries.select(states == State.TRUE), counters


def sql_states(
    expression: VectorizedExpression, reader: QueueReader, entries: EntryColumns
) -> npt.NDArray[np.uint8]:
    """Return the :class:`State` of each entry's record; reads only the named properties."""
    states = reader.judge(entries, expression.conditions)
    if states is not None:
        return states
    found = reader.find_properties(entries, expression.names)
    parts = [expression.evaluate(*spans) for spans in found]
    return parts[0] if len(parts) == 1 else np.concatenate([_NO_STATES, *parts])


def _sql_counters(states: npt.NDArray[np.uint8]) -> FilterCounters:
    counts = np.bincount(states, minlength=len(State)).tolist()
    by_kind = counts[State.NOT_INT32 : State.ODD]
    return FilterCounters(
        len(states),
        sql_rejected=counts[State.FALSE] + counts[State.NULL],
        evaluation_errors=sum(by_kind),
        not_int32=counts[State.NOT_INT32],
        not_int64=counts[State.NOT_INT64],
        not_double=counts[State.NOT_DOUBLE],
        boolean_with_text=counts[State.BOOLEAN_WITH_TEXT],
    )

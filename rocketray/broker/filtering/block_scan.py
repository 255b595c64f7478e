"""Blocks of a queue through a filter, as a group would get them, for readers without a group.

The stages are those of a delivery, by the same functions as in the filter actor, and then the
comparison of the tag's text, which is a consumer's. Bitmaps are not used: they change no result. A
predicate is imported and run in this process, without a time limit.
"""

from __future__ import annotations

import numpy as np

from rocketray.base.config import CONSUME_QUEUE_ENTRY_BYTES
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.filters.message_filter import MessageFilter
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns

from .filter_stream import RECORDS_MAX, SCAN_MAX, scan_block
from .predicate_stream import ask_all


class BlockScan:
    """A filter that scans blocks, and the sums of all of them."""

    def __init__(self, matcher: MessageFilter) -> None:
        self._matcher = matcher
        self._is_class = matcher.subscription.expression_type == "CLASS"
        self._tags = matcher.subscription.exact_tags
        self.block_max = RECORDS_MAX if matcher.needs_record else SCAN_MAX
        """The number of entries that a block should have at most."""
        self.counters = NO_COUNTERS
        """The counters of a group that consumed all blocks."""
        self.bytes_read = 0
        """The size of the queue entries and the records that were read."""
        self.error = ""
        """The error of the first predicate call that failed."""

    def matches(self, reader: QueueReader, start: int, stop: int) -> EntryColumns:
        """Return the matches from queue offset *start* to *stop*, exclusive; no gap is within."""
        self.bytes_read += (stop - start) * CONSUME_QUEUE_ENTRY_BYTES
        ask = self._ask if self._is_class else self._scan
        entries, counters = ask(reader, start, stop)
        self.counters += counters
        return entries

    def _scan(
        self, reader: QueueReader, start: int, stop: int
    ) -> tuple[EntryColumns, FilterCounters]:
        entries, counters = scan_block(self._matcher, reader, start, stop)
        if self._matcher.needs_record:
            self.bytes_read += int(reader.entries(start, stop).sizes.sum())
        found = len(entries)
        if self._tags and found:
            self.bytes_read += int(entries.sizes.sum())
            entries = entries.select(reader.have_tags(entries, self._tags))
        consumed = FilterCounters(collisions=found - len(entries), delivered=len(entries))
        return entries, counters + consumed

    def _ask(
        self, reader: QueueReader, start: int, stop: int
    ) -> tuple[EntryColumns, FilterCounters]:
        entries = reader.entries(start, stop)
        self.bytes_read += int(entries.sizes.sum())
        run = ask_all(self._matcher, reader, entries)
        verdicts = run.take()
        self.error = self.error or run.error
        matches = entries.select(verdicts == 1)
        return matches, FilterCounters(
            len(entries),
            class_rejected=int(np.count_nonzero(verdicts == 0)),
            predicate_errors=int(np.count_nonzero(verdicts < 0)),
            delivered=len(matches),
        )

"""Lookups of stored messages in one shard: the object behind ``LookupApi``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from rocketray.errors import CorruptRecordError, OffsetOutOfRangeError
from rocketray.message import PhysicalOffset, StoredMessage

from .day_counts import DayCounts, count_days
from .shard_api import StoredFacts
from .shard_writer import ShardWriter

QUERY_MAX = 10_000  # messages that one call returns at most


@dataclass(frozen=True, slots=True)
class ShardLookups:
    """The lookups of one shard; for any thread of its process.

    ``drain`` stores the batches in the rings.
    """

    writer: ShardWriter
    topic: str
    queue_id: int
    drain: Callable[[], object]

    def view(self, physical_offset: int) -> StoredMessage | None:
        try:
            with self.writer.reading():
                found = self.writer.store.reads.view(PhysicalOffset(physical_offset))
        except (CorruptRecordError, OffsetOutOfRangeError):
            return None
        return found if found.physical_offset == physical_offset else None

    def facts(self, message: StoredMessage) -> StoredFacts:
        reads, place = self.writer.store.reads, (self.topic, self.queue_id)
        with self.writer.reading():
            offsets = reads.min_queue_offset(*place), reads.max_queue_offset(*place)
            filters = dict(self.writer.bitmaps.filters)
            try:
                entry = reads.queue_entry(*place, message.queue_offset)
            except OffsetOutOfRangeError:
                entry = None
        is_dispatched = entry is not None and entry.physical_offset == message.physical_offset
        tags_code = None if entry is None else entry.tags_code
        unit = entry.unit if entry is not None and is_dispatched else None
        return StoredFacts(message, is_dispatched, tags_code, *offsets, unit, filters)

    def message_at(self, queue_offset: int) -> StoredMessage | None:
        with self.writer.reading():
            return self.writer.message_at(queue_offset)

    def offset_at_time(self, time_ms: int) -> int:
        with self.writer.reading():
            reads = self.writer.store.reads
            return reads.queue_offset_by_time(self.topic, self.queue_id, time_ms)

    def stored_by_day(self, yesterday_ms: int, today_ms: int) -> DayCounts:
        """Return how many messages were stored since then."""
        with self.writer.reading():
            reads = self.writer.store.reads
            return count_days(reads, self.topic, self.queue_id, yesterday_ms, today_ms)

    def query(
        self,
        key: str,
        max_count: int = QUERY_MAX,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
        *,
        strict: bool = False,
    ) -> list[StoredMessage]:
        """Return the newest messages with that key, oldest first, with those in a ring until now.

        A sender that does not know whether a message is stored calls this, and sends it again if
        not. With *strict* it raises as :meth:`StoreReads.query`.
        """
        self.drain()
        count = min(max_count, QUERY_MAX)
        with self.writer.reading():
            reads = self.writer.store.reads
            return reads.query(self.topic, key, count, begin_ms, end_ms, strict=strict)

    def query_by_time(self, begin_ms: int, end_ms: int, max_count: int) -> list[StoredMessage]:
        reads = self.writer.store.reads
        messages: list[StoredMessage] = []
        with self.writer.reading():
            first = reads.queue_offset_by_time(self.topic, self.queue_id, begin_ms)
            end = reads.max_queue_offset(self.topic, self.queue_id)
            ranges = reads.gaps(self.topic, self.queue_id).outside(first, end)
            for offset in chain.from_iterable(range(*span) for span in ranges):
                if len(messages) == min(max_count, QUERY_MAX):
                    break
                entry = reads.queue_entry(self.topic, self.queue_id, offset)
                message = reads.view(entry.physical_offset)
                if message.store_timestamp_ms > end_ms:
                    break
                if message.store_timestamp_ms >= begin_ms:
                    messages.append(message)
        return messages

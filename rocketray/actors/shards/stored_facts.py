"""A shard's facts on one stored message and its queue, for explanations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketray.filters.consumer_filter_data import ConsumerFilterData
from rocketray.filters.filter_verdict import BitmapFacts
from rocketray.message import StoredMessage
from rocketray.store.queues.consume_queue_ext import ExtUnit

__all__ = ["StoredFacts"]


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """A message and its queue: ``tags_code`` of its entry, and the queue's offsets.

    ``is_dispatched`` says whether the entry at the message's queue offset leads to it; ``unit`` is
    the extension unit of the entry, ``filters`` the filters of the shard's bitmaps, by group.
    """

    message: StoredMessage
    is_dispatched: bool
    tags_code: int | None
    min_queue_offset: int
    max_queue_offset: int
    unit: ExtUnit | None = None
    filters: Mapping[str, ConsumerFilterData] = field(default_factory=dict)

    def bitmap_of(self, group: str) -> BitmapFacts | None:
        """Return the bitmap facts for a stream of *group*; None if the shard never kept bitmaps."""
        known = self.filters.get(group)
        if self.unit is not None:
            return BitmapFacts(self.unit.bitmap, self.unit.store_timestamp_ms, known)
        return BitmapFacts(registered=known) if self.filters else None

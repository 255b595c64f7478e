"""The result of a group member's poll: matching messages of one queue, decoded on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.message import StoredMessage
from rocketray.store.reading.columns import read_columns
from rocketray.store.reading.record_spans import EntryColumns, RecordReader, property_texts


@dataclass(frozen=True, slots=True)
class ConsumedBatch:
    """Messages of one queue, in order; their tags were compared exactly.

    ``next_queue_offset`` is the offset to commit once all of them are finished. It is behind the
    entries that the filter rejected after the last match, so an empty batch may still advance the
    group.
    """

    topic: str
    queue_id: int
    next_queue_offset: int
    entries: EntryColumns
    reader: RecordReader

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def queue_offsets(self) -> npt.NDArray[np.int64]:
        """Queue offset of each message."""
        return self.entries.queue_offsets

    @property
    def size_bytes(self) -> int:
        """Size of all records, as they are stored."""
        return int(self.entries.sizes.sum(dtype=np.int64))

    def pieces(self, max_bytes: int) -> list[ConsumedBatch]:
        """Return parts of *max_bytes* of records, or one message; the last moves the group on."""
        if self.size_bytes <= max_bytes:
            return [self]
        entries, found, first = self.entries, list[ConsumedBatch](), 0
        while first < len(entries):
            sums = np.cumsum(entries.sizes[first:], dtype=np.int64)
            end = first + max(1, int(np.searchsorted(sums, max_bytes, side="right")))
            is_last = end == len(entries)
            next_offset = self.next_queue_offset if is_last else int(entries.queue_offsets[end])
            part = entries.select(slice(first, end))
            found.append(replace(self, entries=part, next_queue_offset=next_offset))
            first = end
        return found

    def bodies(self) -> list[bytes]:
        """Return the bodies, copied out of the log."""
        return self.reader.bodies(self.entries)

    def messages(self) -> list[StoredMessage]:
        """Return the messages, fully decoded."""
        return self.reader.messages(self.entries)

    def property_strings(self) -> list[bytes]:
        """Return all properties of each message as one string, as they are stored."""
        return self.reader.property_strings(self.entries)

    def property_texts(self, names: Sequence[str]) -> list[list[str | None]]:
        """Return the named properties: for each name, that of every message, None without it."""
        return property_texts(self.reader, self.entries, names)

    def to_arrow(self, columns: Sequence[str]) -> pa.RecordBatch:
        """Return the named columns (see :func:`rocketray.store.reading.columns.read_columns`)."""
        return read_columns(self.reader, self.entries, columns)

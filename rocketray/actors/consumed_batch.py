"""What a group member gets from a poll: matching messages of one queue, decoded when asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.message import StoredMessage
from rocketray.store.columns import read_columns
from rocketray.store.record_spans import EntryColumns, RecordReader

__all__ = ["ConsumedBatch"]


@dataclass(frozen=True, slots=True)
class ConsumedBatch:
    """Messages of one queue, in order; their tags were compared exactly.

    ``next_queue_offset`` is what to commit once all of them are finished. It lies behind the
    entries that the filter left out after the last match, so a batch may be empty and still
    move the group on.
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
        """The queue offset of each message."""
        return self.entries.queue_offsets

    def bodies(self) -> list[bytes]:
        """The bodies, copied out of the log."""
        return self.reader.bodies(self.entries)

    def messages(self) -> list[StoredMessage]:
        """The messages, fully decoded."""
        return self.reader.messages(self.entries)

    def to_arrow(self, columns: Sequence[str]) -> pa.RecordBatch:
        """The named columns (see :func:`rocketray.store.columns.read_columns`)."""
        return read_columns(self.reader, self.entries, columns)

"""Messages with a filter's verdict on each, made of queue entries that were scanned already.

The verdict on a message that was left out is that of ``explain_filter``: the step that decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocketray.filters.filter_verdict import deciding_step, explain_filter
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.verdict_values import ExplainStep, FilterReason
from rocketray.message import StoredMessage
from rocketray.store.reading.record_spans import EntryColumns, RecordReader

_CHUNK_BYTES = 8 * 1024 * 1024  # of records that are objects at the same time


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message and the filter's verdict; ``step`` is what left it out, None if it matched."""

    message: StoredMessage
    reason: FilterReason
    step: ExplainStep | None = None

    @property
    def is_match(self) -> bool:
        """Whether a group with the filter would get it."""
        return self.reason is FilterReason.MATCHED


@dataclass(frozen=True, slots=True)
class SeenEntries:
    """Entries of one queue, in its order; ``matches`` bool[n] says which of them match."""

    reader: RecordReader
    entries: EntryColumns
    matches: npt.NDArray[np.bool_]

    def select(self, rows: slice) -> SeenEntries:
        return SeenEntries(self.reader, self.entries.select(rows), self.matches[rows])

    def newest(self, count: int, size: int) -> SeenEntries:
        """Return the newest, at most *count*, of *size* bytes or only one."""
        behind = np.cumsum(self.entries.sizes[::-1], dtype=np.int64)
        fitting = max(1, int(np.searchsorted(behind, size, side="right")))
        left_out = max(0, len(self.entries) - min(count, fitting))
        return self.select(slice(left_out, None)) if left_out else self

    def chunks(self) -> Iterator[SeenEntries]:
        """Yield parts whose records together are small, or single ones."""
        sizes: Sequence[int] = self.entries.sizes.tolist()
        first = held = 0
        for number, size in enumerate(sizes):
            if held and held + size > _CHUNK_BYTES:
                yield self.select(slice(first, number))
                first, held = number, 0
            held += size
        if first < len(sizes):
            yield self.select(slice(first, None))


class Verdicts:
    """The verdicts of one filter."""

    def __init__(self, matcher: MessageFilter) -> None:
        self._filter = matcher

    def messages(self, seen: SeenEntries) -> list[SeenMessage]:
        """Return the messages of *seen*; raises as :meth:`RecordReader.messages`."""
        messages = seen.reader.messages(seen.entries)
        codes = seen.entries.tags_codes.tolist()
        return [
            SeenMessage(message, FilterReason.MATCHED) if is_match else self.rejected(message, code)
            for message, code, is_match in zip(messages, codes, seen.matches, strict=True)
        ]

    def rejected(self, message: StoredMessage, tags_code: int) -> SeenMessage:
        """Return a message that does not match, and the part of the filter that decided it."""
        verdict = explain_filter(
            self._filter.subscription, message, tags_code, lambda _, record: self._asked(record)
        )
        return SeenMessage(message, verdict.reason, deciding_step(verdict))

    def _asked(self, message: StoredMessage) -> bool:
        """Return the result of the predicate; a batch predicate was asked in its batch."""
        if self._filter.batch_columns is not None:
            return False
        return self._filter.matches_record(message)

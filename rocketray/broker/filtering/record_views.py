"""The messages of a batch as predicates see them: decoded lazily, by attribute.

Most predicates read a property or the body; to decode a whole record costs several times as much. A
view has every attribute of a :class:`~rocketray.message.StoredMessage`. It keeps the record's file
mapped, so any thread may read it, at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from rocketray.base.property_string import decode_properties
from rocketray.errors import StreamError
from rocketray.kernels.spans import Field
from rocketray.message import TAGS, StoredMessage
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns, SegmentSpans


class RecordViews:
    """Views of *entries*, by their position."""

    def __init__(self, reader: QueueReader, entries: EntryColumns) -> None:
        """Find the records.

        Raises:
            OffsetOutOfRangeError: a segment is not there, or not any more.
            CorruptRecordError: an entry does not point to a whole record of its size.
        """
        self._topic = reader.topic
        parts = [_Part(spans) for spans in reader.records(entries)]
        self._places = [(part, row) for part in parts for row in range(len(part.spans))]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> LazyRecord:
        return LazyRecord(self._topic, *self._places[index])


class _Part:
    """Records of one file; the first body that is asked for has all of them decoded in one call."""

    def __init__(self, spans: SegmentSpans) -> None:
        self.spans = spans
        self._starts = spans.fields[Field.PROPERTIES_START].tolist()
        self._sizes = spans.fields[Field.PROPERTIES_SIZE].tolist()

    def properties(self, row: int) -> dict[str, str]:
        start = self._starts[row]
        return decode_properties(self.spans.segment[start : start + self._sizes[row]].tobytes())

    @cached_property
    def bodies(self) -> list[bytes] | None:
        """All bodies; None if one is damaged, so that each body is then read on its own."""
        try:
            bodies: list[bytes] = self.spans.bodies().to_pylist()
        except StreamError:
            return None
        return bodies


class LazyRecord:
    """One message; an attribute is decoded when it is read, and kept."""

    def __init__(self, topic: str, part: _Part, row: int) -> None:
        self.topic = topic
        self._part = part
        self._row = row

    @cached_property
    def properties(self) -> dict[str, str]:
        return self._part.properties(self._row)

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> Sequence[str]:
        return self._whole.keys

    @cached_property
    def body(self) -> bytes:
        """The body, checked and inflated; raises CorruptRecordError."""
        bodies = self._part.bodies
        return self._whole.body if bodies is None else bodies[self._row]

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of a stored message."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._whole, name)

    @cached_property
    def _whole(self) -> StoredMessage:
        return self._part.spans.message(self._row)

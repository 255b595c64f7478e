"""The content of a send of many messages, split into batches.

The messages are given as :class:`~rocketray.message.Message` objects, as bodies that share tag,
keys and properties, or as rows of an Arrow table. Each batch goes to one queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from rocketray.actors.ipc.ring import RING_BYTES
from rocketray.message import Message, encode_stored
from rocketray.store.batches.message_columns import MessageColumns

__all__ = ["BATCH_BYTES", "BATCH_MAX", "Bodies", "Messages", "Part", "cut", "cut_table"]

BATCH_MAX = 1024
BATCH_BYTES = 512 * 1024  # plus one message; a batch is in one file of the log
_TABLE_BATCH_ROWS = 4096
_TABLE_BATCH_BYTES = RING_BYTES // 5  # some are stored while others are built
_TABLE_BATCH_MAX_BYTES = RING_BYTES // 4  # if larger rows are adjacent
_ROW_BYTES = 160  # bytes of a record and its frame beside the values, about


class Messages:
    """A list of messages."""

    __slots__ = ("_encoded", "messages")

    def __init__(self, messages: Sequence[Message]) -> None:
        """Encode their properties.

        Raises:
            InvalidMessageError, MessageTooLargeError: those of a message cannot be stored.
        """
        self.messages = messages
        plain = _PlainMessages(messages[0].topic if messages else "")
        self._encoded = [
            encode_stored(one.topic, one.tags, one.keys, one.properties, one.unique_key)
            if one.keys or one.properties or one.unique_key
            else plain[one.tags]
            for one in messages
        ]

    def sizes(self, numbers: Sequence[int]) -> list[int]:
        """Return the bytes of the body and the properties of each of those messages."""
        return [len(self.messages[at].body) + len(self._encoded[at]) for at in numbers]

    def fill(self, columns: MessageColumns, numbers: Sequence[int]) -> None:
        """Add those messages to a batch."""
        columns.extend([self.messages[at] for at in numbers], [self._encoded[at] for at in numbers])


class _PlainMessages(dict[str | None, bytes]):
    """The property string of messages that have at most a tag, by it."""

    def __init__(self, topic: str) -> None:
        """Take the topic that an error names."""
        super().__init__()
        self._topic = topic

    def __missing__(self, tags: str | None) -> bytes:
        """Encode *tags*, and keep the result."""
        encoded = self[tags] = encode_stored(self._topic, tags, (), {})
        return encoded


@dataclass(frozen=True, slots=True)
class Bodies:
    """Bodies of messages that share their tag, keys and properties."""

    bodies: Sequence[bytes]
    tags: str | None
    keys: Sequence[str]
    properties: Mapping[str, str]

    def sizes(self, numbers: Sequence[int]) -> list[int]:
        """Return the bytes of the body and the properties of each of those messages."""
        shared = _properties_bytes(self.properties)
        return [len(self.bodies[number]) + shared for number in numbers]

    def fill(self, columns: MessageColumns, numbers: Sequence[int]) -> None:
        """Add those messages to a batch."""
        bodies = [self.bodies[number] for number in numbers]
        columns.extend_alike(bodies, self.tags, self.keys, self.properties)


Content = Messages | Bodies
"""Messages that are sent together, by their numbers."""


class Part(NamedTuple):
    """The content of one batch: the messages of a list, or the rows of a table."""

    topic: str
    queue_id: int
    numbers: Sequence[int]
    """The numbers of the messages in the whole send."""
    content: Content | None = None
    rows: pa.Table | pa.RecordBatch | None = None
    property_columns: Sequence[str] = ()
    is_free: bool = False
    """Whether any other queue of the topic would do: nothing of the messages chose this one."""

    def fill(self, columns: MessageColumns) -> None:
        """Add the messages to a batch."""
        assert self.content is not None
        self.content.fill(columns, self.numbers)


def cut(content: Content, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the *numbers* of each batch: up to ``BATCH_BYTES``, or one larger message."""
    start = size = 0
    for place, length in enumerate(content.sizes(numbers)):
        if place - start == BATCH_MAX or (size + length > BATCH_BYTES and place > start):
            yield numbers[start:place]
            start, size = place, 0
        size += length
    if start < len(numbers):
        yield numbers[start:]


def cut_table(table: pa.Table | pa.RecordBatch) -> Iterator[pa.Table | pa.RecordBatch]:
    """Yield the rows of each batch, in order; each fits the ring, unless a single row does not."""
    row_bytes: int = _ROW_BYTES + table.nbytes // max(1, table.num_rows)
    step = min(_TABLE_BATCH_ROWS, max(1, _TABLE_BATCH_BYTES // row_bytes))
    for start in range(0, table.num_rows, step):
        yield from _halves(table.slice(start, step))


def _properties_bytes(properties: Mapping[str, str]) -> int:
    return sum(map(len, properties)) + sum(map(len, properties.values()))


def _halves(rows: pa.Table | pa.RecordBatch) -> Iterator[pa.Table | pa.RecordBatch]:
    if rows.num_rows == 1 or rows.nbytes + rows.num_rows * _ROW_BYTES <= _TABLE_BATCH_MAX_BYTES:
        yield rows
    else:
        half = rows.num_rows // 2
        yield from _halves(rows.slice(0, half))
        yield from _halves(rows.slice(half))

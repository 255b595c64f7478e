"""The content of a send of many messages, split into batches.

The messages are given as :class:`~rocketray.message.Message` objects, as columns, or as rows of an
Arrow table. Each batch goes to one queue. Objects that have the same properties, as those of most
lists, become columns, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.message import Message
from rocketray.runtime.ipc.ring import RING_BYTES
from rocketray.store.batches.message_columns import MessageColumns
from rocketray.store.batches.message_lists import EncodedLists, with_number

# With bodies of 100 bytes, 1,024 records take some 270 KiB: a ring of 4 MiB holds fifteen such
# batches, so the shard stores some while others are built.
BATCH_MAX = 1024
# Plus one message, as it is looked at after each. An eighth of a ring; a batch has to be in one
# file of the log, whose rest it leaves empty if it does not fit there.
BATCH_BYTES = 512 * 1024
# Rows with up to 44 bytes of values reach this limit; those of more reach that of bytes first.
_TABLE_BATCH_ROWS = 4096
_TABLE_BATCH_BYTES = RING_BYTES // 5  # some are stored while others are built
_TABLE_BATCH_MAX_BYTES = RING_BYTES // 4  # if larger rows are adjacent
_ROW_BYTES = 160  # bytes of a record and its frame beside the values, about


class Messages:
    """A list of messages that differ in more than the texts of their properties."""

    __slots__ = ("_encoded", "messages")

    def __init__(self, messages: Sequence[Message]) -> None:
        """Encode their properties.

        Raises:
            InvalidMessageError, MessageTooLargeError: those of a message cannot be stored.
        """
        self.messages = messages
        self._encoded = []
        for number, one in enumerate(messages):
            try:
                self._encoded.append(one.encoded_properties())
            except (InvalidMessageError, MessageTooLargeError) as error:
                raise with_number(number, error) from None

    def __len__(self) -> int:
        return len(self.messages)

    def sizes(self, numbers: Sequence[int]) -> list[int]:
        """Return the bytes of the body and the properties of each of those messages."""
        return [len(self.messages[at].body) + len(self._encoded[at]) for at in numbers]

    def fill(self, columns: MessageColumns, numbers: Sequence[int]) -> None:
        columns.extend([self.messages[at] for at in numbers], [self._encoded[at] for at in numbers])


Content = Messages | EncodedLists
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
    owner_epoch: int = 0
    """The ownership epoch of the sender; 0 for none."""


def cut(content: Content, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the *numbers* of each batch: up to ``BATCH_BYTES``, or one larger message."""
    sizes = content.sizes(numbers)
    if len(sizes) <= BATCH_MAX and sum(sizes) <= BATCH_BYTES:
        sizes = []
    start = size = 0
    for place, length in enumerate(sizes):
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


def _halves(rows: pa.Table | pa.RecordBatch) -> Iterator[pa.Table | pa.RecordBatch]:
    if rows.num_rows == 1 or rows.nbytes + rows.num_rows * _ROW_BYTES <= _TABLE_BATCH_MAX_BYTES:
        yield rows
    else:
        half = rows.num_rows // 2
        yield from _halves(rows.slice(0, half))
        yield from _halves(rows.slice(half))

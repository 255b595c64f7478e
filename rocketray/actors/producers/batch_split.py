"""Batch splitting: how many messages, or rows of a table, a producer sends as one batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from rocketray.actors.ipc.ring import RING_BYTES
from rocketray.message import Message

from .batching import BATCH_BYTES, BATCH_MAX

__all__ = ["cut_messages", "cut_table"]

_TABLE_BATCH_ROWS = 4096
_TABLE_BATCH_BYTES = RING_BYTES // 5  # some are stored while others are built
_TABLE_BATCH_MAX_BYTES = RING_BYTES // 4  # if larger rows are adjacent
_ROW_BYTES = 160  # bytes of a record and its frame beside the values, about


def cut_messages(messages: Sequence[Message], numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the *numbers* of each batch: up to ``BATCH_BYTES``, or one larger message."""
    start = size = 0
    for place, number in enumerate(numbers):
        length = len(messages[number].body)
        if properties := messages[number].properties:
            length += sum(map(len, properties)) + sum(map(len, properties.values()))
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

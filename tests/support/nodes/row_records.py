"""The messages in packed batches of rows: as the Arrow and the Spark writer store them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rocketray.base.property_string import decode_properties
from rocketray.message import UNIQUE_KEY
from rocketray.services.staging.message_rows import RowFrame
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.batches.encoded_batch import unpack_batch
from rocketray.store.batches.encoded_table import MeasuredTable
from rocketray.store.formats.record import parse_record


class RowMessage(NamedTuple):
    """A message without its unique key, which is another one each time."""

    topic: str
    body: bytes
    properties: dict[str, str]


def in_frame(frame: RowFrame) -> list[RowMessage]:
    """The messages of a batch that a Spark task stages."""
    batch = unpack_batch(frame.content)
    assert len(batch) == frame.messages
    return in_batch(batch)


def in_batch(batch: EncodedBatch) -> list[RowMessage]:
    """The messages of a batch with unique keys."""
    found = [*_messages(batch.records.tobytes(), batch.sizes.tolist())]
    for message in found:
        assert len(message.properties.pop(UNIQUE_KEY)) == 32
        message.properties.pop("__CRC32#", None)  # its digits are the store's
    return found


def in_table(table: MeasuredTable) -> list[RowMessage]:
    """The messages of a table that a producer sends."""
    out = np.empty(table.record_bytes, np.uint8)
    table.write_records(out)
    return [*_messages(out.tobytes(), table.sizes.tolist())]


def _messages(records: bytes, sizes: list[int]) -> Iterator[RowMessage]:
    at = 0
    for size in sizes:
        record = records[at : at + size]
        at += size
        fields = parse_record(record, 0, size)
        assert not isinstance(fields, str)
        yield RowMessage(
            record[fields.topic_start : fields.topic_end].decode(),
            record[fields.body_start : fields.body_end],
            dict(decode_properties(record[fields.properties_start :])),
        )

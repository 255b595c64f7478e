"""The topic column of redelivered messages: their original topic, not the retry topic."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from rocketray.message import StoredMessage

from .retry_records import topic_of

_TOPIC = "topic"


def with_first_topics(batch: pa.RecordBatch, messages: Iterable[StoredMessage]) -> pa.RecordBatch:
    """Return *batch* with the original topics of its *messages*, if it has that column."""
    number = batch.schema.get_field_index(_TOPIC)
    if number < 0:
        return batch
    field = batch.schema.field(number)
    return batch.set_column(number, field, pa.array(map(topic_of, messages), field.type))

"""Messages of a queue as Arrow columns.

Only the requested columns are read: queue offsets need no record, and properties are parsed last
and only if needed, because they cost more than all other columns together. Every column is nullable
and has one type, whatever its values: see ``COLUMN_TYPES``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from rocketray.base.message_time import TIME_MAX_MS, TIME_MIN_MS
from rocketray.errors import ConfigError
from rocketray.kernels.layout import HOST_BYTES, HOST_IPV6_EXTRA
from rocketray.kernels.spans import Field, write_offset_ids
from rocketray.message import KEYS, SHARDING_KEY, TAGS
from rocketray.store.formats.arrow_spans import (
    fixed_array,
    joined_array,
    properties_array,
    string_array,
)

from .record_spans import EntryColumns, RecordReader, SegmentSpans

_TIMESTAMP = pa.timestamp("us", tz="UTC")  # Spark's unit; stored times are milliseconds
COLUMN_TYPES: dict[str, Any] = {
    "topic": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "body": pa.binary(),
    "tags": pa.string(),
    "keys": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "bornTimestamp": _TIMESTAMP,
    "storeTimestamp": _TIMESTAMP,
    "msgId": pa.string(),
    "shardingKey": pa.string(),
}
_ID_CHARS_MAX = 2 * (HOST_BYTES + HOST_IPV6_EXTRA + 8)  # hex of an IPv6 host and an i64


@lru_cache(maxsize=256)  # choices of columns, of which a program has few
def column_schema(columns: tuple[str, ...]) -> Any:
    """Return the Arrow schema of *columns*; raise :class:`ConfigError` for an unknown column."""
    unknown = [name for name in columns if name not in COLUMN_TYPES]
    if unknown:
        raise ConfigError(
            f"no column {', '.join(map(repr, unknown))}; there are {', '.join(COLUMN_TYPES)}"
        )
    return pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])


def read_columns(reader: RecordReader, entries: EntryColumns, columns: Sequence[str]) -> Any:
    """Return the messages of *entries* as a ``pyarrow.RecordBatch`` with *columns*, in that order.

    Times are whole milliseconds, null outside the years 1 to 9999. Raises :class:`ConfigError` for
    an unknown column, or if one column has more than 2 GiB.
    """
    schema = column_schema(tuple(columns))
    from_entries = _entry_columns(reader, entries)
    rest = [name for name in columns if name not in from_entries]
    if rest == ["body"]:  # the most common request
        found = {"body": reader.body_array(entries)}
    else:
        found = _record_columns(reader.records(entries) if rest else [], rest)
    arrays = [from_entries[name]() if name in from_entries else found[name] for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _entry_columns(reader: RecordReader, entries: EntryColumns) -> dict[str, Callable[[], Any]]:
    """Return the columns that need no record."""
    count = len(entries)
    return {
        "topic": lambda: pa.repeat(pa.scalar(reader.topic, pa.string()), count),
        "queueId": lambda: fixed_array(pa.int32(), np.full(count, reader.queue_id, np.int32)),
        "queueOffset": lambda: fixed_array(pa.int64(), np.array(entries.queue_offsets)),
    }


def _record_columns(parts: list[SegmentSpans], names: Sequence[str]) -> dict[str, Any]:
    arrays: dict[str, list[Any]] = {name: [] for name in names}
    wanted = [_PROPERTY_NAMES[name] for name in names if name in _PROPERTY_NAMES]
    for part in parts:
        found = zip(*part.find(wanted), strict=True) if wanted else ()
        values = dict(zip(wanted, found, strict=True))
        for name in names:
            if name in _PROPERTY_NAMES:
                array = string_array(part.segment, *values[_PROPERTY_NAMES[name]])
            else:
                array = _BUILDERS[name](part)
            arrays[name].append(array)
    return {name: joined_array(pieces, COLUMN_TYPES[name]) for name, pieces in arrays.items()}


def _timestamps(part: SegmentSpans, field: Field) -> Any:
    """Return times; one that no calendar has is null, because a wrong time moves a watermark."""
    times_ms = part.fields[field]
    if len(times_ms) and not TIME_MIN_MS <= times_ms.min() <= times_ms.max() <= TIME_MAX_MS:
        is_none = (times_ms < TIME_MIN_MS) | (times_ms > TIME_MAX_MS)
        # Their microseconds might not fit into 64 bits.
        times_ms = np.where(is_none, 0, times_ms)
        return pa.array(times_ms * 1000, pa.int64(), mask=is_none).cast(_TIMESTAMP)
    return fixed_array(_TIMESTAMP, times_ms * 1000)


def _properties(part: SegmentSpans) -> Any:
    starts, sizes = part.fields[Field.PROPERTIES_START], part.fields[Field.PROPERTIES_SIZE]
    return properties_array(part.segment, starts, sizes)


def _message_ids(part: SegmentSpans) -> Any:
    offsets = np.empty(len(part) + 1, np.int32)
    data = np.empty(len(part) * _ID_CHARS_MAX, np.uint8)
    hosts, host_sizes = part.fields[Field.STORE_HOST_START], part.fields[Field.STORE_HOST_SIZE]
    write_offset_ids(part.segment, hosts, host_sizes, part.physical_offsets, offsets, data)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(part), buffers)


_PROPERTY_NAMES = {"tags": TAGS, "keys": KEYS, "shardingKey": SHARDING_KEY}
_BUILDERS: dict[str, Callable[[SegmentSpans], Any]] = {
    "body": SegmentSpans.bodies,
    "properties": _properties,
    "bornTimestamp": lambda part: _timestamps(part, Field.BORN_TIMESTAMP),
    "storeTimestamp": lambda part: _timestamps(part, Field.STORE_TIMESTAMP),
    "msgId": _message_ids,
}

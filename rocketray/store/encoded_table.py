"""From an Arrow table to a batch of records, without a Python object per message.

The table's columns: ``body`` (binary or string), and optionally ``tags`` (string), ``keys``
(string with blanks between keys, or list of string), ``properties`` (map of string to string), and
those that the caller names as property columns. No other column is taken, so that nothing is lost
unseen. A null is "absent", and so is an empty ``keys``; there is no null body.

What :class:`~rocketray.message.Message` refuses is refused here, with the row. The order of a
record's properties is the same: unique key, keys, tags, then the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketray.errors import ConfigError, InvalidMessageError, MessageTooLargeError
from rocketray.kernels.encode import write_pairs, write_property, write_records
from rocketray.kernels.hashing import crc32_spans, hash_spans
from rocketray.kernels.layout import SYS_FLAG
from rocketray.kernels.texts import (
    ANY_TEXT,
    KEY_TEXT,
    TAG_TEXT,
    first_bad_text,
    hash_record_keys,
)
from rocketray.message import (
    BODY_MAX_BYTES,
    KEYS,
    PROPERTIES_MAX_BYTES,
    TAGS,
    UNIQUE_KEY,
)
from rocketray.names import check_topic

from .batch_form import (
    EncodedBatch,
    RecordOptions,
    TopicForm,
    born_host_form,
    record_header,
    topic_form,
)
from .property_crc import CRC_NAME, CRC_NO_DIGITS, CRC_PROPERTY_BYTES
from .text_columns import (
    Spans,
    bytes_column,
    compressed_column,
    list_of_keys,
    pairs_column,
    property_column,
    text_column,
)

__all__ = ["encode_table"]

_Int64s = npt.NDArray[np.int64]
_RESERVED = (UNIQUE_KEY, KEYS, TAGS)
_MESSAGE_COLUMNS = ("body", "tags", "keys", "properties")
_PLAIN = RecordOptions()
_BLOCK_ROWS = 4096  # records of a block stay in the cache from one column to the next


@dataclass(frozen=True, slots=True)
class _Columns:
    """A checked table as spans, one a row."""

    body: Spans
    unique: Spans
    keys: Spans
    tags: Spans
    named: list[tuple[str, Spans]]  # unique key, keys and tags among them, in the order written
    pair_names: Spans
    pair_values: Spans
    pair_bounds: _Int64s


def encode_table(
    topic: str,
    table: Any,
    *,
    born_host: tuple[str, int],
    born_timestamp_ms: int,
    unique_ids: npt.NDArray[np.uint8] | bytes | Any | None = None,
    property_columns: Sequence[str] = (),
    options: RecordOptions = _PLAIN,
) -> EncodedBatch:
    """Encode a ``pyarrow.RecordBatch`` or ``pyarrow.Table``, one message a row.

    ``unique_ids``: one id a row, as an Arrow string array, as ``uint8[n, width]`` of ASCII, or as
    bytes of 32 characters each. ``property_columns`` become properties of their names, absent
    where null.

    Raises:
        ConfigError: a column is missing, unknown or of a type that is not taken.
        InvalidMessageError: there are no rows, or a row has what :class:`Message` refuses.
        MessageTooLargeError: a body or a property string is over its limit.
    """
    form = topic_form(check_topic(topic))
    if len(table) == 0:
        raise InvalidMessageError("a batch has no messages; give a table with at least one row")
    columns = _read_table(table, unique_ids, property_columns)
    property_sizes = _property_sizes(columns)
    if options.properties_crc:
        property_sizes += CRC_PROPERTY_BYTES
    _check_limits(columns.body.sizes, property_sizes)
    compressed = np.empty(0, np.int64)
    if options.compression is not None:
        body, compressed = compressed_column(columns.body, options.compression)
        columns = replace(columns, body=body)
    host = born_host_form(*born_host)
    sys_flag, store_host_bytes = host.sys_flag | options.every_sys_flag, options.store_host_bytes
    header = record_header(len(host.encoded), store_host_bytes).pack(
        0, form.magic, 0, 0, 0, 0, 0, sys_flag,
        born_timestamp_ms, host.encoded, 0, bytes(store_host_bytes), 0, 0, 0,
    )  # fmt: skip
    sizes = columns.body.sizes + property_sizes + (len(header) + len(form.field) + 2)
    positions = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=positions[1:])
    records = np.empty(int(positions[-1]), np.uint8)
    for first in range(0, len(sizes), _BLOCK_ROWS):
        block = slice(first, first + _BLOCK_ROWS)
        bounds = positions[first : first + _BLOCK_ROWS + 1]
        _write_block(
            records,
            bounds,
            block,
            columns,
            property_sizes=property_sizes[block],
            header=header,
            form=form,
            with_crc=options.properties_crc,
        )
    if options.compression is not None:
        flags = (sys_flag | options.compression.sys_flag).to_bytes(4, "big")
        where = positions[:-1][compressed, np.newaxis] + np.arange(SYS_FLAG, SYS_FLAG + 4)
        records[where] = np.frombuffer(flags, np.uint8)
    codes = np.empty(len(sizes), np.int32)
    hash_spans(columns.tags.data, columns.tags.starts, columns.tags.sizes, 0, codes)
    hashes, key_records = _hash_keys(columns, form.key_seed)
    return EncodedBatch(
        records, sizes.astype(np.int32), codes.astype(np.int64), hashes, key_records
    )


def _read_table(table: Any, unique_ids: Any, property_columns: Sequence[str]) -> _Columns:
    names = table.schema.names
    _check_names(names, property_columns)
    arrays = {name: _one_array(table.column(name)) for name in names}
    count = len(table)
    body = bytes_column("body", arrays["body"])
    missing = np.flatnonzero(body.sizes < 0)
    if len(missing):
        raise InvalidMessageError(f"row {missing[0]}: the body is null; give empty bytes instead")
    unique = _unique_spans(unique_ids, count)
    tags = text_column("tags", arrays["tags"]) if "tags" in arrays else Spans.nulls(count)
    _check_texts("tag", tags, TAG_TEXT)
    keys = _keys_spans(arrays["keys"]) if "keys" in arrays else Spans.nulls(count)
    named = [(UNIQUE_KEY, unique), (KEYS, keys), (TAGS, tags)]
    for name in property_columns:
        spans = property_column(name, arrays[name])
        _check_texts(f"property {name!r}", spans, ANY_TEXT)
        named.append((name, spans))
    pairs = _checked_pairs(arrays.get("properties"), count)
    present = [(name, spans) for name, spans in named if (spans.sizes >= 0).any()]
    return _Columns(body, unique, keys, tags, present, *pairs)


def _check_names(names: Sequence[str], property_columns: Sequence[str]) -> None:
    known = {*_MESSAGE_COLUMNS, *property_columns}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"column {', '.join(map(repr, unknown))} is neither {', '.join(_MESSAGE_COLUMNS)} nor "
            "named in property_columns; name it there, put it into the body, or drop it"
        )
    missing = [name for name in ("body", *property_columns) if name not in names]
    if missing or len(set(names)) != len(names):
        raise ConfigError(
            f"the table needs each of body and the property columns once; missing: {missing}, "
            f"there are: {list(names)}"
        )
    for name in property_columns:
        if name in _MESSAGE_COLUMNS or name in _RESERVED or not name or set(name) & {"\1", "\2"}:
            raise ConfigError(
                f"property column {name!r} cannot be a property: the name is reserved, empty or "
                "holds a separator; rename the column"
            )
    if len(set(property_columns)) != len(property_columns):
        raise ConfigError(f"property_columns names a column twice: {list(property_columns)}")


def _one_array(column: Any) -> Any:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):  # over 2 GiB in a type with 32-bit offsets
        raise ConfigError("one column has over 2 GiB; send the table in parts")
    return joined


def _unique_spans(unique_ids: Any, count: int) -> Spans:
    if unique_ids is None:
        return Spans.nulls(count)
    if isinstance(unique_ids, bytes):
        unique_ids = np.frombuffer(unique_ids, np.uint8)
        unique_ids = unique_ids.reshape(-1, 32) if len(unique_ids) % 32 == 0 else unique_ids
    if isinstance(unique_ids, np.ndarray):
        width = unique_ids.shape[-1] if unique_ids.ndim == 2 else 0
        data = np.ascontiguousarray(unique_ids).reshape(-1)
        starts = np.arange(len(data) // width if width else 0, dtype=np.int64) * width
        spans = Spans(data, starts, np.full(len(starts), width, np.int64))
    else:
        spans = text_column("unique_ids", _one_array(unique_ids))
    if len(spans) != count:
        raise ConfigError(f"there are {count} rows and {len(spans)} unique ids; give one a row")
    if (spans.sizes < 0).any():
        raise ConfigError("a unique id is null; give one for every row or none at all")
    _check_texts("unique id", spans, KEY_TEXT)
    return spans


def _keys_spans(array: Any) -> Spans:
    """Keys as they are stored, blanks between them; an empty text becomes a null."""
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        keys, rows = list_of_keys(array)
        if (keys.sizes < 0).any():
            row = rows[np.flatnonzero(keys.sizes < 0)[0]]
            raise InvalidMessageError(f"row {row}: a key is null; leave it out of the list")
        _check_texts("key", keys, KEY_TEXT, rows)
        array = pc.binary_join(array, " ")
    spans = text_column("keys", array)
    spans.sizes[spans.sizes == 0] = -1
    _check_texts("keys", spans, ANY_TEXT)
    return spans


def _checked_pairs(array: Any, count: int) -> tuple[Spans, Spans, _Int64s]:
    if array is None:
        return Spans.nulls(0), Spans.nulls(0), np.zeros(count + 1, np.int64)
    names, values, bounds = pairs_column(array)
    if len(names):
        rows = np.repeat(np.arange(count), np.diff(bounds))
        _check_texts("the name of a property", names, ANY_TEXT, rows)
        nulls = np.flatnonzero(values.sizes < 0)
        if len(nulls):
            raise InvalidMessageError(
                f"row {rows[nulls[0]]}: property {names.text(int(nulls[0]))!r} is null; "
                "leave it out of the map"
            )
        _check_texts("the value of a property", values, ANY_TEXT, rows)
        _check_reserved(names, rows)
    return names, values, bounds


def _check_reserved(names: Spans, rows: npt.NDArray[Any]) -> None:
    lengths = np.isin(names.sizes, [len(name) for name in _RESERVED])
    for k in np.flatnonzero(lengths).tolist():
        if names.text(k) in _RESERVED:
            raise InvalidMessageError(
                f"row {rows[k]}: property {names.text(k)} is set by tags, keys or unique ids"
            )


def _check_texts(what: str, spans: Spans, kind: int, rows: npt.NDArray[Any] | None = None) -> None:
    bad = first_bad_text(spans.data, spans.starts, spans.sizes, kind)
    if bad < 0:
        return
    reason = {
        ANY_TEXT: "is empty or holds U+0001 or U+0002, which separate properties",
        KEY_TEXT: "is empty, or holds a blank or U+0001 or U+0002, so it could never be looked up",
        TAG_TEXT: "can never be matched exactly: a tag is not empty, not '*', has no '||', no "
        "blanks around it and neither U+0001 nor U+0002",
    }[kind]
    row = bad if rows is None else rows[bad]
    raise InvalidMessageError(
        f"row {row}: {what} {spans.text(bad)!r} {reason}; change it, or make it null"
    )


def _property_sizes(columns: _Columns) -> _Int64s:
    """The bytes of each record's property string."""
    sizes = np.zeros(len(columns.body), np.int64)
    for name, spans in columns.named:
        around = len(name.encode()) + 2
        sizes += np.where(spans.sizes >= 0, spans.sizes + around, 0)
    if len(columns.pair_names):
        pair_sizes = np.zeros(len(columns.pair_names) + 1, np.int64)
        np.cumsum(columns.pair_names.sizes + columns.pair_values.sizes + 2, out=pair_sizes[1:])
        sizes += np.diff(pair_sizes[columns.pair_bounds])
    return sizes


def _check_limits(body_sizes: _Int64s, property_sizes: _Int64s) -> None:
    for what, sizes, limit in (
        ("a body", body_sizes, BODY_MAX_BYTES),
        ("a property string", property_sizes, PROPERTIES_MAX_BYTES),
    ):
        row = int(sizes.argmax())
        if sizes[row] > limit:
            raise MessageTooLargeError(f"row {row}: {what}", int(sizes[row]), limit)


def _write_block(
    records: npt.NDArray[np.uint8],
    positions: _Int64s,
    block: slice,
    columns: _Columns,
    *,
    property_sizes: _Int64s,
    header: bytes,
    form: TopicForm,
    with_crc: bool,
) -> None:
    body = columns.body
    starts, sizes = body.starts[block], body.sizes[block]
    crcs = np.empty(len(sizes), np.int32)
    crc32_spans(body.data, starts, sizes, crcs)
    cursors = np.empty(len(sizes), np.int64)
    write_records(
        records,
        positions,
        np.frombuffer(header, np.uint8),
        body.data,
        starts,
        sizes,
        crcs,
        np.frombuffer(form.field, np.uint8),
        property_sizes,
        cursors,
    )
    for name, spans in columns.named:
        field = np.frombuffer(name.encode() + b"\x01", np.uint8)
        starts, sizes = spans.starts[block], spans.sizes[block]
        write_property(records, cursors, field, spans.data, starts, sizes)
    if len(columns.pair_names):
        bounds = columns.pair_bounds[block.start : block.stop + 1]
        names, values = columns.pair_names, columns.pair_values
        write_pairs(
            records,
            cursors,
            bounds,
            names.data,
            names.starts,
            names.sizes,
            values.data,
            values.starts,
            values.sizes,
        )
    if with_crc:
        zeros = np.zeros(len(cursors), np.int64)
        write_property(records, cursors, CRC_NAME, CRC_NO_DIGITS, zeros, zeros + len(CRC_NO_DIGITS))
    assert (cursors == positions[1:]).all()


def _hash_keys(columns: _Columns, seed: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    unique, keys = columns.unique, columns.keys
    # A text of s characters has at most (s + 1) / 2 keys; what is not used is never touched.
    room = len(unique) + int(((keys.sizes + 1) // 2).sum())
    hashes, key_records = np.empty(room, np.int32), np.empty(room, np.int32)
    count = hash_record_keys(
        unique.data,
        unique.starts,
        unique.sizes,
        keys.data,
        keys.starts,
        keys.sizes,
        seed,
        hashes,
        key_records,
    )
    return hashes[:count].copy(), key_records[:count].copy()

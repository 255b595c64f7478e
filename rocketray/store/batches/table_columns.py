"""The columns of an Arrow table of messages, checked, as spans: the input of the encoder.

Values that :class:`~rocketray.message.Message` refuses are refused here, with their row. A null is
"absent", and so is an empty ``keys``; a body cannot be null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.base.marks import KEYS, TAGS, UNIQUE_KEY, is_refused, refusal, refused_names
from rocketray.base.quantity import counted
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.kernels.texts import ANY_TEXT, KEY_TEXT, TAG_TEXT, first_bad_text
from rocketray.message import stored_key
from rocketray.store.formats.arrow_spans import match_exactly

from .text_columns import (
    Spans,
    bytes_column,
    list_of_keys,
    pairs_column,
    property_column,
    text_column,
)

_BLANK = 0x20
_Int64s = npt.NDArray[np.int64]
_MESSAGE_COLUMNS = ("body", "tags", "keys", "properties")


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A checked table as spans, one per row."""

    body: Spans
    unique: Spans
    keys: Spans
    tags: Spans
    named: list[tuple[str, Spans]]  # unique key, keys and tags among them, in the order written
    pair_names: Spans
    pair_values: Spans
    pair_bounds: _Int64s

    def property_sizes(self) -> _Int64s:
        """Return the bytes of each record's property string."""
        sizes = np.zeros(len(self.body), np.int64)
        for name, spans in self.named:
            around = len(name.encode()) + 2
            sizes += np.where(spans.sizes >= 0, spans.sizes + around, 0)
        if len(self.pair_names):
            pair_sizes = np.zeros(len(self.pair_names) + 1, np.int64)
            np.cumsum(self.pair_names.sizes + self.pair_values.sizes + 2, out=pair_sizes[1:])
            sizes += np.diff(pair_sizes[self.pair_bounds])
        return sizes


def read_table(
    topic: str, table: Any, unique_ids: Any, property_columns: Sequence[str]
) -> TableColumns:
    """Return the columns of *table*; raise as :class:`~.encoded_table.MeasuredTable`."""
    names = table.schema.names
    check_names(names, property_columns, topic)
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
    pairs = _checked_pairs(arrays.get("properties"), count, topic)
    present = [(name, spans) for name, spans in named if (spans.sizes >= 0).any()]
    return TableColumns(body, unique, keys, tags, present, *pairs)


def check_names(names: Sequence[str], property_columns: Sequence[str], topic: str) -> None:
    """Raise :class:`ConfigError` unless a table with columns of these *names* can be sent."""
    accepted = {*_MESSAGE_COLUMNS, *property_columns}
    unknown = [name for name in names if name not in accepted]
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
        if is_refused(name, topic):
            raise ConfigError(f"invalid property column {name!r}: {refusal(name)}")
        if name in _MESSAGE_COLUMNS or not name or set(name) & {"\1", "\2"}:
            raise ConfigError(
                f"invalid property column {name!r}: the name is reserved, empty or has a "
                "separator; rename the column"
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
        raise ConfigError(
            f"{counted(count, 'row')} and {counted(len(spans), 'unique id')}: give one a row"
        )
    if (spans.sizes < 0).any():
        raise ConfigError("a unique id is null; give one for every row or none at all")
    _check_texts("unique id", spans, KEY_TEXT)
    return spans


def _keys_spans(array: Any) -> Spans:
    """Return keys in stored form, separated by blanks; an empty text becomes a null."""
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        keys, rows = list_of_keys(array)
        if (keys.sizes < 0).any():
            row = rows[np.flatnonzero(keys.sizes < 0)[0]]
            raise InvalidMessageError(f"row {row}: a key is null; leave it out of the list")
        _check_texts("key", keys, ANY_TEXT, rows)
        array = _joined_keys(array, has_blanks=bool((keys.data == _BLANK).any()))
    spans = text_column("keys", array)
    spans.sizes[spans.sizes == 0] = -1
    _check_texts("keys", spans, ANY_TEXT)
    return spans


def _joined_keys(array: Any, *, has_blanks: bool) -> Any:
    """Return lists of keys as texts in stored form."""
    from pyarrow.compute import binary_join, replace_substring  # noqa: PLC0415 - takes 0.1 s

    if has_blanks:
        texts = replace_substring(array.flatten().cast(pa.string()), " ", stored_key(" "))
        sizes = array.value_lengths().fill_null(0).to_numpy()
        bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        array = pa.ListArray.from_arrays(pa.array(bounds), texts)
    return binary_join(array, " ")


def _checked_pairs(array: Any, count: int, topic: str) -> tuple[Spans, Spans, _Int64s]:
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
        _check_marks(names, rows, topic)
    return names, values, bounds


def _check_marks(names: Spans, rows: npt.NDArray[Any], topic: str) -> None:
    found = np.flatnonzero(match_exactly(*names.arrays(), sorted(refused_names(topic))))
    if len(found):
        raise InvalidMessageError(f"row {rows[found[0]]}: {refusal(names.text(int(found[0])))}")


def _check_texts(what: str, spans: Spans, kind: int, rows: npt.NDArray[Any] | None = None) -> None:
    bad = first_bad_text(*spans.arrays(), kind)
    if bad < 0:
        return
    reason = {
        ANY_TEXT: "is empty or has U+0000, or U+0001 or U+0002, which separate properties",
        KEY_TEXT: "is empty, or has a blank or U+0000 to U+0002, so it could never be looked up",
        TAG_TEXT: "can never be matched exactly: a tag is not empty, not '*', has no '||', no "
        "spaces around it, and no U+0000 to U+0002",
    }[kind]
    row = bad if rows is None else rows[bad]
    raise InvalidMessageError(
        f"row {row}: {what} {spans.text(bad)!r} {reason}; change it, or make it null"
    )

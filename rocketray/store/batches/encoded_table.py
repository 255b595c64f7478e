"""Encoding of an Arrow table to a batch of records, without a Python object per message.

The table's columns: ``body`` (binary or string), and optionally ``tags`` (string), ``keys``
(string with blanks between keys, or list of string), ``properties`` (map of string to string), and
those that the caller names as property columns. Any other column is an error, so no data is lost
silently. For invalid values see table_columns.py. The order of a record's properties is that of
:class:`~rocketray.message.Message`: unique key, keys, tags, then the others.

A table is measured first, and then written: to memory of its own, or directly to its target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rocketray.base.names import check_topic
from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.kernels.encode import write_pairs, write_property, write_records
from rocketray.kernels.hashing import crc32_spans, hash_spans
from rocketray.kernels.layout import SYS_FLAG
from rocketray.kernels.property_crc import CRC_PROPERTY_BYTES
from rocketray.kernels.texts import hash_record_keys
from rocketray.message import BODY_MAX_BYTES, PROPERTIES_MAX_BYTES
from rocketray.store.formats.property_crc import CRC_NAME, CRC_NO_DIGITS

from .batch_form import (
    FRAME_HEADER,
    EncodedBatch,
    RecordOptions,
    born_host_form,
    record_header,
    topic_form,
    write_frame_header,
)
from .table_columns import TableColumns, read_table
from .text_columns import compressed_column

_Bytes = npt.NDArray[np.uint8]
_Int32s = npt.NDArray[np.int32]
_Int64s = npt.NDArray[np.int64]
_PLAIN = RecordOptions()
_BLOCK_ROWS = 4096  # records of a block stay in the cache from one column to the next


class MeasuredTable:
    """A checked table, with all data of its records except their bytes.

    ``sizes`` int32[n], ``tags_codes`` int64[n], ``key_hashes`` and ``key_records`` int32[k] are as
    in an :class:`~.batch_form.EncodedBatch`; ``record_bytes`` is the size of all records.
    """

    def __init__(
        self,
        topic: str,
        table: Any,
        *,
        born_host: tuple[str, int],
        born_timestamp_ms: int,
        unique_ids: _Bytes | bytes | Any | None = None,
        property_columns: Sequence[str] = (),
        options: RecordOptions = _PLAIN,
    ) -> None:
        """Measure a ``pyarrow.RecordBatch`` or ``pyarrow.Table``, one message per row.

        ``unique_ids``: one id per row, as an Arrow string array, as ``uint8[n, width]`` of ASCII,
        or as bytes of 32 characters each. ``property_columns`` become properties of the same names,
        absent where null.

        Raises:
            ConfigError: a column is missing, unknown or of an unsupported type.
            InvalidMessageError: there are no rows, or :class:`Message` would refuse a row.
            MessageTooLargeError: a body or a property string is over its limit.
        """
        form = topic_form(check_topic(topic))
        if len(table) == 0:
            raise InvalidMessageError("a batch has no messages; give a table with at least one row")
        columns = read_table(topic, table, unique_ids, property_columns)
        property_sizes = columns.property_sizes()
        _check_limits(columns.body.sizes, property_sizes)
        self._crc_sizes = np.full(len(property_sizes), -1, np.int64)  # of the digits; none at first
        if options.properties_crc:
            has_room = property_sizes + CRC_PROPERTY_BYTES <= PROPERTIES_MAX_BYTES
            property_sizes[has_room] += CRC_PROPERTY_BYTES
            self._crc_sizes[has_room] = len(CRC_NO_DIGITS)
        self._compressed = np.empty(0, np.int64)
        if options.compression is not None:
            body, self._compressed = compressed_column(columns.body, options.compression)
            columns = replace(columns, body=body)
        host = born_host_form(*born_host)
        self._sys_flag = host.sys_flag | options.every_sys_flag
        no_host = bytes(options.store_host_bytes)
        self._header = record_header(len(host.encoded), len(no_host)).pack(
            0, form.magic, 0, 0, 0, 0, 0, self._sys_flag,
            born_timestamp_ms, host.encoded, 0, no_host, 0, 0, 0,
        )  # fmt: skip
        self._topic_field = form.field
        self._columns, self._property_sizes, self._options = columns, property_sizes, options
        sizes = columns.body.sizes + property_sizes + (len(self._header) + len(form.field) + 2)
        self._positions = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=self._positions[1:])
        self.record_bytes = int(self._positions[-1])
        self.sizes: _Int32s = sizes.astype(np.int32)
        codes = np.empty(len(sizes), np.int32)
        hash_spans(*columns.tags.arrays(), 0, codes)
        self.tags_codes: _Int64s = codes.astype(np.int64)
        self.key_hashes, self.key_records = _hash_keys(columns, form.key_seed)

    def __len__(self) -> int:
        return len(self.sizes)

    def write_records(self, out: _Bytes) -> None:
        """Write the records, back to back, to *out* uint8[record_bytes]."""
        assert len(out) == self.record_bytes
        for first in range(0, len(self), _BLOCK_ROWS):
            self._write_block(out, slice(first, min(first + _BLOCK_ROWS, len(self))))
        if self._options.compression is not None:
            flags = (self._sys_flag | self._options.compression.sys_flag).to_bytes(4, "big")
            starts = self._positions[:-1][self._compressed, np.newaxis]
            out[starts + np.arange(SYS_FLAG, SYS_FLAG + 4)] = np.frombuffer(flags, np.uint8)

    def _write_block(self, out: _Bytes, block: slice) -> None:
        columns = self._columns
        body = columns.body
        positions = self._positions[block.start : block.stop + 1]
        starts, sizes = body.starts[block], body.sizes[block]
        crcs = np.empty(len(sizes), np.int32)
        crc32_spans(body.data, starts, sizes, crcs)
        cursors = np.empty(len(sizes), np.int64)
        write_records(
            out,
            positions,
            np.frombuffer(self._header, np.uint8),
            body.data,
            starts,
            sizes,
            crcs,
            np.frombuffer(self._topic_field, np.uint8),
            self._property_sizes[block],
            cursors,
        )
        for name, spans in columns.named:
            field = np.frombuffer(name.encode() + b"\x01", np.uint8)
            starts, sizes = spans.starts[block], spans.sizes[block]
            write_property(out, cursors, field, spans.data, starts, sizes)
        if len(columns.pair_names):
            bounds = columns.pair_bounds[block.start : block.stop + 1]
            names, values = columns.pair_names.arrays(), columns.pair_values.arrays()
            write_pairs(out, cursors, bounds, *names, *values)
        if self._options.properties_crc:
            starts = np.zeros(len(cursors), np.int64)
            write_property(out, cursors, CRC_NAME, CRC_NO_DIGITS, starts, self._crc_sizes[block])
        # The sizes were measured by other code: a difference would be a record that no reader
        # takes.
        assert (cursors == positions[1:]).all()

    @property
    def packed_bytes(self) -> int:
        return FRAME_HEADER.size + 12 * len(self) + 8 * len(self.key_hashes) + self.record_bytes

    def pack_into(self, out: _Bytes) -> None:
        """Write the batch as one frame to *out* uint8[packed_bytes]; see encoded_batch.py."""
        assert len(out) == self.packed_bytes
        write_frame_header(out, len(self), len(self.key_hashes), self.record_bytes)
        at = FRAME_HEADER.size
        for column in (self.tags_codes, self.sizes, self.key_hashes, self.key_records):
            out[at : at + column.nbytes] = column.view(np.uint8)
            at += column.nbytes
        self.write_records(out[at:])

    def encode(self) -> EncodedBatch:
        records = np.empty(self.record_bytes, np.uint8)
        self.write_records(records)
        return EncodedBatch(records, self.sizes, self.tags_codes, self.key_hashes, self.key_records)


def _check_limits(body_sizes: _Int64s, property_sizes: _Int64s) -> None:
    for what, sizes, limit in (
        ("a body", body_sizes, BODY_MAX_BYTES),
        ("a property string", property_sizes, PROPERTIES_MAX_BYTES),
    ):
        row = int(sizes.argmax())
        if sizes[row] > limit:
            raise MessageTooLargeError(f"row {row}: {what}", int(sizes[row]), limit)


def _hash_keys(columns: TableColumns, seed: int) -> tuple[_Int32s, _Int32s]:
    unique, keys = columns.unique, columns.keys
    # A text of s characters has at most (s + 1) / 2 keys; unused memory is never touched.
    room = len(unique) + int(((keys.sizes + 1) // 2).sum())
    hashes, key_records = np.empty(room, np.int32), np.empty(room, np.int32)
    count = hash_record_keys(*unique.arrays(), *keys.arrays(), seed, hashes, key_records)
    return hashes[:count].copy(), key_records[:count].copy()

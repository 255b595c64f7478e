"""Records of another store, converted to batches for one of ours.

- A record keeps all fields of its message: body as stored, flag, sysflag, born time and host, store
  time, reconsume times, transaction offset and properties, with the unique key, keys and tag.
- The fields of its place become ours: queue offset, physical offset and store host. The former
  place is kept as the property ``IMPORTED_OFFSET_ID``, which is indexed.
- The CRC property covers the place too, so each record gets a new one.
"""

from __future__ import annotations

import struct

from rocketray.base.property_string import decode_text
from rocketray.errors import InvalidMessageError, MessageTooLargeError
from rocketray.hashing import tags_code
from rocketray.kernels.layout import BORN_HOST, HOST_BYTES, SYS_FLAG
from rocketray.kernels.property_crc import CRC_PROPERTY_NAME
from rocketray.message import IMPORTED_OFFSET_ID, KEYS, PROPERTIES_MAX_BYTES, TAGS, UNIQUE_KEY
from rocketray.store.batches.batch_form import EncodedBatch, RecordCollector
from rocketray.store.formats.property_crc import has_crc_property, with_crc_property
from rocketray.store.formats.sys_flag import STORE_IPV6, TRANSACTION

from .import_source import SourceRecord

_NAME_END, _PAIR_END = b"\x01", b"\x02"
_SECTOR = bytes(512)  # what log_blocks.py takes for a sector that was never written
_IMPORTED = IMPORTED_OFFSET_ID.encode()
_MADE_ANEW = {_IMPORTED, CRC_PROPERTY_NAME}  # what this import writes itself
_UNIQUE, _KEYS, _TAGS = UNIQUE_KEY.encode(), KEYS.encode(), TAGS.encode()
_SIZE, _TIME, _LENGTH = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">h")


class ImportBatch:
    """The collected records of one queue; ``size`` is in bytes."""

    def __init__(self, topic: str) -> None:
        self._records = RecordCollector(topic)
        self._transaction = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size(self) -> int:
        """The bytes of the records."""
        return self._records.size

    def suits(self, source: SourceRecord) -> bool:
        """Return whether a record fits this batch: all are committed transactions, or none is."""
        return not len(self._records) or self._transaction == source.fields.sys_flag & TRANSACTION

    def add(self, source: SourceRecord, store_timestamp_ms: int) -> None:
        """Add a record that suits the batch, stored at *store_timestamp_ms*.

        Raises:
            MessageTooLargeError: its properties leave no room for its former place.
            InvalidMessageError: they leave none for a CRC, and recovery would take zeros in them
                for a sector that a power failure took.
        """
        fields = source.fields
        end = fields.born_host_start - BORN_HOST + fields.size
        kept, named = _read_properties(bytes(source.buffer[fields.properties_start : end]))
        offset_id = source.offset_id.encode()
        text = b"".join((*kept, _IMPORTED, _NAME_END, offset_id, _PAIR_END))
        if len(text) > PROPERTIES_MAX_BYTES:
            raise MessageTooLargeError(
                f"topic {source.topic!r}, physical offset {source.physical_offset}: a property "
                "string with the old offset id",
                len(text),
                PROPERTIES_MAX_BYTES,
            )
        with_crc = with_crc_property(text)
        if not has_crc_property(with_crc) and _SECTOR in text:
            raise InvalidMessageError(
                f"topic {source.topic!r}, physical offset {source.physical_offset}: its properties "
                f"hold {len(_SECTOR)} zero bytes in a row, and at {len(text)} bytes they leave no "
                "room for a CRC that tells these from damage; import without it: --skip-damaged"
            )
        unique, keys = named.get(_UNIQUE, b""), named.get(_KEYS, b"").split(b" ")
        self._records.add(
            _record(source, store_timestamp_ms, with_crc),
            tags_code(decode_text(named.get(_TAGS, b""))),
            (*map(_as_read, (unique, *keys)), offset_id),
        )
        self._transaction = fields.sys_flag & TRANSACTION

    def encode(self) -> EncodedBatch:
        """Return the batch, which keeps the store times of its records."""
        return self._records.encode(keeps_store_times=True)


def _as_read(key: bytes) -> bytes:
    """Return the UTF-8 of a key as readers decode it, which is the form that the index hashes."""
    return key if key.isascii() else decode_text(key).encode()


def _read_properties(text: bytes) -> tuple[list[bytes], dict[bytes, bytes]]:
    """Return the pairs to keep, each with its end, and the effective values, by name."""
    kept: list[bytes] = []
    named: dict[bytes, bytes] = {}
    for pair in text.split(_PAIR_END):
        name, separator, value = pair.partition(_NAME_END)
        if pair and name not in _MADE_ANEW:
            kept += (pair, _PAIR_END)
        if separator and name and value:
            named[name] = value
    return kept, named


def _record(source: SourceRecord, store_timestamp_ms: int, properties: bytes) -> bytes:
    """Return the record with an IPv4 store host, *store_timestamp_ms* and *properties*."""
    fields, buffer = source.fields, source.buffer
    start = fields.born_host_start - BORN_HOST
    record = bytearray().join(
        (
            bytes(_SIZE.size),
            buffer[start + _SIZE.size : fields.store_host_start - _TIME.size],
            _TIME.pack(store_timestamp_ms),
            bytes(HOST_BYTES),
            buffer[fields.store_host_end : fields.topic_end],
            _LENGTH.pack(len(properties)),
            properties,
        )
    )
    _SIZE.pack_into(record, 0, len(record))
    _SIZE.pack_into(record, SYS_FLAG, fields.sys_flag & ~STORE_IPV6)
    return bytes(record)

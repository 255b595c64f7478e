"""Messages that are slices of their records are those that are decoded one by one."""

from __future__ import annotations

import pickle
from copy import copy
from dataclasses import fields, replace
from itertools import accumulate
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.models.records import i32, i64, u8

from rocketray.base.property_string import encoded_values
from rocketray.errors import CorruptRecordError, MessageTooLargeError
from rocketray.kernels.property_crc import CRC_PROPERTY_NAME
from rocketray.message import StoredMessage
from rocketray.store.formats.compression import Compression
from rocketray.store.formats.record import RecordValues, encode_record
from rocketray.store.reading.record_spans import (
    EntryColumns,
    RecordReader,
    SegmentSpans,
    property_texts,
)
from rocketray.topology.values.wire import KEY_PROPERTIES

TOPIC = "Trade"
USUAL = [b"__SHARDINGKEY\x01s\x02", b"FAUST_KEY\x01empty\x02"]
USUAL += [b"TAGS\x01pay\x02", b"KEYS\x01a b\x02", b"region\x01eu\x02", b"region\x01us\x02"]
UNUSUAL = [
    *(
        b"no value\x01\x02",
        b"\x01no name\x02",
        b"no pair\x02",
        b"\x02",
        b"a\x01b\x01c\x02",
        b"\x01",
    ),
    b"no value, no end\x01",
    *(b"not\xff\x01UTF-8\xed\xa0\x80\x02", b"no end\x01of a pair", b"no end", b""),
    CRC_PROPERTY_NAME + b"\x01an earlier one\x02",
    b"long\x01" + b"x" * 100 + b"\x02",
]
PROPERTIES = st.lists(st.sampled_from(USUAL) | st.sampled_from(UNUSUAL), max_size=5).map(b"".join)
HOSTS = st.tuples(st.sampled_from(["1.2.3.4", "fd00::1:2"]), st.integers(0, 65_535))
BODIES = st.binary(max_size=40) | st.just(b"z" * 5000)
ZLIB = Compression("zlib", 0)
NAMES = [each.name for each in fields(StoredMessage)]


class Segment(RecordReader):
    """A reader of records that lie back to back."""

    topic, queue_id = TOPIC, 1

    def __init__(self, content: bytes) -> None:
        self._content = content

    def records(self, entries: EntryColumns) -> list[SegmentSpans]:
        positions = entries.physical_offsets
        return [self._take_apart(u8(self._content), "log", positions, entries)]


@st.composite
def values(draw: st.DrawFn) -> RecordValues:
    body = draw(BODIES)
    is_compressed = draw(st.booleans()) and len(body) > 1000
    return RecordValues(
        draw(st.sampled_from([TOPIC, TOPIC, TOPIC, "Other", "T" * 130])),
        ZLIB.compress(body) if is_compressed else body,
        draw(PROPERTIES),
        queue_id=1,
        born_timestamp_ms=draw(st.integers(0, 2**40)),
        born_host=draw(HOSTS),
        store_timestamp_ms=draw(st.integers(0, 2**40)),
        store_host=draw(HOSTS),
        flag=draw(st.integers(-5, 5)),
        sys_flag=ZLIB.sys_flag if is_compressed else 0,
        reconsume_times=draw(st.integers(0, 3)),
        prepared_transaction_offset=draw(st.integers(0, 9)),
    )


def encoded(given_values: list[RecordValues], with_crc: list[bool]) -> tuple[bytes, EntryColumns]:
    """The records back to back, and the entries of a queue that has them."""
    found: list[bytes] = []
    for number, (each, has_crc) in enumerate(zip(given_values, with_crc, strict=False)):
        there = replace(each, queue_offset=number, physical_offset=sum(map(len, found)))
        found.append(encode_record(there, properties_crc=has_crc))
    sizes = [len(record) for record in found]
    starts = [*accumulate(sizes, initial=0)][:-1]
    entries = EntryColumns(i64(starts), i32(sizes), i64([0] * len(sizes)), i64(range(len(sizes))))
    return b"".join(found), entries


def one_by_one(reader: RecordReader, entries: EntryColumns) -> list[StoredMessage]:
    """The slow twin: each record decoded as a whole."""
    return [part.message(row) for part in reader.records(entries) for row in range(len(part))]


def outcome(read: Any, *arguments: Any) -> list[StoredMessage] | None:
    """What it returns; None if a record is refused."""
    try:
        found: list[StoredMessage] = read(*arguments)
    except (CorruptRecordError, MessageTooLargeError):
        return None
    return found


@settings(deadline=None, max_examples=300)
@given(
    st.lists(values(), min_size=1, max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.permutations(NAMES),
    st.data(),
)
def test_sliced_messages_are_those_decoded_one_by_one(
    given_values: list[RecordValues],
    with_crc: list[bool],
    order: list[str],
    data: st.DataObject,
) -> None:
    content, entries = encoded(given_values, with_crc)
    if data.draw(st.booleans()):
        damaged = bytearray(content)
        damaged[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        content = bytes(damaged)
    reader = Segment(content)
    expected = outcome(one_by_one, reader, entries)
    found = outcome(reader.messages, entries)
    if expected is None or found is None:
        assert found == expected
        return
    for sliced, decoded in zip(found, expected, strict=True):
        assert [getattr(sliced, name) for name in order] == [getattr(decoded, n) for n in order]
        assert sliced == decoded
        assert list(sliced.properties) == list(decoded.properties)
    again = reader.messages(entries)
    assert pickle.loads(pickle.dumps(again)) == expected
    assert [copy(one) for one in reader.messages(entries)] == expected
    assert [replace(one, flag=9).flag for one in reader.messages(entries)] == [9] * len(expected)
    assert repr(reader.messages(entries)) == repr(expected)
    assert not hasattr(found[0], "no_field")
    columns_agree(reader, entries, expected)


def columns_agree(
    reader: RecordReader, entries: EntryColumns, expected: list[StoredMessage]
) -> None:
    """What is read of all messages at once, for events, is what the messages have."""
    of_each = [one.properties for one in expected]
    assert [encoded_values(one) for one in reader.property_strings(entries)] == [
        {name: text.encode() for name, text in properties.items()} for properties in of_each
    ]
    keys = [[properties.get(name) for name in KEY_PROPERTIES] for properties in of_each]
    found = property_texts(reader, entries, KEY_PROPERTIES)
    assert [*zip(*found, strict=True)] == [*map(tuple, keys)]

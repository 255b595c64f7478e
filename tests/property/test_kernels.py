"""Every kernel does what its oracle does, on random and on damaged input."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.find import oracle_of
from oracles.property_crc import crc_of, has_crc
from support.models.records import RawRecord, back_to_back, i32, i64, u8

from rocketray.kernels import (
    append,
    consume_queue,
    encode,
    futex,
    hashing,
    index,
    properties,
    property_crc,
    spans,
    texts,
)
from rocketray.kernels.records import find_property_strings, find_record_properties
from rocketray.kernels.spans import Field

few = settings(max_examples=60, deadline=None)
CRC = b"__CRC32#\x010123456789\x02"

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
# Small alphabets, so that separators, equal names and equal tags come up often.
property_text = st.binary(max_size=200).map(
    lambda raw: bytes(b"\x01\x02abT|* "[b % 8] for b in raw)
)
utf8 = st.text(max_size=40).map(str.encode)
# Parts of characters, surrogates in three bytes and what no character begins with, in any order.
broken_utf8 = st.lists(
    st.one_of(
        st.sampled_from([b"\xed\xa0\x80", b"\xed\xbf", b"\xe0\x80", b"\xf4\x90", b"\xf0\x9f\x98"]),
        st.sampled_from(
            [b"\xc0", b"\xc3", b"\xe4", b"\xf1", b"\xff", b"\x80", b"\xbf", b"abcdefgh"]
        ),
        st.characters(exclude_categories=["Cs"]).map(str.encode),
        st.binary(max_size=3),
    ),
    max_size=12,
).map(b"".join)
records = st.builds(
    RawRecord,
    body=st.binary(max_size=80),
    topic=st.binary(min_size=1, max_size=127),
    properties=property_text,
    is_v2=st.booleans(),
    born_ipv6=st.booleans(),
    store_ipv6=st.booleans(),
    store_timestamp_ms=int64,
)


def both(kernel: Any, *arguments: Any) -> Any:
    """Call kernel and oracle with arguments of their own: they return, and leave behind, the same."""
    oracle = oracle_of(kernel)
    theirs = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    result = kernel(*arguments)
    assert oracle(*theirs) == result
    for ours, other in zip(arguments, theirs, strict=True):
        if isinstance(ours, np.ndarray):
            np.testing.assert_array_equal(ours, other)
    return result


@few
@given(st.lists(records, min_size=1, max_size=5), st.data())
def test_records_are_measured_alike(several: list[RawRecord], data: st.DataObject) -> None:
    raw = bytearray()
    offsets, sizes = [], []
    for one in several:
        encoded = RawRecord(**{**vars(one), "physical_offset": len(raw)}).encode()
        offsets.append(len(raw))
        sizes.append(len(encoded))
        raw += encoded
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=3)):
        raw[at] = data.draw(st.integers(0, 255))
    fields = np.zeros((len(Field), len(sizes)), np.int64)
    bad = both(
        spans.measure_spans,
        *(u8(bytes(raw)), i64(offsets), i64(offsets), i32(sizes), fields),
    )
    assert -1 <= bad < len(sizes)


@few
@given(st.lists(records, min_size=1, max_size=5), st.data())
def test_batches_are_appended_or_refused_alike(
    several: list[RawRecord], data: st.DataObject
) -> None:
    if data.draw(st.booleans()):  # of one kind, as a batch that is taken must be
        several = [replace(one, store_ipv6=several[0].store_ipv6) for one in several]
    endings = [data.draw(st.sampled_from([b"", CRC])) for _ in several]
    several = [
        replace(one, properties=one.properties + ending)
        for one, ending in zip(several, endings, strict=True)
    ]
    raw = bytearray().join(one.encode() for one in several)
    sizes = [len(one.encode()) for one in several]
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=2)):
        raw[at] = data.draw(st.integers(0, 255))
    segment = np.zeros(len(raw) + 20, np.uint8)
    position = data.draw(st.integers(-1, 21))
    host = u8(bytes(range(data.draw(st.sampled_from([8, 20, 20, 9])))))
    time = data.draw(st.sampled_from((4, append.KEEP_STORE_TIMES)))
    transaction = data.draw(st.sampled_from([0, 0, 0, 4, 8, 12]))
    arguments = (segment, position, u8(bytes(raw)), i32(sizes), 1, 2, 3, time, host, transaction)
    end = both(append.append_records, *arguments)
    assert end >= 0 or not segment.any()


@few
@given(
    st.lists(
        st.sampled_from([b"__CRC32#", b"\1", b"\2", b"0", b"0123456789", b"x", b"\0\x14"])
        | st.just(b"\2__CRC32#\x011234567890\2")
        | st.just(b"\0\x14__CRC32#\x01000000000/\2"),
        max_size=9,
    ).map(b"".join),
    st.data(),
)
def test_crc_properties_are_read_alike(raw: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=3)))
    bounds = [0, *cuts, len(raw)]
    starts, sizes = i64(bounds[:-1]), i64([b - a for a, b in pairwise(bounds)])
    property_sizes = i64([data.draw(st.integers(0, size)) for size in sizes.tolist()])
    both(
        property_crc.check_property_crcs,
        *(u8(raw), starts + sizes, sizes, property_sizes, np.zeros(len(starts), np.bool_)),
    )


@few
@given(st.lists(st.tuples(int32, int64), max_size=8), st.integers(-2, 9), st.integers(-2, 9))
def test_queue_entries_are_written_alike(
    entries: list[tuple[int, int]], first: int, count: int
) -> None:
    sizes, codes = i32([size for size, _ in entries]), i64([code for _, code in entries])
    segment = np.zeros(130, np.uint8)
    both(
        append.append_queue_entries,
        *(segment, 10, sizes, codes, 1000, first, count),
    )


@few
@given(st.lists(st.integers(80, 120), max_size=5), st.lists(st.integers(-1, 5), max_size=5))
def test_batches_are_checked_alike(sizes: list[int], key_records: list[int]) -> None:
    both(
        append.is_whole_batch,
        *(i32(sizes), i32(key_records), sum(sizes)),
    )


@few
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=8),
    st.lists(st.integers(-2, 9), max_size=9),
    st.integers(0, 9),
)
def test_changes_are_taken_alike(
    numbers: list[tuple[int, int]], watched: list[int], room: int
) -> None:
    now, before = i64([new for new, _ in numbers]), i64([old for _, old in numbers])
    both(futex.take_changes, now, i64(watched), before, np.zeros(room, np.int64))


@few
@given(
    st.lists(st.tuples(st.integers(0, 9), int64, st.integers(0, 2**62)), max_size=12),
    st.integers(-1, 3),
    st.binary(max_size=56),
)
def test_keys_are_put_alike(keys: list[tuple[int, int, int]], first: int, beginning: bytes) -> None:
    file = np.zeros(40 + 4 * 4 + 6 * 20, np.uint8)
    if len(beginning) == 56:
        file[:56] = u8(beginning)
    hashes = i32([key for key, _, _ in keys])
    offsets, times = i64([offset for _, offset, _ in keys]), i64([time for _, _, time in keys])
    for start in (first, 0):
        both(index.put_keys, file, 4, 6, hashes, offsets, times, start)


@few
@given(
    st.lists(st.tuples(int64, int32, st.one_of(int64, st.integers(-3, 3))), max_size=40),
    st.lists(st.one_of(int32, st.integers(-3, 3)), max_size=12),
    st.data(),
)
def test_queues_are_scanned_alike(
    entries: list[tuple[int, int, int]], codes: list[int], data: st.DataObject
) -> None:
    raw = np.array(entries, [("offset", ">i8"), ("size", ">i4"), ("code", ">i8")]).view(np.uint8)
    first = data.draw(st.integers(0, len(entries)))
    count = data.draw(st.integers(0, len(entries) - first))
    ours, theirs = np.zeros(count, np.int64), np.zeros(count, np.int64)
    found = consume_queue.match_tags(raw, first, count, i32(codes), ours)
    assert oracle_of(consume_queue.match_tags)(raw, first, count, i32(codes), theirs) == found
    np.testing.assert_array_equal(ours[:found], theirs[:found])
    both(
        consume_queue.pick_entries,
        *(raw, ours, found, 7, *entry_columns(found)),
    )
    both(
        consume_queue.read_entries,
        *(raw, first, count, 7, *entry_columns(50), 3),
    )


def entry_columns(count: int) -> list[npt.NDArray[Any]]:
    return [np.zeros(count, dtype) for dtype in (np.int64, np.int32, np.int64, np.int64)]


@few
@given(st.lists(st.one_of(st.none(), utf8, broken_utf8), max_size=6), int32)
def test_texts_are_hashed_alike(several: list[bytes | None], seed: int) -> None:
    data, starts, sizes = back_to_back(several)
    both(hashing.hash_spans, data, starts, sizes, seed, np.zeros(len(sizes), np.int32))
    both(
        hashing.crc32_spans,
        *(data, starts, sizes, np.zeros(len(sizes), np.int32)),
    )
    joined = u8(b"".join((text or b"").replace(b"\2", b"") + b"\2" for text in several))
    both(
        hashing.separated_key_hashes,
        *(joined, seed, np.zeros(4, np.int32)),
    )


@few
@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_properties_of_records_are_found_alike(
    several: list[RawRecord], data: st.DataObject
) -> None:
    raw = bytearray()
    offsets, sizes = [], []
    for one in several:
        properties = one.properties + data.draw(st.sampled_from([b"", CRC]))
        changes = {"physical_offset": 1000 + len(raw), "properties": properties}
        encoded = RawRecord(**{**vars(one), **changes}).encode()
        if has_crc(encoded, len(properties)) and data.draw(st.booleans()):
            encoded = encoded[:-20] + crc_of(encoded)
        offsets.append(1000 + len(raw))
        sizes.append(len(encoded))
        raw += encoded
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=1)):
        raw[place] = data.draw(st.integers(0, 255))
    queue_offsets = data.draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=4, max_size=4))
    at, length = np.zeros((2, 2, len(sizes)), np.int64)
    count = both(
        find_record_properties,
        *(u8(bytes(raw)), 1000, i64(offsets), i32(sizes), i64(queue_offsets[: len(sizes)])),
        *(data.draw(st.integers(0, 1)), 0, u8(b"abT"), i64([0, 1, 3]), at, length),
    )
    strings = np.zeros((2, len(sizes)), np.int64)
    not_whole = both(
        find_property_strings,
        *(u8(bytes(raw)), i32(sizes), *strings),
    )
    fields = np.zeros((len(Field), len(sizes)), np.int64)
    bad = spans.measure_spans(u8(bytes(raw)), i64(offsets) - 1000, i64(offsets), i32(sizes), fields)
    assert 0 <= count <= (len(sizes) if bad < 0 else bad)
    if bad < 0:
        assert not_whole < 0
        expected = fields[[Field.PROPERTIES_START, Field.PROPERTIES_SIZE]]
        np.testing.assert_array_equal(strings, expected)


@few
@given(st.lists(property_text, max_size=5), st.lists(property_text, min_size=1, max_size=4))
def test_properties_are_found_alike(strings: list[bytes], names: list[bytes]) -> None:
    segment, starts, sizes = back_to_back(strings)
    names = list(dict.fromkeys([*names, b"a", b"ab", b"T"]))
    joined, bounds = u8(b"".join(names)), np.cumsum([0, *map(len, names)])
    at, length = np.zeros((2, len(names), len(strings)), np.int64)
    both(
        properties.find_properties,
        *(segment, starts, sizes, joined, bounds, at, length),
    )
    for k in range(len(names)):
        both(
            properties.match_values,
            *(segment, at[k], length[k], joined, bounds, np.zeros(len(strings), np.bool_)),
        )
    pair_bounds, pairs = np.zeros(len(strings) + 1, np.int32), np.zeros((4, 300), np.int64)
    both(
        properties.list_pairs,
        *(segment, starts, sizes, pair_bounds, pairs),
    )
    both(properties.end_pairs, segment, starts, sizes, np.zeros(len(strings), np.int64))


@few
@given(st.lists(st.one_of(st.none(), st.binary(max_size=300)), max_size=8))
def test_spans_are_gathered_alike(values: list[bytes | None]) -> None:
    segment, starts, sizes = back_to_back(values)
    total, _ = both(spans.sum_sizes, sizes)
    offsets, data = np.zeros(len(sizes) + 1, np.int32), np.zeros(total, np.uint8)
    both(spans.gather_spans, segment, starts, sizes, offsets, data)
    both(spans.is_ascii, data, total)


@few
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=9), st.integers(1, 999))
def test_segments_end_alike(offsets: list[int], segment_bytes: int) -> None:
    for first in range(len(offsets)):
        both(
            spans.end_of_segment,
            *(i64(offsets), segment_bytes, first),
        )


@few
@given(st.lists(st.tuples(st.sampled_from([8, 20]), st.integers(0, 2**63 - 1)), max_size=5))
def test_offset_ids_are_written_alike(several: list[tuple[int, int]]) -> None:
    hosts = i64([size for size, _ in several])
    data, offsets = np.zeros(56 * len(several), np.uint8), np.zeros(len(several) + 1, np.int32)
    both(
        spans.write_offset_ids,
        *(u8(bytes(range(200))), np.cumsum(hosts) - hosts, hosts),
        *(i64([offset for _, offset in several]), offsets, data),
    )


@few
@given(st.lists(st.one_of(st.none(), property_text), max_size=6))
def test_texts_are_refused_alike(several: list[bytes | None]) -> None:
    for kind in (texts.ANY_TEXT, texts.KEY_TEXT, texts.TAG_TEXT):
        both(texts.first_bad_text, *back_to_back(several), kind)


@few
@given(
    st.lists(st.tuples(st.one_of(st.none(), utf8), st.one_of(st.none(), utf8)), max_size=5), int32
)
def test_keys_of_records_are_hashed_alike(
    several: list[tuple[bytes | None, bytes | None]], seed: int
) -> None:
    def clean(text: bytes | None) -> bytes | None:
        return None if text is None else text.replace(b"\2", b"")

    unique = back_to_back([None if one is None else clean(one) or b"u" for one, _ in several])
    keys = back_to_back([clean(key) for _, key in several])
    out: tuple[npt.NDArray[np.int32], ...] = (np.zeros(300, np.int32), np.zeros(300, np.int32))
    both(texts.hash_record_keys, *unique, *keys, seed, *out)


@few
@given(
    st.lists(
        st.tuples(
            st.binary(max_size=300),
            st.one_of(st.none(), st.binary(max_size=40)),
            st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=300)), max_size=3),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_records_are_written_alike(
    several: list[tuple[bytes, bytes | None, list[tuple[bytes, bytes]]]],
) -> None:
    name = b"name\x01"
    bodies = back_to_back([body for body, _, _ in several])
    values = back_to_back([value for _, value, _ in several])
    pairs = [pair for _, _, of_one in several for pair in of_one]
    pair_bounds = np.cumsum([0, *[len(of_one) for _, _, of_one in several]])
    sizes = i64(
        [
            (0 if value is None else len(name) + len(value) + 1)
            + sum(len(a) + len(b) + 2 for a, b in of_one)
            for _, value, of_one in several
        ]
    )
    header, topic = u8(bytes(range(88))), u8(b"\x05Trade")
    positions = np.zeros(len(several) + 1, np.int64)
    np.cumsum(bodies[2] + sizes + 88 + 6 + 2, out=positions[1:])
    out, cursors = np.zeros(positions[-1], np.uint8), np.zeros(len(several), np.int64)
    crcs = i32(range(len(several)))
    both(
        encode.write_records,
        *(out, positions, header, *bodies, crcs, topic, sizes, cursors),
    )
    both(
        encode.write_property,
        *(out, cursors, u8(name), *values),
    )
    both(
        encode.write_pairs,
        *(out, cursors, pair_bounds, *back_to_back([a for a, _ in pairs])),
        *back_to_back([b for _, b in pairs]),
    )
    assert cursors.tolist() == positions[1:].tolist()

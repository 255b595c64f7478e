from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from support.models.records import GOLDEN_V1, RawRecord, i32, i64, u8

from rocketray.kernels.append import append_queue_entries, append_records, is_whole_batch

STORE_HOST = u8(bytes.fromhex("0a00000100002a9f"))


def append(
    segment: npt.NDArray[np.uint8],
    position: int,
    records: bytes,
    sizes: Sequence[int],
    *,
    store_host: npt.NDArray[np.uint8] = STORE_HOST,
    transaction: int = 0,
) -> int:
    return append_records(
        segment,
        position,
        u8(records),
        i32(sizes),
        3,
        42,
        1000,
        1_700_000_000_123,
        store_host,
        transaction,
    )


def test_append_makes_of_a_producers_record_the_bytes_that_rocketmq_wrote() -> None:
    unpatched = bytearray(GOLDEN_V1)
    for start, size in ((12, 4), (20, 8), (28, 8), (56, 8), (64, 8)):
        unpatched[start : start + size] = bytes(size)
    segment = np.zeros(200, np.uint8)
    assert append(segment, 10, bytes(unpatched), [126]) == 136
    assert segment[10:136].tobytes() == GOLDEN_V1
    assert not segment[:10].any()
    assert not segment[136:].any()


def test_offsets_grow_over_a_batch_and_an_ipv6_born_host_moves_the_store_fields() -> None:
    records = [
        RawRecord().encode(),
        RawRecord(born_ipv6=True, body=b"").encode(),
        RawRecord(is_v2=True, topic=b"t" * 200).encode(),
    ]
    sizes = [len(record) for record in records]
    segment = np.zeros(2000, np.uint8)
    end = append(segment, 100, b"".join(records), sizes)
    assert end == 100 + sum(sizes)
    position = 100
    for i, size in enumerate(sizes):
        raw = segment[position : position + size].tobytes()
        born = 20 if i == 1 else 8
        assert struct.unpack_from(">i", raw, 12) == (3,)
        assert struct.unpack_from(">qq", raw, 20) == (42 + i, 1000 + position - 100)
        assert struct.unpack_from(">q", raw, 48 + born) == (1_700_000_000_123,)
        assert raw[56 + born : 64 + born] == STORE_HOST.tobytes()
        position += size


def test_an_ipv6_store_host_goes_into_records_with_room_for_it() -> None:
    host = u8(bytes(range(50, 70)))
    records = [RawRecord(store_ipv6=True, born_ipv6=born).encode() for born in (False, True)]
    sizes = [len(record) for record in records]
    segment = np.zeros(2000, np.uint8)
    assert append(segment, 0, b"".join(records), sizes, store_host=host) == sum(sizes)
    assert segment[64:84].tobytes() == host.tobytes()
    assert segment[sizes[0] + 76 : sizes[0] + 96].tobytes() == host.tobytes()
    assert segment[sizes[0] - 1] == 2  # nothing behind it moved
    for other in (STORE_HOST, host[:19]):
        assert append(np.zeros(2000, np.uint8), 0, b"".join(records), sizes, store_host=other) == -1
    assert (
        append(np.zeros(2000, np.uint8), 0, RawRecord().encode(), [len(GOOD)], store_host=host)
        == -1
    )


@pytest.mark.parametrize(("state", "queue_offset"), [(0x4, 0), (0x8, 43), (0xC, 0)])
def test_transactions_that_are_in_no_queue_get_no_place_in_one(
    state: int, queue_offset: int
) -> None:
    record = GOOD[:39] + bytes([state]) + GOOD[40:]
    segment = np.zeros(2000, np.uint8)
    sizes = [len(GOOD)] * 2
    assert append(segment, 0, record * 2, sizes, transaction=state) == 2 * len(GOOD)
    offset = segment[len(GOOD) + 20 : len(GOOD) + 28].tobytes()
    assert int.from_bytes(offset, "big") == queue_offset
    for mixed in (record + GOOD, GOOD + record):
        assert append(np.zeros(2000, np.uint8), 0, mixed, sizes, transaction=state) == -1
        assert append(np.zeros(2000, np.uint8), 0, mixed, sizes) == -1


def test_an_inner_batch_is_refused() -> None:
    record = GOOD[:39] + b"\xc0" + GOOD[40:]
    assert append(np.zeros(2000, np.uint8), 0, record, [len(GOOD)]) == -1


GOOD = RawRecord().encode()


@pytest.mark.parametrize(
    ("records", "sizes"),
    [
        (GOOD, [len(GOOD) - 1]),
        (GOOD, [len(GOOD), 0]),
        (GOOD + b"\0" * 9, [len(GOOD), -1, 10]),
        (bytes(100), [-1, 101]),
        (GOOD, []),
        (GOOD + b"\0", [len(GOOD)]),
        (GOOD * 2, [len(GOOD)]),
        (GOOD, [len(GOOD), len(GOOD)]),
        (GOOD[:4] + b"\xcb\xd4\x31\x94" + GOOD[8:], [len(GOOD)]),
        (RawRecord(store_ipv6=True).encode(), [len(GOOD) + 12]),
        (GOOD[:84] + b"\x7f\xff\xff\xff" + GOOD[88:], [len(GOOD)]),
        (GOOD[:84] + b"\xff\xff\xff\xff" + GOOD[88:], [len(GOOD)]),
        (GOOD[:-1] + b"", [len(GOOD) - 1]),
        (b"", []),
    ],
)
def test_a_batch_that_is_not_what_its_sizes_say_changes_nothing(
    records: bytes, sizes: list[int]
) -> None:
    segment = np.zeros(1000, np.uint8)
    assert append(segment, 0, records, sizes) == -1
    assert not segment.any()


def test_a_batch_that_does_not_fit_changes_nothing() -> None:
    segment = np.zeros(len(GOOD) + 5, np.uint8)
    assert append(segment, 6, GOOD, [len(GOOD)]) == -1
    assert append(segment, -1, GOOD, [len(GOOD)]) == -1
    assert not segment.any()
    assert append(segment, 5, GOOD, [len(GOOD)]) == len(GOOD) + 5


def test_queue_entries_are_rocketmqs_and_may_be_split_over_two_segments() -> None:
    sizes, codes = i32([126, 200, 300]), i64([2598919, -720863880, 0])
    first, second = np.zeros(40, np.uint8), np.zeros(40, np.uint8)
    assert append_queue_entries(first, 20, sizes, codes, 1000, 0, 1) == 40
    assert append_queue_entries(second, 0, sizes, codes, 1000, 1, 2) == 40
    assert first.tobytes()[20:].hex() == "00000000000003e80000007e000000000027a807"
    assert struct.unpack(">qiqqiq", second.tobytes()) == (
        *(1126, 200, -720863880),
        *(1326, 300, 0),
    )


@pytest.mark.parametrize(
    ("position", "first", "count"), [(21, 0, 1), (-20, 0, 1), (0, 3, 1), (0, 0, 3), (0, -1, 1)]
)
def test_queue_entries_that_do_not_fit_change_nothing(
    position: int, first: int, count: int
) -> None:
    segment = np.zeros(40, np.uint8)
    sizes, codes = i32([100, 100, 100]), i64([1, 2, 3])
    assert append_queue_entries(segment, position, sizes, codes, 0, first, count) == -1
    assert not segment.any()


@pytest.mark.parametrize(
    ("sizes", "key_records", "total", "expected"),
    [
        ([91, 100], [0, 0, 1], 191, True),
        ([91, 100], [], 191, True),
        ([91, 100], [1, 0], 191, False),
        ([91, 100], [0, 2], 191, False),
        ([91, 100], [-1], 191, False),
        ([91, 100], [], 192, False),
        ([90, 100], [], 190, False),
        ([], [], 0, False),
    ],
)
def test_a_whole_batch_has_sizes_that_add_up_and_keys_in_order(
    sizes: list[int], key_records: list[int], total: int, expected: bool
) -> None:
    assert is_whole_batch(i32(sizes), i32(key_records), total) is expected

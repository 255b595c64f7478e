from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from support.models.records import GOLDEN_V1, RawRecord, back_to_back, i32, i64, u8

from rocketray.kernels.spans import (
    Field,
    end_of_segment,
    gather_spans,
    is_ascii,
    measure_spans,
    sum_sizes,
    write_offset_ids,
)

START = 640  # where the segment begins in the log


def measure(raw: bytes, offsets: list[int], sizes: list[int]) -> tuple[int, npt.NDArray[np.int64]]:
    fields = np.empty((len(Field), len(offsets)), np.int64)
    return measure_spans(u8(raw), i64(offsets) - START, i64(offsets), i32(sizes), fields), fields


def test_the_parts_of_rocketmqs_own_record_are_found() -> None:
    start = 1000 - START  # it says that it stands at 1000
    bad, fields = measure(bytes(start) + GOLDEN_V1 + bytes(9), [1000], [126])
    assert bad == -1
    found = {field.name: int(fields[field, 0]) for field in Field}
    assert found == {
        "BODY_START": start + 88,
        "BODY_SIZE": 5,
        "TOPIC_START": start + 94,
        "TOPIC_SIZE": 9,
        "PROPERTIES_START": start + 105,
        "PROPERTIES_SIZE": 21,
        "BORN_TIMESTAMP": 1_700_000_000_000,
        "STORE_TIMESTAMP": 1_700_000_000_123,
        "STORE_HOST_START": start + 64,
        "STORE_HOST_SIZE": 8,
        "FLAG": 7,
        "SYS_FLAG": 0,
        "BODY_CRC": 907_060_870,
        "QUEUE_ID": 3,
        "QUEUE_OFFSET": 42,
    }


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("born_ipv6", [False, True])
@pytest.mark.parametrize("store_ipv6", [False, True])
def test_hosts_and_version_move_the_parts(is_v2: bool, born_ipv6: bool, store_ipv6: bool) -> None:
    topic = b"t" * (200 if is_v2 else 127)
    raw = RawRecord(
        body=b"body",
        topic=topic,
        is_v2=is_v2,
        born_ipv6=born_ipv6,
        store_ipv6=store_ipv6,
        physical_offset=START,
        store_timestamp_ms=77,
    ).encode()
    bad, fields = measure(raw, [START], [len(raw)])
    assert bad == -1
    for start, size, expected in (
        (Field.BODY_START, Field.BODY_SIZE, b"body"),
        (Field.TOPIC_START, Field.TOPIC_SIZE, topic),
        (Field.PROPERTIES_START, Field.PROPERTIES_SIZE, b"TAGS\x01TagA\x02"),
        (
            Field.STORE_HOST_START,
            Field.STORE_HOST_SIZE,
            bytes(range(101, 121 if store_ipv6 else 109)),
        ),
    ):
        at = int(fields[start, 0])
        assert raw[at : at + int(fields[size, 0])] == expected
    assert fields[Field.STORE_TIMESTAMP, 0] == 77


GOOD = RawRecord(physical_offset=START + 300).encode()
SIZE = len(GOOD)


@pytest.mark.parametrize(
    ("damage", "offset", "size"),
    [
        ((0, b"\x7f\xff\xff\xff"), 300, 2**31 - 1),  # a size beyond the segment
        ((0, b"\xff\xff\xff\xff"), 300, -1),
        ((0, b"\0\0\0\x5a"), 300, 90),  # less than any record has
        ((4, b"\xcb\xd4\x31\x94"), 300, SIZE),  # BLANK
        ((4, b"\0\0\0\0"), 300, SIZE),
        ((28, b"\0\0\0\0\0\0\0\1"), 300, SIZE),  # another record's offset
        ((36, b"\0\0\0\x30"), 300, SIZE),  # IPv6 hosts that are not there
        ((84, b"\x7f\xff\xff\xff"), 300, SIZE),
        ((84, b"\xff\xff\xff\xff"), 300, SIZE),
        ((93, b"\xff"), 300, SIZE),  # topic length -1
        ((93, b"\x7f"), 300, SIZE),
        ((103, b"\xff\xff"), 300, SIZE),  # properties length -1
        ((103, b"\0\x01"), 300, SIZE),
        ((103, b"\x7f\xff"), 300, SIZE),
        ((0, b""), 300, SIZE + 1),  # the queue entry has another size
        ((0, b""), 301, SIZE),
        ((0, b""), -1, SIZE),
        ((0, b""), 300 + SIZE, SIZE),
        ((0, b""), 2**62, SIZE),
    ],
)
def test_a_damaged_record_is_reported_by_its_number(
    damage: tuple[int, bytes], offset: int, size: int
) -> None:
    first = RawRecord(physical_offset=START).encode()
    at, replacement = damage
    second = bytearray(GOOD)
    second[at : at + len(replacement)] = replacement
    raw = first.ljust(300, b"\0") + bytes(second)
    assert measure(raw, [START, START + 300], [len(first), SIZE])[0] == (1 if replacement else -1)
    assert measure(raw, [START, START + offset], [len(first), size])[0] == 1


@pytest.mark.parametrize("size", [*range(20), 31, 32, 33, 255, 256, 257, 5000])
def test_spans_of_every_size_are_gathered_whole(size: int) -> None:
    texts = [bytes(range(256))[i : i + 7] * (size // 7 + 1) for i in range(3)]
    texts = [text[:size] for text in texts]
    source, starts, sizes = back_to_back([texts[0], None, texts[1], b"", texts[2]])
    offsets, data = np.empty(6, np.int32), np.full(3 * size, 99, np.uint8)
    assert gather_spans(source, starts, sizes, offsets, data) == 3 * size
    assert data.tobytes() == b"".join(texts)
    assert offsets.tolist() == [0, size, size, 2 * size, 2 * size, 3 * size]


def test_sizes_are_summed_without_the_absent() -> None:
    assert sum_sizes(i64([3, -1, 0, 4, -1])) == (7, 2)
    assert sum_sizes(i64([])) == (0, 0)


def test_ascii_is_told_from_the_rest() -> None:
    assert is_ascii(u8(b"\0\x7f" * 100), 200)
    assert not is_ascii(u8(b"a" * 100 + b"\x80"), 101)
    assert is_ascii(u8(b"a" * 100 + b"\x80"), 100)


def test_records_of_one_segment_stand_together() -> None:
    offsets = i64([0, 99, 100, 250, 299, 150])
    assert [end_of_segment(offsets, 100, first) for first in (0, 2, 3, 5)] == [2, 3, 5, 6]


def test_offset_ids_are_host_and_offset_in_upper_case_hex() -> None:
    hosts = bytes.fromhex("0a00000100002a9f") + bytes(range(20))
    offsets, data = np.empty(3, np.int32), np.empty(100, np.uint8)
    end = write_offset_ids(u8(hosts), i64([0, 8]), i64([8, 20]), i64([1000, 255]), offsets, data)
    text = data[:end].tobytes().decode()
    assert text[:32] == "0A00000100002A9F00000000000003E8"
    assert text[32:] == bytes(range(20)).hex().upper() + "00000000000000FF"
    assert offsets.tolist() == [0, 32, 88]

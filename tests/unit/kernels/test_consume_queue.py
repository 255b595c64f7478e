from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from support.models.records import i32, u8

from rocketray.kernels.consume_queue import match_tags, pick_entries, read_entries

EXT_ADDRESS = -(2**63)
CODES = [2598919, 0, -720863880, 2598919, EXT_ADDRESS, 2**32 + 2598919, -2147483649, -2147483648]
RAW = b"".join(struct.pack(">qiq", 1000 * i, 100 + i, code) for i, code in enumerate(CODES))


def found(codes: Sequence[int], first: int = 0, count: int = len(CODES)) -> list[int]:
    out = np.full(count, 99, np.int64)
    end = match_tags(u8(RAW), first, count, i32(codes), out)
    return [int(number) for number in out[:end]]


def test_a_scan_compares_the_low_32_bits_and_lets_pass_what_cannot_tell() -> None:
    assert found([2598919]) == [0, 3, 4, 5, 6]
    assert found([-720863880]) == [2, 4, 6]
    assert found([0]) == [1, 4, 6]
    assert found([-2147483648]) == [4, 6, 7]


@pytest.mark.parametrize("others", range(1, 12))
def test_any_number_of_codes_may_be_asked_for(others: int) -> None:
    assert found([*range(5, 5 + others), 0]) == [1, 4, 6]
    assert found([0, *range(5, 5 + others)]) == [1, 4, 6]


def test_no_codes_match_only_what_cannot_tell() -> None:
    assert found([]) == [4, 6]


def test_a_scan_may_begin_and_end_anywhere() -> None:
    assert found([2598919], 1, 3) == [3]
    assert found([2598919], 8, 0) == []


Columns = tuple[
    npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]
]


def columns(count: int) -> Columns:
    sizes = np.zeros(count, np.int32)
    return np.zeros(count, np.int64), sizes, np.zeros(count, np.int64), np.zeros(count, np.int64)


def test_entries_are_copied_to_a_row_of_the_columns() -> None:
    offsets, sizes, codes, queue_offsets = columns(4)
    assert read_entries(u8(RAW), 2, 2, 70, offsets, sizes, codes, queue_offsets, 1) == 0
    assert offsets.tolist() == [0, 2000, 3000, 0]
    assert sizes.tolist() == [0, 102, 103, 0]
    assert codes.tolist() == [0, -720863880, 2598919, 0]
    assert queue_offsets.tolist() == [0, 70, 71, 0]


def test_picked_entries_are_those_of_the_numbers() -> None:
    offsets, sizes, codes, queue_offsets = columns(2)
    numbers = np.array([7, 1, 77])
    assert pick_entries(u8(RAW), numbers, 2, 70, offsets, sizes, codes, queue_offsets) == 0
    assert offsets.tolist() == [7000, 1000]
    assert sizes.tolist() == [107, 101]
    assert codes.tolist() == [-2147483648, 0]
    assert queue_offsets.tolist() == [77, 71]


def test_addresses_among_the_tags_codes_are_counted() -> None:
    assert read_entries(u8(RAW), 0, 8, 0, *columns(8), 0) == 2
    assert pick_entries(u8(RAW), np.array([4, 5, 6]), 3, 0, *columns(3)) == 2


def test_reading_beyond_the_segment_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        found([1], 1, 8)
    with pytest.raises(AssertionError):
        read_entries(u8(RAW), 8, 1, 0, *columns(1), 0)
    with pytest.raises((AssertionError, IndexError)):
        pick_entries(u8(RAW), np.array([8]), 1, 0, *columns(1))

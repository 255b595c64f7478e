from __future__ import annotations

import numpy as np
import pytest
from support.models.records import i32, i64

from rocketray.hashing import index_key_hash
from rocketray.kernels.index import put_keys

T = 1_700_000_000_000
SLOTS, ENTRIES = 4, 6
# The file that RocketMQ's IndexFile made of the puts below.
GOLDEN = bytes.fromhex(
    "0000018bcfe568000000018bcfe55478000000000000006400000000000001f40000000300000006"
    "00000004000000000000000500000002"
    "0000000000000000000000000000000000000000"
    "00013fd200000000000000640000000000000000"
    "00013fd300000000000000c80000000100000000"
    "00013fd2000000000000012c0000000200000001"
    "00013fd400000000000001900000000300000000"
    "00013fd200000000000001f40000000000000003"
)
PUTS = [("T#A", 100, 0), ("T#B", 200, 1500), ("T#A", 300, 2999), ("T#C", 400, 3000)]


def new_file(begin: int = 0, end: int = 0) -> np.ndarray:
    index = np.zeros(len(GOLDEN), np.uint8)
    index[:16] = np.frombuffer(begin.to_bytes(8, "big") + end.to_bytes(8, "big"), np.uint8)
    return index


def put(index: np.ndarray, key: str, offset: int, time_ms: int) -> int:
    return put_keys(
        index, SLOTS, ENTRIES, i32([index_key_hash(key)]), i64([offset]), i64([time_ms]), 0
    )


def test_the_file_is_the_one_that_rocketmq_makes() -> None:
    index = new_file()
    for key, offset, after_ms in [*PUTS, ("T#A", 500, -5000)]:
        assert put(index, key, offset, T + after_ms) == 1
    assert put(index, "T#D", 600, T) == 0
    assert index.tobytes() == GOLDEN


def test_many_keys_at_once_stop_where_the_file_is_full() -> None:
    index = new_file()
    hashes, times = i32([index_key_hash(f"T#{n}") for n in range(8)]), i64([T] * 8)
    assert put_keys(index, SLOTS, ENTRIES, hashes, i64(range(8)), times, 1) == 5
    following = new_file()
    assert put_keys(following, SLOTS, ENTRIES, hashes, i64(range(8)), times, 6) == 2
    assert following[36:40].tobytes() == (3).to_bytes(4, "big")


def test_the_first_key_of_a_rolled_file_is_dated_by_the_file_before() -> None:
    index = new_file(T - 5000, T - 5000)
    assert put(index, "T#A", 700, T + 19_500) == 1
    entry = 40 + SLOTS * 4 + 20
    assert index[entry + 12 : entry + 16].tobytes() == (24).to_bytes(4, "big")
    assert index[:8].tobytes() == (T + 19_500).to_bytes(8, "big")


def test_the_time_difference_stops_at_javas_largest_int() -> None:
    index = new_file(1, 1)
    put(index, "T#A", 1, 1)
    put(index, "T#B", 2, 2**62)
    entry = 40 + SLOTS * 4 + 2 * 20
    assert index[entry + 12 : entry + 16].tobytes() == b"\x7f\xff\xff\xff"


@pytest.mark.parametrize("damaged", [7, -1, 2**31 - 1])
def test_a_slot_that_points_beyond_the_entries_counts_as_empty(damaged: int) -> None:
    index = new_file()
    slot = 40 + index_key_hash("T#A") % SLOTS * 4
    index[slot : slot + 4] = np.frombuffer(damaged.to_bytes(4, "big", signed=True), np.uint8)
    put(index, "T#A", 100, T)
    entry = 40 + SLOTS * 4 + 20
    assert index[entry + 16 : entry + 20].tobytes() == bytes(4)
    assert index[32:36].tobytes() == (1).to_bytes(4, "big")


def test_nothing_is_put_into_a_file_that_is_too_short() -> None:
    index = new_file()[:-1].copy()
    assert put(index, "T#A", 100, T) == 0
    assert not index.any()

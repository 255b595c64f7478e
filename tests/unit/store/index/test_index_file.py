from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.nodes.stores import FakeClock

from rocketray.hashing import index_key_hash
from rocketray.store.index.index_file import IndexFile, index_file_bytes, index_file_name
from rocketray.store.index.key_index import ChainSearch, KeyIndex

SLOTS, ENTRIES = 4, 6
T = 1_700_000_000_000
PUTS = [("T#A", 100, 0), ("T#B", 200, 1500), ("T#A", 300, 2999), ("T#C", 400, 3000)]
PUTS += [("T#A", 500, -5000), ("T#D", 600, 0)]
# As RocketMQ's Java classes wrote it.
EXPECTED = """
0000018bcfe56800 0000018bcfe55478 0000000000000064 00000000000001f4 00000003 00000006
00000004 00000000 00000005 00000002
00000000 0000000000000000 00000000 00000000
00013fd2 0000000000000064 00000000 00000000
00013fd3 00000000000000c8 00000001 00000000
00013fd2 000000000000012c 00000002 00000001
00013fd4 0000000000000190 00000003 00000000
00013fd2 00000000000001f4 00000000 00000003
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[IndexFile]:
    made = IndexFile.create(tmp_path / "20231114221320000", SLOTS, ENTRIES)
    yield made
    made.close()


def put(file: IndexFile, key: str, offset: int, time_ms: int) -> int:
    file.reserve(1)
    hashes = np.array([index_key_hash(key)], np.int32)
    return file.put(hashes, np.array([offset], np.int64), np.array([time_ms]), 0)


def test_the_bytes_are_those_that_rocketmq_wrote(file: IndexFile) -> None:
    assert [put(file, key, offset, T + ms) for key, offset, ms in PUTS] == [1, 1, 1, 1, 1, 0]
    file.flush()
    assert file.path.read_bytes() == bytes.fromhex(EXPECTED)
    assert file.path.stat().st_size == index_file_bytes(SLOTS, ENTRIES) == 176
    assert file.room == 0
    assert list(ChainSearch([file]).find(index_key_hash("T#A"))) == [500, 300, 100]
    assert list(ChainSearch([file]).find(index_key_hash("T#D"))) == []


def test_a_file_that_follows_counts_its_first_seconds_from_the_end_before(
    file: IndexFile, tmp_path: Path
) -> None:
    for key, offset, ms in PUTS[:5]:
        put(file, key, offset, T + ms)
    following = IndexFile.create(tmp_path / "20231114221320001", SLOTS, ENTRIES)
    following.follow(file.header())
    put(following, "T#A", 700, T + 19_500)
    header = following.header()
    assert header.begin_timestamp_ms == header.end_timestamp_ms == T + 19_500
    content = following.path.read_bytes()
    assert struct.unpack_from(">i", content, 40 + 4 * SLOTS + 20 + 12) == (24,)
    following.close()


@pytest.mark.parametrize("previous", [5, 3, 99, -7, 2])
def test_a_chain_that_leads_forwards_or_to_another_slots_entry_is_followed_to_there_and_reported(
    file: IndexFile, previous: int, caplog: pytest.LogCaptureFixture
) -> None:
    for key, offset, ms in PUTS[:5]:
        put(file, key, offset, T + ms)
    with file.path.open("r+b") as raw:
        raw.seek(40 + 4 * SLOTS + 3 * 20 + 16)  # the third entry's predecessor
        raw.write(struct.pack(">i", previous))
    assert list(ChainSearch([file]).find(index_key_hash("T#A"))) == [500, 300]
    assert f"from entry 3 to {previous}" in caplog.text


def test_a_slot_that_leads_out_of_the_file_is_reported_once(
    file: IndexFile, caplog: pytest.LogCaptureFixture
) -> None:
    put(file, "T#A", 100, T)
    slot = index_key_hash("T#A") % SLOTS
    with file.path.open("r+b") as raw:
        raw.seek(40 + 4 * slot)
        raw.write(struct.pack(">i", ENTRIES))
    assert list(ChainSearch([file]).find(index_key_hash("T#A"))) == []
    assert file.damaged_slots == {slot}
    assert f"from the slot to {ENTRIES}" in caplog.text


def test_keys_of_a_batch_that_is_being_put_hide_no_earlier_ones(
    file: IndexFile, caplog: pytest.LogCaptureFixture
) -> None:
    put(file, "T#A", 100, T)
    before = file.path.read_bytes()[:40]
    put(file, "T#A", 200, T)
    with file.path.open("r+b") as raw:
        raw.write(before)  # the header is written last
    assert list(ChainSearch([file]).find(index_key_hash("T#A"))) == [200, 100]
    assert not caplog.text


def test_a_search_outlives_the_files_that_it_was_made_for(index: KeyIndex) -> None:
    put_many(index, list(range(100, 109)), T)
    found = index.search(7)
    first = next(found)
    index.close()
    assert [first, *found] == list(range(108, 99, -1))


def test_a_header_of_noise_is_kept_within_the_file(file: IndexFile) -> None:
    with file.path.open("r+b") as raw:
        raw.write(b"\x7f" * 40)
    assert file.header().next_entry == ENTRIES
    assert list(ChainSearch([file]).find(3)) == []


def test_only_what_is_used_has_blocks(tmp_path: Path) -> None:
    file = IndexFile.create(tmp_path / "20231114221320000", 1000, 5_000_000)
    assert file.path.stat().st_size > 100_000_000
    file.reserve(10)
    assert file.path.stat().st_blocks * 512 < 4_000_000
    file.close()


def test_a_file_is_named_by_local_time() -> None:
    name = index_file_name(T + 7)
    assert len(name) == 17
    assert name.endswith("007")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[KeyIndex]:
    made = KeyIndex(tmp_path / "index", SLOTS, ENTRIES, read_only=False, clock_ms=FakeClock(T))
    yield made
    made.close()


def put_many(index: KeyIndex, offsets: list[int], time_ms: int) -> None:
    index.reserve(len(offsets))
    hashes = np.full(len(offsets), 7, np.int32)
    index.put(hashes, np.array(offsets, np.int64), np.full(len(hashes), time_ms))


def test_files_are_made_at_the_first_key_and_when_one_is_full(
    index: KeyIndex, tmp_path: Path
) -> None:
    index.reserve(0)
    assert not (tmp_path / "index").exists()
    put_many(index, list(range(100, 112)), T)
    assert len(index.files) == 3
    assert index.entry_count() == 12
    assert list(index.search(7)) == list(range(111, 99, -1))
    assert len(set((tmp_path / "index").iterdir())) == 3  # one clock, three names


def test_room_that_was_reserved_in_vain_is_used_later(index: KeyIndex) -> None:
    put_many(index, [1, 2, 3], T)
    index.reserve(4)
    assert len(index.files) == 2
    put_many(index, [4], T)
    put_many(index, [5, 6], T)
    assert list(index.search(7)) == [6, 5, 4, 3, 2, 1]
    assert len(index.files) == 2


def test_after_a_crash_only_full_files_from_before_the_checkpoint_stay(index: KeyIndex) -> None:
    put_many(index, [1, 2, 3, 4, 5], T)
    put_many(index, [6, 7, 8, 9, 10], T + 1000)
    put_many(index, [11, 11], T + 2000)
    index.keep_trusted(T + 1000)
    assert list(index.search(7)) == [5, 4, 3, 2, 1]
    assert index.position() == (5, 1)
    index.keep_trusted(0)
    assert index.position() == (0, 0)
    assert len(index.files) == 0


def test_the_position_counts_a_records_keys_over_two_files(index: KeyIndex) -> None:
    put_many(index, [1, 2, 3, 9, 9], T)
    put_many(index, [9, 9, 9], T)
    assert len(index.files) == 2
    assert index.position() == (9, 5)

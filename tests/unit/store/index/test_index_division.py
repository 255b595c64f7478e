"""How many hash slots an index file has: found for whatever was written, or left open, never wrong."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.nodes.stores import GOLDEN_CONFIG, GOLDEN_STORE, FakeClock, open_golden, read_jsonl

from rocketray.errors import CorruptRecordError
from rocketray.hashing import index_key_hash
from rocketray.store.index.index_division import (
    SlotCounts,
    entries_beside,
    expected_chains,
    is_division,
    slots_that_agree,
    smallest_division,
)
from rocketray.store.index.index_file import IndexFile, index_file_bytes
from rocketray.store.message_store import MessageStore

KEY_QUERIES = [row for row in read_jsonl("store-v1.queries.jsonl") if row["op"] == "key"]
FIRST_ENTRY = 40 + 4 * 100


def write_index(path: Path, slots: int, room: int, keys: list[tuple[int, int]]) -> None:
    """An index file with *keys*: hash and physical offset."""
    file = IndexFile.create(path, slots, room)
    file.reserve(len(keys))
    hashes, offsets = (
        np.array(column, dtype)
        for column, dtype in zip(zip(*keys, strict=True), (np.int32, np.int64), strict=True)
    )
    file.put(hashes, offsets, np.full(len(keys), 1_700_000_000_000, np.int64), 0)
    file.close()


def in_log_order(keys: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Hashes with sizes of records become hashes with offsets."""
    ends = np.cumsum([size for _, size in keys]).tolist()
    return [(key_hash, end) for (key_hash, _), end in zip(keys, ends, strict=True)]


keys_of_a_log = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 300)), min_size=1, max_size=60
).map(in_log_order)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 400), st.integers(62, 200), keys_of_a_log, st.booleans())
def test_the_number_is_found_or_left_open(
    slots: int, room: int, keys: list[tuple[int, int]], with_log: bool
) -> None:
    by_offset: dict[int, set[int]] = {}
    for key_hash, offset in keys:
        by_offset.setdefault(offset, set()).add(key_hash)

    def key_hashes(offset: int) -> frozenset[int] | None:
        return frozenset(by_offset.get(offset, ())) if with_log else None

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "i"
        write_index(path, slots, room, keys)
        found = slots_that_agree([path], key_hashes)
        assert found.has_entries
        assert found.all_agree
        assert slots in found.counts
        assert slots_that_agree([path], key_hashes, only=slots).counts == (slots,)


def test_files_that_one_number_fits_to_rule_the_others_out(tmp_path: Path) -> None:
    # A key whose hash is 0, of the record at 0, in a file of zeros, fits to any number.
    write_index(tmp_path / "1", 5, 62, [(0, 0)])
    write_index(tmp_path / "2", 5, 62, [(number * 7919, number * 100) for number in range(1, 50)])
    alone = slots_that_agree([tmp_path / "1"], lambda _: None)
    both = slots_that_agree([tmp_path / "1", tmp_path / "2"], lambda _: None)
    assert len(alone.counts) > 50
    assert both == SlotCounts((5,), all_agree=True, has_entries=True)


def test_a_file_that_begins_at_0_and_is_mostly_empty_is_told_by_both_of_its_ends(
    tmp_path: Path,
) -> None:
    keys = [(number * 7919 % 2**31, number // 2 * 100) for number in range(700)]
    write_index(tmp_path / "1", 64, 5000, keys)
    assert slots_that_agree([tmp_path / "1"], lambda _: None).counts == (64,)


def test_the_first_key_of_a_store_is_enough(tmp_path: Path) -> None:
    write_index(tmp_path / "1", 5000, 20_000, [(1234, 0)])
    assert slots_that_agree([tmp_path / "1"], lambda _: None).counts == (5000,)


def test_a_number_that_contradicts_the_log_is_no_answer(tmp_path: Path) -> None:
    write_index(tmp_path / "1", 10, 40, [(number, 100 * number) for number in range(1, 30)])
    assert slots_that_agree([tmp_path / "1"], lambda _: frozenset({-1})).counts == ()


@given(st.integers(1, 5000), st.integers(2, 5000))
def test_a_length_and_its_divisions(slots: int, room: int) -> None:
    length = index_file_bytes(slots, room)
    assert is_division(length, slots)
    assert entries_beside(length, slots) == room
    assert (slots - smallest_division(length)) % 5 == 0
    assert not is_division(length, slots + 1)
    assert not is_division(length, 0)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return shutil.copytree(GOLDEN_STORE, tmp_path / "store")


def opened(directory: Path) -> MessageStore:
    return MessageStore(directory, GOLDEN_CONFIG, read_only=True, clock_ms=FakeClock())


def index_problems(store: MessageStore) -> list[tuple[str, int]]:
    """Name and place of all that is wrong in the index files."""
    found = [(Path(problem.file), problem.offset) for problem in store.verify().problems]
    return [(path.name, offset) for path, offset in found if path.parent.name == "index"]


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def test_the_chains_of_rocketmqs_files_are_sound() -> None:
    with open_golden() as store:
        assert index_problems(store) == []
        assert len(store.reads.query("TopicB", "dup")) == 28
        assert store.statistics().damaged_chains == 0


@pytest.mark.parametrize("previous", [50, 51, 300, 399, -1, 1 << 30], ids=str)
def test_a_chain_that_loops_or_leads_outside_is_found_and_survived(
    copy: Path, previous: int
) -> None:
    newest = max((copy / "index").iterdir())
    overwrite(newest, FIRST_ENTRY + 20 * 50 + 16, (previous & 0xFFFFFFFF).to_bytes(4, "big"))
    raw = newest.read_bytes()
    slot = int.from_bytes(raw[FIRST_ENTRY + 20 * 50 :][:4], "big") % 100
    with opened(copy) as store:
        assert index_problems(store) == [(newest.name, FIRST_ENTRY + 20 * 50)]
        for query in KEY_QUERIES:
            found = store.reads.query(query["topic"], query["key"], 32, distinct=False)
            offsets = [message.physical_offset for message in found]
            assert set(offsets) <= set(query["commitLogOffsets"])
            if index_key_hash(f"{query['topic']}#{query['key']}") % 100 != slot:
                assert offsets == query["commitLogOffsets"]
        assert store.statistics().damaged_chains == 1


@pytest.mark.parametrize("head", [316, 1 << 30, -7], ids=str)
def test_a_slot_that_leads_outside_is_found_and_survived(copy: Path, head: int) -> None:
    newest = max((copy / "index").iterdir())
    slot = index_key_hash("TopicB#dup") % 100
    overwrite(newest, 40 + 4 * slot, (head & 0xFFFFFFFF).to_bytes(4, "big"))
    with opened(copy) as store:
        assert index_problems(store) == [(newest.name, 40 + 4 * slot)]
        found = store.reads.query("TopicB", "dup")
        assert 0 < len(found) < 28  # those of the older files
        assert store.statistics().damaged_chains == 1
        with pytest.raises(CorruptRecordError, match="the chain of key 'dup' is broken"):
            store.reads.query("TopicB", "dup", strict=True)


def test_an_entry_that_leads_to_another_record_is_not_believed(copy: Path) -> None:
    row = next(row for row in KEY_QUERIES if row["commitLogOffsets"])
    for path in (copy / "index").iterdir():
        raw = bytearray(path.read_bytes())
        for number in range(1, 400):
            position = FIRST_ENTRY + 20 * number + 4
            raw[position : position + 8] = bytes(8)  # all lead to the first record
        path.write_bytes(raw)
    with opened(copy) as store:
        found = store.reads.query(row["topic"], row["key"])
        assert all(row["key"] in (*one.keys, one.unique_key) for one in found)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2**31 - 1), max_size=60), st.integers(1, 40))
def test_chains_are_expected_as_putting_keys_one_by_one_makes_them(
    hashes: list[int], slots: int
) -> None:
    heads, previous = [0] * slots, []
    for number, key_hash in enumerate(hashes, 1):
        previous.append(heads[key_hash % slots])
        heads[key_hash % slots] = number
    found, newest = expected_chains(np.array(hashes, np.int64), slots)
    assert found.tolist() == previous
    assert sorted(newest.tolist()) == sorted(head for head in heads if head)

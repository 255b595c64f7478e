"""Damaged chains of the key index: found, counted and survived, never answered with a lie."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores import GOLDEN_CONFIG, GOLDEN_STORE, FakeClock, open_golden, read_jsonl

from rocketray.hashing import index_key_hash
from rocketray.store.index_chains import IndexDamage, check_chains
from rocketray.store.index_file import index_file_bytes
from rocketray.store.message_store import MessageStore

KEY_QUERIES = [row for row in read_jsonl("store-v1.queries.jsonl") if row["op"] == "key"]
FIRST_ENTRY = 40 + 4 * 100


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return shutil.copytree(GOLDEN_STORE, tmp_path / "store")


def opened(directory: Path) -> MessageStore:
    return MessageStore(directory, GOLDEN_CONFIG, read_only=True, clock_ms=FakeClock())


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def test_the_chains_of_rocketmqs_files_are_sound() -> None:
    with open_golden() as store:
        assert store.check_index() == []
        assert len(store.query("TopicB", "dup")) == 28
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
        assert store.check_index() == [IndexDamage(newest.name, [50], [])]
        for query in KEY_QUERIES:
            found = store.query(query["topic"], query["key"], 32, distinct=False)
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
        assert store.check_index() == [IndexDamage(newest.name, [], [slot])]
        found = store.query("TopicB", "dup")
        assert 0 < len(found) < 28  # those of the older files
        assert store.statistics().damaged_chains == 1


def test_an_entry_that_leads_to_another_record_is_not_believed(copy: Path) -> None:
    row = next(row for row in KEY_QUERIES if row["commitLogOffsets"])
    for path in (copy / "index").iterdir():
        raw = bytearray(path.read_bytes())
        for number in range(1, 400):
            position = FIRST_ENTRY + 20 * number + 4
            raw[position : position + 8] = bytes(8)  # all lead to the first record
        path.write_bytes(raw)
    with opened(copy) as store:
        found = store.query(row["topic"], row["key"])
        assert all(row["key"] in (*one.keys, one.unique_key) for one in found)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 2**31 - 1), max_size=60),
    st.integers(1, 40),
    st.binary(min_size=1, max_size=4),
    st.data(),
)
def test_whatever_stands_in_a_file_is_checked_without_a_fault(
    hashes: list[int], slots: int, noise: bytes, data: st.DataObject
) -> None:
    room = len(hashes) + 2
    raw = np.zeros(index_file_bytes(slots, room), np.uint8)
    heads = raw[40 : 40 + 4 * slots].view(">i4")
    rows = raw[40 + 4 * slots :].view([("h", ">i4"), ("o", ">i8"), ("t", ">i4"), ("p", ">i4")])
    for number, key_hash in enumerate(hashes, 1):
        rows[number] = (key_hash, 0, 0, heads[key_hash % slots])
        heads[key_hash % slots] = number
    assert check_chains("i", raw, slots, len(hashes)) == IndexDamage("i", [], [])
    at = data.draw(st.integers(40, len(raw) - 1))
    before = raw.copy()
    raw[at : at + len(noise)] = np.frombuffer(noise, np.uint8)[: len(raw) - at]
    damage = check_chains("i", raw, slots, len(hashes))
    chains = np.array_equal(before[40 : 40 + 4 * slots], raw[40 : 40 + 4 * slots])
    used = slice(40 + 4 * slots + 20, 40 + 4 * slots + 20 * (len(hashes) + 1))
    old, new = (array[used].view(rows.dtype) for array in (before, raw))
    if not chains or (old["p"] != new["p"]).any():
        assert damage.entries or damage.slots

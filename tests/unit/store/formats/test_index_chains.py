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
from rocketray.store.formats.index_chains import expected_chains
from rocketray.store.message_store import MessageStore

KEY_QUERIES = [row for row in read_jsonl("store-v1.queries.jsonl") if row["op"] == "key"]
FIRST_ENTRY = 40 + 4 * 100


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

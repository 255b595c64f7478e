"""Searches through many index files find what was put, and end on whatever stands there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.find import oracle_of
from oracles.index import put_keys
from support.models.records import i32, i64

from rocketray.kernels.index import Place, search_chains

SLOTS, ENTRIES = 4, 7
FILE_BYTES = 40 + SLOTS * 4 + ENTRIES * 20
Files = list[npt.NDArray[np.uint8]]
few = settings(max_examples=150, deadline=None)
# Hashes of which several share a slot, and several are equal.
hashes = st.lists(st.integers(0, 9), max_size=20)


def put_all(key_hashes: list[int]) -> tuple[Files, npt.NDArray[np.int64]]:
    """Files that hold the keys, key i at the offset 100 + i, and their addresses."""
    files: Files = []
    done = 0
    while done < len(key_hashes) or not files:
        files.append(np.zeros(FILE_BYTES, np.uint8))
        offsets, times = i64(range(100, 100 + len(key_hashes))), i64([1] * len(key_hashes))
        done += put_keys(files[-1], SLOTS, ENTRIES, i32(key_hashes), offsets, times, done)
    return files, i64([file.ctypes.data for file in files])


def search(addresses: npt.NDArray[np.int64], key_hash: int, room: int) -> list[int]:
    """A search by the kernel and by its oracle, so many offsets at once as there is *room* for."""
    found: list[int] = []
    place = i64([len(addresses) - 1, 0, 0, 0])
    while place[Place.FILE] >= 0:
        assert len(found) < ENTRIES * len(addresses)
        out, oracle_out, oracle_place = (
            np.zeros(room, np.int64),
            np.zeros(room, np.int64),
            place.copy(),
        )
        arguments = (addresses, SLOTS, ENTRIES, key_hash)
        count = search_chains(*arguments, place, out)
        assert oracle_of(search_chains)(*arguments, oracle_place, oracle_out) == count
        assert (place.tolist(), out.tolist()) == (oracle_place.tolist(), oracle_out.tolist())
        found += out[:count].tolist()
        if place[Place.IS_ASTRAY]:
            place[:] = place[Place.FILE] - 1, 0, 0, 0
    return found


@few
@given(hashes, st.integers(1, 4))
def test_every_entry_of_a_hash_is_found_newest_first(key_hashes: list[int], room: int) -> None:
    _files, addresses = put_all(key_hashes)
    for wanted in range(10):
        found = search(addresses, wanted, room)
        expected = [100 + at for at, one in enumerate(key_hashes) if one == wanted]
        assert found == expected[::-1]


@few
@given(hashes, st.integers(1, 4), st.data())
def test_a_damaged_chain_ends_and_gives_only_what_stands_in_the_files(
    key_hashes: list[int], room: int, data: st.DataObject
) -> None:
    files, addresses = put_all(key_hashes)
    for _ in range(data.draw(st.integers(1, 4))):
        file = data.draw(st.sampled_from(files))
        at = data.draw(st.integers(10, FILE_BYTES // 4 - 1)) * 4
        number = data.draw(st.integers(-2, ENTRIES + 1) | st.integers(-(2**31), 2**31 - 1))
        file[at : at + 4] = np.frombuffer(number.to_bytes(4, "big", signed=True), np.uint8)
    there = {
        int.from_bytes(file[at + 4 : at + 12].tobytes(), "big", signed=True)
        for file in files
        for at in range(40 + SLOTS * 4, FILE_BYTES, 20)
    }
    for wanted in range(10):
        assert there.issuperset(search(addresses, wanted, room))

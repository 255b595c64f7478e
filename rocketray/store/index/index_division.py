"""How many hash slots an index file has, found out from what is in it.

``40 + 4 slots + 20 entries`` bytes leave the division open: one slot more in five, one entry less.
A number of slots is right when, with it,
  1. the first entry has the header's begin offset, or the last one its end offset, and its slot
     is in use;
  2. every entry names, as the one before it, the last one with the same hash modulo the slots, and
     each slot names the newest of its own;
  3. the records that the entries lead to have a key of that hash, as far as the log still has them.
Numbers for which both ends agree in the first of these are tried alone; the others, of which a file
that begins with the offset 0 has thousands, only when none of those is right.
A damaged file may break one of them here and there, so a number counts too when nearly all agrees
and no other comes near. What is left open is said, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.kernels.layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES
from rocketray.store.formats.index_chains import expected_chains

__all__ = [
    "KeyHashes",
    "SlotCounts",
    "entries_beside",
    "is_division",
    "slots_that_agree",
    "smallest_division",
]

KeyHashes = Callable[[int], frozenset[int] | None]
"""The index hashes of the keys of the record at a physical offset; None when it is gone."""

_WORD = np.dtype(">i4")
_HEADER_WORDS = INDEX_HEADER_BYTES // 4
_ENTRY_WORDS = INDEX_ENTRY_BYTES // 4
_NEARLY_ALL = 0.9
_BLOCK = 1 << 20  # numbers of slots looked at together
_MOST_CHECKED = 256  # numbers that pass the first test, which few but the right one do
_CHECKED_ENTRIES = 1 << 16  # of each file, from its first
_CHECKED_RECORDS = 16  # of each file, spread over those entries
_Words = npt.NDArray[np.int32]


class SlotCounts(NamedTuple):
    """The numbers that agree: one when it is found, several or none when it is not.

    ``all_agree`` is False when nearly all does. ``has_entries`` is False for files without a key.
    """

    counts: tuple[int, ...]
    all_agree: bool
    has_entries: bool


class _File(NamedTuple):
    """A file as words of four bytes, and what its header says."""

    words: _Words
    begin_offset: int
    end_offset: int
    slots_used: int
    entries: int


def is_division(file_bytes: int, hash_slots: int) -> bool:
    """Whether a file of that length can have so many slots, and two entries at least."""
    rest = file_bytes - INDEX_HEADER_BYTES - hash_slots * INDEX_SLOT_BYTES
    return hash_slots > 0 and rest % INDEX_ENTRY_BYTES == 0 and rest >= 2 * INDEX_ENTRY_BYTES


def smallest_division(file_bytes: int) -> int:
    """The smallest number of slots for that length; the others are 5 more each."""
    return (file_bytes - INDEX_HEADER_BYTES) // INDEX_SLOT_BYTES % _ENTRY_WORDS or _ENTRY_WORDS


def entries_beside(file_bytes: int, hash_slots: int) -> int:
    """How many entries there are beside *hash_slots* slots."""
    return (file_bytes - INDEX_HEADER_BYTES - hash_slots * INDEX_SLOT_BYTES) // INDEX_ENTRY_BYTES


def slots_that_agree(
    paths: Sequence[Path], key_hashes: KeyHashes, *, only: int | None = None
) -> SlotCounts:
    """The numbers of slots with which files of one length make sense; tries one alone for *only*."""
    files = [file for path in paths if (file := _read(path)).entries > 0]
    if not files:
        return SlotCounts((), all_agree=True, has_entries=False)
    if only is not None:
        return _judge(files, [only], key_hashes)
    found = SlotCounts((), all_agree=False, has_entries=True)
    for both_ends in (True, False):
        candidates = sorted({number for file in files for number in _candidates(file, both_ends)})
        if len(candidates) > _MOST_CHECKED:
            return SlotCounts(tuple(candidates), all_agree=True, has_entries=True)
        found = _judge(files, candidates, key_hashes)
        if found.counts and found.all_agree:
            break
    return found


def _judge(files: list[_File], candidates: list[int], key_hashes: KeyHashes) -> SlotCounts:
    scores = {
        number: min(_agreement(file, number, key_hashes) for file in files) for number in candidates
    }
    perfect = tuple(number for number, score in scores.items() if score == 1)
    nearly = tuple(number for number, score in scores.items() if score >= _NEARLY_ALL)
    return SlotCounts(perfect or nearly, all_agree=bool(perfect), has_entries=True)


def _read(path: Path) -> _File:
    words: _Words = np.memmap(path, _WORD, "r", shape=(path.stat().st_size // 4,))
    head = words[:_HEADER_WORDS].tobytes()
    begin, end = (int.from_bytes(head[at : at + 8], "big", signed=True) for at in (16, 24))
    slots_used, next_entry = words[8].item(), words[9].item()
    most = (len(words) - _HEADER_WORDS) // _ENTRY_WORDS
    return _File(words, begin, end, slots_used, min(max(next_entry, 1), most) - 1)


def _candidates(file: _File, both_ends: bool) -> list[int]:  # noqa: FBT001 - two passes, one loop
    """The numbers of slots by which the first and the last entry, or one, has its offset."""
    smallest = smallest_division(4 * len(file.words))
    largest = len(file.words) - _HEADER_WORDS - _ENTRY_WORDS * (file.entries + 1)
    found: list[int] = []
    for start in range(smallest, largest + 1, _BLOCK * _ENTRY_WORDS):
        numbers = np.arange(
            start, min(start + _BLOCK * _ENTRY_WORDS, largest + 1), _ENTRY_WORDS, dtype=np.int64
        )
        first = _is_entry(file, numbers, 1, file.begin_offset)
        last = _is_entry(file, numbers, file.entries, file.end_offset)
        found += numbers[first & last if both_ends else first | last].tolist()
        if len(found) > _MOST_CHECKED:
            break
    return found


def _is_entry(
    file: _File, slot_counts: npt.NDArray[np.int64], entry: int, physical_offset: int
) -> npt.NDArray[np.bool_]:
    """With which numbers of slots the entry of that number may be one for *physical_offset*."""
    words, at = file.words, _HEADER_WORDS + slot_counts + _ENTRY_WORDS * entry
    high, low = np.frombuffer(physical_offset.to_bytes(8, "big", signed=True), _WORD).tolist()
    hashes = words[at].astype(np.int64)
    heads = words[_HEADER_WORDS + np.maximum(hashes, 0) % slot_counts]
    matches: npt.NDArray[np.bool_] = (words[at + 1] == high) & (words[at + 2] == low)
    return matches & (hashes >= 0) & (heads >= entry) & (heads <= file.entries)


def _agreement(file: _File, hash_slots: int, key_hashes: KeyHashes) -> float:
    """How much of the file makes sense with *hash_slots*: 0 to 1."""
    first = _HEADER_WORDS + hash_slots + _ENTRY_WORDS
    checked = min(file.entries, _CHECKED_ENTRIES)
    if first + _ENTRY_WORDS * file.entries > len(file.words) or file.slots_used > hash_slots:
        return 0.0
    rows = file.words[first : first + _ENTRY_WORDS * checked].reshape(checked, _ENTRY_WORDS)
    hashes, before = rows[:, 0].astype(np.int64), rows[:, 4].astype(np.int64)
    if not (hashes >= 0).all():
        return 0.0
    expected, newest = expected_chains(hashes, hash_slots)
    heads = file.words[_HEADER_WORDS + hashes[newest - 1] % hash_slots].astype(np.int64)
    whole = checked == file.entries
    good_heads = heads == newest if whole else (heads >= newest) & (heads <= file.entries)
    return min(
        float((before == expected).mean()),
        float(good_heads.mean()),
        _agreement_with_log(rows, key_hashes),
    )


def _agreement_with_log(rows: _Words, key_hashes: KeyHashes) -> float:
    """How many of some entries lead to a record with a key of their hash."""
    asked = agreed = 0
    for number in np.unique(np.linspace(0, len(rows) - 1, _CHECKED_RECORDS).astype(int)).tolist():
        raw = rows[number].tobytes()
        hashes = key_hashes(int.from_bytes(raw[4:12], "big", signed=True))
        if hashes is not None:
            asked += 1
            agreed += int.from_bytes(raw[:4], "big") in hashes
    return agreed / asked if asked else 1.0

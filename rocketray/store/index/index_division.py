"""The number of hash slots of an index file, inferred from its content, and its chains.

The length, ``40 + 4 slots + 20 entries`` bytes, does not determine the division: five more slots
take the place of one entry. A number of slots is right if, with it,
  1. the first entry has the header's begin offset, or the last one its end offset, and its slot
     is in use;
  2. every entry names as its predecessor the previous one with the same hash modulo the slots, and
     each slot names its newest entry;
  3. the records that the entries point to have a key of that hash, as far as the log still has
     them. Numbers for which both ends agree in rule 1 are tried first. The others (thousands for a
     file that begins with the offset 0) are tried only if none of these is right. A damaged file
     may break a rule in places, so a number also counts when nearly all agrees and no other comes
     near. An undecided result is reported, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.kernels.layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES

KeyHashes = Callable[[int], frozenset[int] | None]
"""The index hashes of the keys of the record at a physical offset; None when it was deleted."""

_WORD = np.dtype(">i4")
_HEADER_WORDS = INDEX_HEADER_BYTES // 4
_ENTRY_WORDS = INDEX_ENTRY_BYTES // 4
_NEARLY_ALL = 0.9  # of the checked entries; a file may be damaged in places
_BLOCK = 1 << 20  # numbers of slots per step
_MOST_CHECKED = 256  # numbers that pass the first test; few but the right one do
_CHECKED_ENTRIES = 1 << 16  # of each file, from its first
_CHECKED_RECORDS = 16  # of each file, spread over those entries
_Words = npt.NDArray[np.int32]
_Int64s = npt.NDArray[np.int64]


def expected_chains(hashes: _Int64s, hash_slots: int) -> tuple[_Int64s, _Int64s]:
    """Return the predecessor of each entry 1, 2, … with *hashes* int64[n], and each slot's newest.

    int64[n] the previous entry with the same hash modulo the slots, 0 for none; and int64[slots in
    use] the newest entry of each. The hashes alone determine both.
    """
    slots = hashes % hash_slots
    order = np.argsort(slots, kind="stable")
    same = slots[order][1:] == slots[order][:-1]
    previous = np.zeros(len(hashes), np.int64)
    previous[order[1:][same]] = order[:-1][same] + 1
    is_newest = np.append(~same, np.ones(min(len(hashes), 1), np.bool_))
    return previous, order[is_newest] + 1


class SlotCounts(NamedTuple):
    """The numbers that agree: one if it was found, several or none if not.

    ``all_agree`` is False when only nearly all agrees. ``has_entries`` is False for files without a
    key.
    """

    counts: tuple[int, ...]
    all_agree: bool
    has_entries: bool


class _File(NamedTuple):
    """A file as words of four bytes, and the fields of its header."""

    words: _Words
    begin_offset: int
    end_offset: int
    slots_used: int
    entries: int


def is_division(file_bytes: int, hash_slots: int) -> bool:
    """Return whether a file of that length can have so many slots, and at least two entries."""
    rest = file_bytes - INDEX_HEADER_BYTES - hash_slots * INDEX_SLOT_BYTES
    return hash_slots > 0 and rest % INDEX_ENTRY_BYTES == 0 and rest >= 2 * INDEX_ENTRY_BYTES


def smallest_division(file_bytes: int) -> int:
    """Return the smallest number of slots for that length; the others are in steps of 5."""
    return (file_bytes - INDEX_HEADER_BYTES) // INDEX_SLOT_BYTES % _ENTRY_WORDS or _ENTRY_WORDS


def entries_beside(file_bytes: int, hash_slots: int) -> int:
    return (file_bytes - INDEX_HEADER_BYTES - hash_slots * INDEX_SLOT_BYTES) // INDEX_ENTRY_BYTES


def slots_that_agree(
    paths: Sequence[Path], key_hashes: KeyHashes, *, only: int | None = None
) -> SlotCounts:
    """Return the numbers of slots that fit files of one length; with *only*, try just that one."""
    files = [file for path in paths if (file := _read(path)).entries > 0]
    if not files:
        return SlotCounts((), all_agree=True, has_entries=False)
    if only is not None:
        return _judge(files, [only], key_hashes)
    agreed = SlotCounts((), all_agree=False, has_entries=True)
    for both_ends in (True, False):
        candidates = sorted({number for file in files for number in _candidates(file, both_ends)})
        if len(candidates) > _MOST_CHECKED:
            return SlotCounts(tuple(candidates), all_agree=True, has_entries=True)
        agreed = _judge(files, candidates, key_hashes)
        if agreed.counts and agreed.all_agree:
            break
    return agreed


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
    # Begin and end physical offset; words 8 and 9 are slots used and next entry.
    begin, end = (int.from_bytes(head[at : at + 8], "big", signed=True) for at in (16, 24))
    slots_used, next_entry = words[8].item(), words[9].item()
    most = (len(words) - _HEADER_WORDS) // _ENTRY_WORDS
    return _File(words, begin, end, slots_used, min(max(next_entry, 1), most) - 1)


def _candidates(file: _File, both_ends: bool) -> list[int]:  # noqa: FBT001 - two passes, one loop
    """Return the numbers of slots by which the first and last entry, or one, has its offset."""
    smallest = smallest_division(4 * len(file.words))
    # Entry 0 is never used, so the entries take one place more than there are.
    largest = len(file.words) - _HEADER_WORDS - _ENTRY_WORDS * (file.entries + 1)
    candidates: list[int] = []
    for start in range(smallest, largest + 1, _BLOCK * _ENTRY_WORDS):
        numbers = np.arange(
            start, min(start + _BLOCK * _ENTRY_WORDS, largest + 1), _ENTRY_WORDS, dtype=np.int64
        )
        first = _is_entry(file, numbers, 1, file.begin_offset)
        last = _is_entry(file, numbers, file.entries, file.end_offset)
        candidates += numbers[first & last if both_ends else first | last].tolist()
        if len(candidates) > _MOST_CHECKED:
            break
    return candidates


def _is_entry(
    file: _File, slot_counts: npt.NDArray[np.int64], entry: int, physical_offset: int
) -> npt.NDArray[np.bool_]:
    """Return for which numbers of slots that entry may be one for *physical_offset*."""
    words, at = file.words, _HEADER_WORDS + slot_counts + _ENTRY_WORDS * entry
    high, low = np.frombuffer(physical_offset.to_bytes(8, "big", signed=True), _WORD).tolist()
    hashes = words[at].astype(np.int64)
    heads = words[_HEADER_WORDS + np.maximum(hashes, 0) % slot_counts]
    matches: npt.NDArray[np.bool_] = (words[at + 1] == high) & (words[at + 2] == low)
    return matches & (hashes >= 0) & (heads >= entry) & (heads <= file.entries)


def _agreement(file: _File, hash_slots: int, key_hashes: KeyHashes) -> float:
    """Return which part of the file is consistent with *hash_slots*: 0 to 1."""
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
    # A slot of a file that was checked in part may name an entry behind that part.
    whole = checked == file.entries
    good_heads = heads == newest if whole else (heads >= newest) & (heads <= file.entries)
    return min(
        float((before == expected).mean()),
        float(good_heads.mean()),
        _agreement_with_log(rows, key_hashes),
    )


def _agreement_with_log(rows: _Words, key_hashes: KeyHashes) -> float:
    """Return which part of some entries leads to a record with a key of their hash."""
    asked = agreed = 0
    for number in np.unique(np.linspace(0, len(rows) - 1, _CHECKED_RECORDS).astype(int)).tolist():
        raw = rows[number].tobytes()
        hashes = key_hashes(int.from_bytes(raw[4:12], "big", signed=True))
        if hashes is not None:
            asked += 1
            agreed += int.from_bytes(raw[:4], "big") in hashes
    return agreed / asked if asked else 1.0

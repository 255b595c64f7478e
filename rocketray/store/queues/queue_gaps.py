"""Queue offsets that no message has and none will get: the gaps that recovery leaves.

A power failure takes the messages that were not flushed, and groups, checkpoints and programs may
know their queue offsets. If these were given to other messages, the others would count as finished.
So recovery continues the queue behind every offset that may have been given. No entry is stored in
a gap: its part of the files is zeros, without blocks on disk.

``gaps.json``, in the store's directory, is written before the queue continues:

    {"version": 1, "queues": {"Trade/0": [[12, 1036]]}}

If it is lost, a repair finds the gaps again: the queue offsets in the log leave them out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from rocketray.errors import CorruptRecordError
from rocketray.file_form import FileForm
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem, replace_file

__all__ = ["GAPS_FILE", "NO_GAPS", "QueueGaps", "gaps_of", "read_gaps", "write_gaps"]

GAPS_FILE = "gaps.json"
_FORM = FileForm(GAPS_FILE)
_MAX_BYTES = 64 * 1024 * 1024
_OFFSET_MAX = 1 << 58  # of a queue's file, in entries


class QueueGaps:
    """The gaps of one queue. Immutable; ``pairs`` are (first offset, offset behind), ascending."""

    __slots__ = ("_starts", "pairs")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        """Take *pairs* in any order; those that touch are one gap."""
        merged: list[tuple[int, int]] = []
        for start, stop in sorted(pair for pair in pairs if pair[0] < pair[1]):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(stop, merged[-1][1])
            else:
                merged.append((start, stop))
        self.pairs = tuple(merged)
        self._starts = tuple(start for start, _ in merged)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueueGaps) and self.pairs == other.pairs

    def __hash__(self) -> int:
        return hash(self.pairs)

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def __repr__(self) -> str:
        return f"QueueGaps({list(self.pairs)})"

    def after(self, offset: int) -> int:
        """Return the first offset from *offset* on that is in no gap."""
        number = bisect_right(self._starts, offset) - 1
        return max(offset, self.pairs[number][1]) if number >= 0 else offset

    def before(self, end: int) -> int:
        """Return the last end up to *end* whose previous offset is in no gap."""
        number = bisect_right(self._starts, end - 1) - 1
        if number >= 0 and end <= self.pairs[number][1]:
            return self.pairs[number][0]
        return end

    def between(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of gaps from *start* up to, not including, *stop*."""
        for first, end in self.pairs:
            if first < stop and end > start:
                yield max(first, start), min(end, stop)

    def outside(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges from *start* up to, not including, *stop* that are in no gap."""
        for first, end in self.between(start, stop):
            if start < first:
                yield start, first
            start = end
        if start < stop:
            yield start, stop

    def count(self, start: int, stop: int) -> int:
        """Return how many offsets from *start* up to, not including, *stop* are in no gap."""
        return max(stop - start, 0) - sum(end - first for first, end in self.between(start, stop))

    def find(self, holds: Callable[[int], bool], start: int, stop: int) -> int:
        """Return the first offset from *start* on in no gap for which *holds*: false, then true.

        It is called for offsets in no gap only. *stop* if there is none before it.
        """

        def holds_after(offset: int) -> bool:
            offset = self.after(offset)
            return offset >= stop or holds(offset)

        found = bisect_left(range(stop), x=True, lo=start, key=holds_after)
        return min(self.after(found), stop)

    def ranks(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many offsets in no gap there are before each of *offsets*, none in a gap."""
        pairs = np.array([(0, 0), *self.pairs], np.int64)
        before = np.cumsum(pairs[:, 1] - pairs[:, 0])
        ranks: npt.NDArray[np.int64] = (
            offsets - before[np.searchsorted(pairs[:, 0], offsets, side="right") - 1]
        )
        return ranks

    def back(self, stop: int, count: int) -> int:
        """Return where the last *count* offsets in no gap before *stop* begin; 0 at the least."""
        for first, end in reversed(list(self.outside(0, stop))):
            if end - first >= count:
                return end - count
            count -= end - first
        return 0

    def ahead(self, start: int, count: int) -> int:
        """Return where the next *count* offsets in no gap, from *start* on, end."""
        for first, end in self.outside(start, _OFFSET_MAX):
            if end - first >= count:
                return first + count
            count -= end - first
        return _OFFSET_MAX

    def with_gap(self, start: int, stop: int) -> QueueGaps:
        """Return these gaps and one more."""
        return QueueGaps([*self.pairs, (start, stop)])

    def from_offset(self, offset: int) -> QueueGaps:
        """Return the gaps that reach up to *offset*, or beyond, for a queue that begins there.

        One that ends there says where an empty queue continues: its file may be lost.
        """
        return QueueGaps(pair for pair in self.pairs if pair[1] >= offset)


NO_GAPS = QueueGaps()


def read_gaps(
    directory: Path, file_system: FileSystem = SYSTEM_FILES
) -> dict[tuple[str, int], QueueGaps]:
    """Return the gaps of the queues in the store *directory* that have any.

    Raises:
        CorruptRecordError: the file is damaged.
        UnknownVersionError: a later release wrote it.
    """
    path = directory / GAPS_FILE
    try:
        value = _FORM.content(orjson.loads(file_system.read(path, _MAX_BYTES)), path)
        return {_queue(name): _gaps(pairs) for name, pairs in value["queues"].items()}
    except FileNotFoundError:
        return {}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"{error}; have the gaps found in the log: rocketray store recover {directory}"
        raise CorruptRecordError(str(path), 0, reason) from None


def gaps_of(
    directory: Path, topic: str, queue_id: int, file_system: FileSystem = SYSTEM_FILES
) -> QueueGaps:
    """Return the gaps of one queue of the store *directory*; raise as :func:`read_gaps`."""
    return read_gaps(directory, file_system).get((topic, queue_id), NO_GAPS)


def write_gaps(
    directory: Path, gaps: Mapping[tuple[str, int], QueueGaps], file_system: FileSystem
) -> None:
    """Write the file; durable on return."""
    queues = {f"{topic}/{queue_id}": held.pairs for (topic, queue_id), held in gaps.items()}
    content = orjson.dumps(_FORM.of({"queues": queues}))
    replace_file(file_system, directory / GAPS_FILE, content)


def _queue(name: str) -> tuple[str, int]:
    topic, queue_id = name.rsplit("/", 1)
    return topic, int(queue_id)


def _gaps(pairs: Any) -> QueueGaps:
    checked = [(_offset(start), _offset(stop)) for start, stop in pairs]
    return QueueGaps(checked)


def _offset(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _OFFSET_MAX:
        raise ValueError(f"{value} is no queue offset")
    return value

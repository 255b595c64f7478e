"""Queue offsets that no message has and none will get: the gaps that recovery leaves.

A power failure takes the messages that were not flushed, and groups, checkpoints and programs may
know their queue offsets. If these were given to other messages, the others would count as finished.
So recovery continues the queue behind every offset that may have been given. No entry is stored in
a gap: its part of the files is zeros, without blocks on disk.
Their file: gaps_file.py.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

OFFSET_MAX = 1 << 58  # at 20 bytes an entry its position in the files is below 2**63


@dataclass(frozen=True, slots=True, init=False, repr=False)
class QueueGaps:
    """The gaps of one queue. Immutable."""

    pairs: tuple[tuple[int, int], ...]
    """First offset, and offset behind, of each gap, ascending."""
    _starts: tuple[int, ...] = field(init=False, compare=False)

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        """Take *pairs* in any order; those that touch are one gap."""
        merged: list[tuple[int, int]] = []
        for start, stop in sorted(pair for pair in pairs if pair[0] < pair[1]):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(stop, merged[-1][1])
            else:
                merged.append((start, stop))
        object.__setattr__(self, "pairs", tuple(merged))
        object.__setattr__(self, "_starts", tuple(start for start, _ in merged))

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

    def back(self, stop: int, count: int) -> int:
        """Return where the last *count* offsets in no gap before *stop* begin; 0 at the least."""
        for first, end in reversed(list(self.outside(0, stop))):
            if end - first >= count:
                return end - count
            count -= end - first
        return 0

    def ahead(self, start: int, count: int) -> int:
        """Return where the next *count* offsets in no gap, from *start* on, end."""
        for first, end in self.outside(start, OFFSET_MAX):
            if end - first >= count:
                return first + count
            count -= end - first
        return OFFSET_MAX

    def with_gap(self, start: int, stop: int) -> QueueGaps:
        return QueueGaps([*self.pairs, (start, stop)])

    def from_offset(self, offset: int) -> QueueGaps:
        """Return the gaps that reach up to *offset*, or beyond, for a queue that begins there.

        One that ends there says where an empty queue continues: its file may be lost.
        """
        return QueueGaps(pair for pair in self.pairs if pair[1] >= offset)


NO_GAPS = QueueGaps()

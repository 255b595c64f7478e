"""The division of ranges into tasks: large ranges are split, and small ones share a task.

A task of a Python source costs some 50 milliseconds, as long as reading ten thousand messages and
more. So the ranges of a small micro-batch become one task, unless a number of tasks is asked for.
Messages are counted before the filter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rocketray.broker.fetching.read_plan import Bounds, QueueKey, Range

# Half of what is read in the time that a task costs: a shared task takes little longer than one of
# its own would, for its last queue.
_SHARED_TASK_MESSAGES = 5000


@dataclass(frozen=True, slots=True)
class Division:
    """The least number of tasks, and the most messages of a task; None leaves it to us."""

    min_partitions: int | None = None
    max_records: int | None = None


def divide(
    ranges: Iterable[Range], bounds: Mapping[QueueKey, Bounds], wanted: Division
) -> list[list[Range]]:
    """Return the ranges of each task, in the order of the queues and of their offsets.

    With a least number of tasks there may be a few more of them, since each range is divided in
    parts of one size, and fewer only if there are fewer messages.
    """
    counted = [(part, bounds[part.key].gaps.count(part.start, part.stop)) for part in ranges]
    sizes = [(part, count) for part, count in counted if count]
    total = sum(count for _, count in sizes)
    tasks: list[list[Range]] = []
    room = 0
    for part, count in sizes:
        # ``-(-a // b)`` rounds up.
        pieces = -(-count // (wanted.max_records or total))
        if wanted.min_partitions is not None:
            pieces = max(pieces, min(count, -(-count * wanted.min_partitions // total)))
        if pieces > 1 or count > room or wanted.min_partitions is not None:
            tasks += [[piece] for piece in _split(part, bounds[part.key], count, pieces)]
            room = min(_SHARED_TASK_MESSAGES, wanted.max_records or total)
        else:
            # The last task has room for all of it.
            tasks[-1].append(part)
        room = room - count if pieces == 1 else 0
    return tasks


def _split(part: Range, held: Bounds, count: int, pieces: int) -> list[Range]:
    """Return *part*, which has *count* messages, in pieces whose counts differ by one at most."""
    ends = [held.gaps.ahead(part.start, count * number // pieces) for number in range(1, pieces)]
    return [
        Range(part.key, start, stop)
        for start, stop in zip([part.start, *ends], [*ends, part.stop], strict=True)
    ]

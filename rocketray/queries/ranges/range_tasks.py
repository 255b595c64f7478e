"""The ranges of each task of a query: where they are, and their messages.

Planners make them and tasks read them, in other processes: so they are plain values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from rocketray.broker.fetching.read_plan import DiskPlace, QueueKey, Range, ReadPlan

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskRange:
    """A range of a task, and where its queue is; *is_first* of its topic, in this query."""

    range: Range
    place: DiskPlace
    is_first: bool


TaskRanges = tuple[TaskRange, ...]
"""The ranges of one task, read one after another."""


def placed(
    tasks: Iterable[Iterable[Range]], place: Callable[[QueueKey], DiskPlace], begun: set[str]
) -> list[TaskRanges]:
    """Return the ranges of each task with their places; add the topics to those that *begun*.

    The first range of each topic checks the filter for mistakes.
    """
    found = []
    for parts in tasks:
        ranges = []
        for part in parts:
            topic = part.key[0]
            ranges.append(TaskRange(part, place(part.key), is_first=topic not in begun))
            begun.add(topic)
        found.append(tuple(ranges))
    return found


def read_ranges(ranges: TaskRanges, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Return the matching messages of a task, each range in queue order, in the store's types."""
    # Loads kernels, which tasks have and planners do not.
    from rocketray.broker.fetching.reading import read_part  # noqa: PLC0415

    warn = logger.warning
    return chain.from_iterable(
        read_part(part.place, plan, part.range, warn, is_first=part.is_first) for part in ranges
    )

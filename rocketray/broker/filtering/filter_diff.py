"""Two filters on the same stored messages: what each would deliver, and where they differ.

The verdicts are made on columns (block_verdicts.py); only the examples become objects. No group is
involved, and nothing changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.broker.topics.queue_views import QueueView, open_queues
from rocketray.filters.subscription import Subscription
from rocketray.filters.verdict_values import FilterReason
from rocketray.message import StoredMessage
from rocketray.store.reading.record_spans import EntryColumns

from .block_verdicts import FAILED, MATCHED, REASONS, BlockVerdicts
from .preview import PreviewRange, spans_within

_EVERYTHING = PreviewRange()


@dataclass(frozen=True, slots=True)
class Difference:
    """A message that one filter delivers and the other does not, and what each says of it."""

    message: StoredMessage
    old: FilterReason
    new: FilterReason


@dataclass(frozen=True, slots=True)
class FilterDiff:
    """How many of ``scanned`` messages both filters deliver, or one of them alone.

    ``held`` is the number of messages in the range. On ``old_failed`` and ``new_failed`` messages a
    filter fails, so that they are not delivered. ``lost`` and ``gained`` are the first examples of
    ``only_old`` and ``only_new``, by store time.
    """

    held: int
    scanned: int
    both: int
    only_old: int
    only_new: int
    old_failed: int
    new_failed: int
    lost: tuple[Difference, ...]
    gained: tuple[Difference, ...]


def diff_filters(
    directory: Path | Sequence[Path],
    topic: str,
    filters: tuple[Subscription, Subscription],
    within: PreviewRange = _EVERYTHING,
    begins: Mapping[int, int] | None = None,
    *,
    show: int,
) -> FilterDiff:
    """Compare the old and the new of *filters* on *topic* in *directory* (see :mod:`.queue_views`).

    Each queue is read from its offset in *begins* on, if it has one. At most *show* examples of
    each difference are kept.

    Raises:
        FilterError: a filter cannot be used.
        StoreError: there is no such topic, or its files are damaged.
        ConfigError: there is no such queue.
    """
    comparison = _Comparison(filters, show)
    with open_queues(directory, topic) as views:
        spans = [
            (view, max(start, (begins or {}).get(view.queue_id, start)), stop)
            for view, start, stop in spans_within(views, within)
        ]
        left = math.inf if within.limit is None else within.limit
        for view, start, stop in spans:
            end = int(min(stop, start + left))
            comparison.scan(view, start, end)
            left -= max(end - start, 0)
    return comparison.result(sum(max(stop - start, 0) for _, start, stop in spans))


class _Comparison:
    """The counts so far, and the first examples of each queue."""

    def __init__(self, filters: tuple[Subscription, Subscription], show: int) -> None:
        self._old, self._new = map(BlockVerdicts, filters)
        self._block_max = min(self._old.block_max, self._new.block_max)
        self._show = show
        self._scanned = self._both = 0
        self._failed = np.zeros(2, np.int64)
        self._only = np.zeros(2, np.int64)
        self._examples: tuple[list[Difference], list[Difference]] = [], []

    def scan(self, view: QueueView, start: int, stop: int) -> None:
        """Compare on the messages of a queue from offset *start* to *stop*, exclusive."""
        room = [self._show, self._show]
        for first in range(start, stop, self._block_max):
            entries = view.reader.entries(first, min(first + self._block_max, stop))
            self._compare(view, entries.without_holes(), room)

    def _compare(self, view: QueueView, entries: EntryColumns, room: list[int]) -> None:
        reasons = [each.reasons(view.reader, entries) for each in (self._old, self._new)]
        old, new = (found == MATCHED for found in reasons)
        self._scanned += len(entries)
        self._both += int(np.count_nonzero(old & new))
        self._failed += [np.count_nonzero(np.isin(found, FAILED)) for found in reasons]
        for number, is_only in enumerate((old & ~new, new & ~old)):
            self._only[number] += np.count_nonzero(is_only)
            places = np.flatnonzero(is_only)[: room[number]]
            room[number] -= len(places)
            self._examples[number].extend(_differences(view, entries, places, reasons))

    def result(self, held: int) -> FilterDiff:
        """Return all of it; *held* messages are in the range."""
        lost, gained = (
            tuple(sorted(examples, key=lambda one: one.message.store_timestamp_ms)[: self._show])
            for examples in self._examples
        )
        only_old, only_new = map(int, self._only)
        old_failed, new_failed = map(int, self._failed)
        return FilterDiff(
            held=held,
            scanned=self._scanned,
            both=self._both,
            only_old=only_old,
            only_new=only_new,
            old_failed=old_failed,
            new_failed=new_failed,
            lost=lost,
            gained=gained,
        )


def _differences(
    view: QueueView,
    entries: EntryColumns,
    places: npt.NDArray[np.intp],
    reasons: list[npt.NDArray[np.uint8]],
) -> Iterator[Difference]:
    messages = view.reader.messages(entries.select(places))
    for place, message in zip(places, messages, strict=True):
        old, new = (REASONS[found[place]] for found in reasons)
        yield Difference(message, old, new)

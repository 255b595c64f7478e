"""Preview of a filter on stored messages, without a group, offsets or a running node.

The messages are scanned in blocks (block_scan.py); only those that are shown become objects.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocketray.base.property_string import decode_properties
from rocketray.broker.topics.queue_views import QueueView, open_queues
from rocketray.errors import ConfigError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.sql92.advice import Sample
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage
from rocketray.store.reading.reader import QueueReader

from .block_scan import BlockScan


@dataclass(frozen=True, slots=True)
class PreviewRange:
    """The messages to scan; offsets are those of each queue, times are store times.

    ``limit`` bounds the number of scanned messages, over all queues.
    """

    begin_offset: int = 0
    end_offset: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    queue_id: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of a preview.

    ``counters`` are those of a group that consumed the range: its ``delivered`` matched. ``held``
    is the number of messages in the range, ``bytes_read`` the size of the queue entries and records
    that were read, ``matches`` the first ones, ``error`` the error of the first failing predicate
    call.
    """

    counters: FilterCounters
    held: int
    bytes_read: int
    matches: tuple[StoredMessage, ...]
    error: str


def preview(
    directory: Path | Sequence[Path],
    topic: str,
    subscription: Subscription,
    within: PreviewRange,
    *,
    show: int,
) -> Preview:
    """Scan *topic* in *directory* (see :mod:`.queue_views`) and keep the first *show* matches.

    Raises:
        FilterError: the subscription cannot be used.
        StoreError: there is no such topic, or its files are damaged.
        ConfigError: there is no such queue.
    """
    scan = BlockScan(MessageFilter(subscription))
    matches: list[StoredMessage] = []
    with open_queues(directory, topic) as views:
        spans = spans_within(views, within)
        left = math.inf if within.limit is None else within.limit
        for view, start, stop in spans:
            end = int(min(stop, start + left))
            matches += _first_matches(scan, view.reader, start, end, show)
            left -= end - start
    shown = sorted(matches, key=lambda message: message.store_timestamp_ms)[:show]
    held = sum(stop - start for _, start, stop in spans)
    return Preview(scan.counters, held, scan.bytes_read, tuple(shown), scan.error)


def sample_recent(directory: Path, topic: str, names: Iterable[str], count: int) -> Sample:
    """Return the properties of the newest *count* messages of *topic*, evenly over its queues."""
    wanted = sorted(names)
    columns: dict[str, list[str | None]] = {name: [] for name in wanted}
    seen: set[str] = set()
    sampled = 0
    with open_queues(directory, topic) as views:
        share = math.ceil(count / len(views))
        for view in views:
            first = max(view.minimum, view.reader.gaps.back(view.maximum, share))
            entries = view.reader.entries(first, max(first, view.maximum))
            for text in view.reader.property_strings(entries):
                properties = decode_properties(text)
                seen |= properties.keys()
                sampled += 1
                for name in wanted:
                    columns[name].append(properties.get(name))
    return Sample(sampled, frozenset(seen), columns)


def spans_within(
    views: Sequence[QueueView], within: PreviewRange
) -> list[tuple[QueueView, int, int]]:
    """Return the ranges of offsets to scan, each with its queue; no gap is within one.

    Raises:
        ConfigError: there is no such queue.
    """
    return [
        (view, *span)
        for view in _chosen(views, within.queue_id)
        for span in view.reader.gaps.outside(*_span(view, within))
    ]


def _first_matches(
    scan: BlockScan, reader: QueueReader, start: int, stop: int, show: int
) -> list[StoredMessage]:
    kept: list[StoredMessage] = []
    for first in range(start, stop, scan.block_max):
        matches = scan.matches(reader, first, min(first + scan.block_max, stop))
        kept += reader.messages(matches.select(slice(0, show - len(kept))))
    return kept


def _chosen(views: Sequence[QueueView], queue_id: int | None) -> list[QueueView]:
    chosen = [view for view in views if queue_id in (None, view.queue_id)]
    if not chosen:
        there = ", ".join(str(view.queue_id) for view in views)
        raise ConfigError(f"the topic has no queue {queue_id}; its queues are {there}")
    return chosen


def _span(view: QueueView, within: PreviewRange) -> tuple[int, int]:
    start, stop = max(view.minimum, within.begin_offset), view.maximum
    if within.begin_ms is not None:
        start = max(start, view.first_stored_at(within.begin_ms))
    if within.end_offset is not None:
        stop = min(stop, within.end_offset)
    if within.end_ms is not None:
        stop = min(stop, view.first_stored_at(within.end_ms + 1))
    return start, max(start, stop)

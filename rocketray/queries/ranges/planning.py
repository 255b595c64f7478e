"""The plan of a query: ranges of queue offsets, computed from options, offsets and bounds.

Pure: the same arguments give the same ranges, so a batch that is planned again after a restart
reads the same messages.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

from rocketray.broker.fetching.read_plan import Bounds, QueueKey, Range, check_loss
from rocketray.errors import ConfigError

from .offset_rules import QueueOffsets

logger = logging.getLogger(__name__)


def plan_batch(starts: QueueOffsets, ends: QueueOffsets) -> list[Range]:
    """Return the ranges of a batch query.

    Raises:
        ConfigError: a queue would start after its end.
    """
    for (topic, queue_id), start in starts.items():
        end = ends[topic, queue_id]
        if start > end:
            raise ConfigError(
                f"topic {topic!r} queue {queue_id}: the query would start at {start}, which is "
                f"after its end, {end}; give an earlier start or a later end"
            )
    return [Range(key, start, ends[key]) for key, start in starts.items() if start < ends[key]]


@dataclass(slots=True)
class BatchPace:
    """When a micro-batch may begin: with *least* messages, or *delay_s* after the last one began.

    The first one of a run begins at once.
    """

    least: int
    delay_s: float
    _began_s: float = -math.inf

    def least_now(self, now_s: float) -> int:
        """Return how many messages have to wait for a micro-batch to begin."""
        return self.least if self.left_s(now_s) else 1

    def left_s(self, now_s: float) -> float:
        """Return the time until any message begins a micro-batch."""
        return max(self._began_s + self.delay_s - now_s, 0)

    def begin(self, now_s: float) -> None:
        self._began_s = now_s


def next_ends(
    starts: Mapping[QueueKey, int],
    ends: Mapping[QueueKey, int],
    bounds: Mapping[QueueKey, Bounds],
    limit: int | None,
) -> QueueOffsets:
    """Return the ends of the next micro-batch of about *limit* messages on the way to *ends*.

    The queues share it in proportion to their backlogs. Each with a backlog gives at least one
    message, so that a short queue does not starve beside a long one; the sum exceeds the limit by
    at most one message a queue.
    """
    begins, waiting = _backlogs(starts, ends, bounds)
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return dict(ends)
    return {
        # The share is rounded down, but is 1 at least; the end bounds it where the queue has gaps.
        key: min(
            bounds[key].gaps.ahead(begins[key], max(1, count * limit // total)) if count else end,
            end,
        )
        for (key, count), end in zip(waiting.items(), ends.values(), strict=True)
    }


def count_waiting(starts: Mapping[QueueKey, int], bounds: Mapping[QueueKey, Bounds]) -> int:
    """Return how many messages a query that has come to *starts* has not read."""
    ends = {key: held.visible for key, held in bounds.items()}
    return sum(_backlogs(starts, ends, bounds)[1].values())


def plan_stream(
    starts: Mapping[QueueKey, int],
    ends: Mapping[QueueKey, int],
    bounds: Mapping[QueueKey, Bounds],
    *,
    fail_on_data_loss: bool,
) -> list[Range]:
    """Return the ranges of a micro-batch; a queue missing in *starts* is new and read whole.

    Raises:
        StoreError: messages of the range are gone, and data loss is an error.
    """
    ranges = []
    for key, end in ends.items():
        # A queue that does not exist any more holds nothing.
        held = bounds.get(key, Bounds(0, 0))
        start = starts.get(key, held.minimum)
        if start < min(end, held.minimum):
            check_loss(key, start, held, fail=fail_on_data_loss, warn=logger.warning)
        # Where an end is before its start, the log was shorter, and the query continues from there.
        first, stop = max(start, held.minimum), min(end, held.visible)
        if first < stop:
            ranges.append(Range(key, first, stop))
    return ranges


def _backlogs(
    starts: Mapping[QueueKey, int], ends: Mapping[QueueKey, int], bounds: Mapping[QueueKey, Bounds]
) -> tuple[QueueOffsets, QueueOffsets]:
    """Return where each queue of *ends* is read from, and how many messages it has to its end."""
    begins: QueueOffsets = {}
    waiting: QueueOffsets = {}
    for key, end in ends.items():
        held = bounds.get(key, Bounds(end, end))
        begins[key] = min(held.start_from(starts.get(key, held.minimum)), end)
        waiting[key] = held.gaps.count(begins[key], end)
    return begins, waiting

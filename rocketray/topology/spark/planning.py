"""The plan of a query: ranges of queue offsets, computed from options, offsets and bounds.

Pure: the same arguments give the same ranges, so a batch that is planned again after a restart
reads the same messages.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rocketray.actors.fetching.read_plan import Bounds, QueueKey, Range, check_loss
from rocketray.errors import ConfigError

from .offset_rules import (
    EARLIEST,
    LATEST,
    OffsetRule,
    QueueOffsets,
    resolve_rule,
)
from .source_options import SourceOptions

__all__ = ["next_ends", "plan_batch", "plan_stream"]

logger = logging.getLogger(__name__)


def plan_batch(options: SourceOptions, bounds: Mapping[QueueKey, Bounds]) -> list[Range]:
    """Return the ranges of a batch query.

    Raises:
        ConfigError: a queue would start after its end, or does not exist.
        OffsetOutOfRangeError: a named offset is not in its queue.
    """
    starts = resolve_rule(options.starting or OffsetRule(EARLIEST, {}), bounds, "startingOffsets")
    ends = resolve_rule(options.ending or OffsetRule(LATEST, {}), bounds, "endingOffsets")
    for key, start in starts.items():
        if start > ends[key]:
            raise ConfigError(
                f"topic {key[0]!r} queue {key[1]}: startingOffsets gives {start}, which is after "
                f"the endingOffsets, {ends[key]}"
            )
    return [Range(key, start, ends[key]) for key, start in starts.items() if start < ends[key]]


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
    begins: QueueOffsets = {}
    waiting: QueueOffsets = {}
    for key, end in ends.items():
        held = bounds.get(key, Bounds(end, end))
        begins[key] = min(held.start_from(starts.get(key, held.minimum)), end)
        waiting[key] = held.gaps.count(begins[key], end)
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return dict(ends)
    return {
        key: min(
            bounds[key].gaps.ahead(begins[key], max(1, count * limit // total)) if count else end,
            end,
        )
        for (key, count), end in zip(waiting.items(), ends.values(), strict=True)
    }


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
        held = bounds.get(key, Bounds(0, 0))
        start = starts.get(key, held.minimum)
        lost_at = _lost_at(start, end, held)
        if lost_at is not None:
            check_loss(key, lost_at, held, fail=fail_on_data_loss, warn=logger.warning)
        first = held.minimum if start > end else max(start, held.minimum)
        stop = min(end, held.visible)
        if first < stop:
            ranges.append(Range(key, first, stop))
    return ranges


def _lost_at(start: int, end: int, held: Bounds) -> int | None:
    """Return a position of the range that the queue no longer has, or None."""
    if start > end:  # offsets only grow, unless the queue was created again
        return start
    if end > held.visible:
        return end
    return start if start < min(end, held.minimum) else None

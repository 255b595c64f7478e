"""The messages that a filter rejects, or on which it fails, each with the part that decided it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from rocketray.broker.topics.queue_views import QueueView, open_queues
from rocketray.filters.filter_verdict import deciding_step, explain_filter
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import Subscription

from .block_verdicts import FAILED, MATCHED, BlockVerdicts
from .preview import PreviewRange, spans_within
from .seen_messages import SeenMessage


def left_out(
    directory: Path | Sequence[Path],
    topic: str,
    subscription: Subscription,
    within: PreviewRange,
    *,
    show: int,
    only_failed: bool = False,
) -> list[SeenMessage]:
    """Return the first *show* messages that *subscription* does not deliver, by store time.

    Raises as :func:`~.preview.preview`. A queue is scanned until it has that many.
    """
    search = _Search(subscription, only_failed=only_failed)
    messages: list[SeenMessage] = []
    with open_queues(directory, topic) as views:
        left = math.inf if within.limit is None else within.limit
        for view, start, stop in spans_within(views, within):
            end = int(min(stop, start + left))
            messages += search.first(view, start, end, show)
            left -= end - start
    return sorted(messages, key=lambda seen: seen.message.store_timestamp_ms)[:show]


class _Search:
    """The filter, in both forms: on columns, and on one message."""

    def __init__(self, subscription: Subscription, *, only_failed: bool) -> None:
        self._verdicts = BlockVerdicts(subscription)
        self._filter = MessageFilter(subscription)
        self._only_failed = only_failed

    def first(self, view: QueueView, start: int, stop: int, show: int) -> Iterator[SeenMessage]:
        """Yield the first *show* of a queue from offset *start* to *stop*, exclusive."""
        for first in range(start, stop, self._verdicts.block_max):
            entries = view.reader.entries(first, min(first + self._verdicts.block_max, stop))
            entries = entries.without_holes()
            reasons = self._verdicts.reasons(view.reader, entries)
            is_wanted = np.isin(reasons, FAILED) if self._only_failed else reasons != MATCHED
            picked = entries.select(np.flatnonzero(is_wanted)[:show])
            show -= len(picked)
            codes = picked.tags_codes.tolist()
            for message, code in zip(view.reader.messages(picked), codes, strict=True):
                verdict = explain_filter(
                    self._filter.subscription,
                    message,
                    code,
                    lambda _, record: self._filter.matches_record(record),
                )
                yield SeenMessage(message, verdict.reason, deciding_step(verdict))
            if not show:
                return

"""The lag of a group: messages that it still has to get, without those that its filter rejects.

A stored message matches a filter or does not, for ever. So matches are counted once for each block
of a queue, and the counts are kept. A question then costs two partial blocks and the blocks that
were not counted before. Of these it counts a bounded number, and its answer says if there were
more.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rocketray.actors.files.paths import control_path, shard_directory
from rocketray.actors.groups.group_descriptions import GroupDescription, LiveSubscription
from rocketray.actors.ipc.control_page import ControlPage
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import Subscription
from rocketray.store.files.store_settings import settle_config
from rocketray.store.queues.ext_reader import BitTest
from rocketray.store.queues.gaps_file import gaps_of
from rocketray.store.reading.reader import QueueReader

from .filter_stream import scan_block
from .filtered_lag import Exactness, FilteredLag
from .shard_bitmaps import StreamBits

__all__ = ["LagCounter"]

_BLOCK_ENTRIES = 16_384
_NEW_BLOCKS_MAX = {"TAG": 512, "SQL92": 64}  # per question: 8 million entries, a million records
_KEPT_BLOCKS = 65_536


class _Block(NamedTuple):
    store_host: tuple[str, int]  # unique to a shard, so a recreated topic is told apart
    subscription: Subscription
    number: int


class LagCounter:
    """Lag counts for the shards of one data directory. Safe to use from several threads."""

    def __init__(self, data: Path, *, block_entries: int = _BLOCK_ENTRIES) -> None:
        self._data = data
        self._block_entries = block_entries
        self._counts: OrderedDict[_Block, int] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, group: GroupDescription) -> dict[int, FilteredLag]:
        """Return the lag of a group in each queue of its topic that has an offset."""
        return {queue: self._of(group, queue, offset) for queue, offset in group.offsets.items()}

    def _of(self, group: GroupDescription, queue_id: int, offset: int) -> FilteredLag:
        try:
            control = ControlPage(control_path(self._data, group.topic, queue_id))
        except FileNotFoundError:  # the queue does not exist yet, or is closed
            return FilteredLag(0, 0, Exactness.AT_LEAST)
        stop = control.visible()
        start = min(max(offset, control.minimum()), stop)
        wanted = LiveSubscription(group.group, group.topic, group.subscription, 0)
        plan = group.plan
        if plan is None or queue_id not in plan.switches:
            return self._count(wanted, queue_id, start, stop)
        at = min(max(plan.switches[queue_id], start), stop)
        old = self._count(wanted, queue_id, start, at)
        new = self._count(wanted._replace(subscription=plan.new), queue_id, at, stop)
        worse = max(old.exactness, new.exactness, key=list(Exactness).index)
        return FilteredLag(old.count + new.count, old.diff + new.diff, worse)

    def _count(self, wanted: LiveSubscription, queue_id: int, start: int, stop: int) -> FilteredLag:
        """Return the lag of a subscription from *start* up to, not including, *stop*."""
        subscription, topic = wanted.subscription, wanted.topic
        kind = subscription.expression_type
        if start == stop:
            return FilteredLag(0, 0, Exactness.EXACT)
        directory = shard_directory(self._data, topic, queue_id)
        gaps = gaps_of(directory, topic, queue_id)
        diff = gaps.count(start, stop)
        if kind == "CLASS":
            return FilteredLag(diff, diff, Exactness.UNFILTERED)
        matcher = MessageFilter(subscription)
        host = settle_config(directory, None, read_only=True).store_host
        control = ControlPage(control_path(self._data, topic, queue_id))
        test = StreamBits(directory, control, wanted).test()
        count, left = 0, _NEW_BLOCKS_MAX[kind]
        with QueueReader(directory, topic, queue_id) as reader:
            parts = [part for each in gaps.outside(start, stop) for part in self._parts(*each)]
            for first, end in parts:
                block = _Block(host, subscription, first // self._block_entries)
                is_whole = end - first == self._block_entries
                found = self._kept(block) if is_whole else None
                if found is None:
                    if left == 0:
                        return FilteredLag(count, diff, Exactness.AT_LEAST)
                    left -= 1
                    found = _matches(matcher, reader, first, end, test)
                    if is_whole:
                        self._keep(block, found)
                count += found
        return FilteredLag(count, diff, Exactness.EXACT)

    def _parts(self, start: int, stop: int) -> Sequence[tuple[int, int]]:
        """Return the range, split where blocks end."""
        size = self._block_entries
        cuts = [start, *range(start - start % size + size, stop, size), stop]
        return [(first, end) for first, end in pairwise(cuts) if first < end]

    def _kept(self, block: _Block) -> int | None:
        with self._lock:
            if block in self._counts:
                self._counts.move_to_end(block)
            return self._counts.get(block)

    def _keep(self, block: _Block, count: int) -> None:
        with self._lock:
            self._counts[block] = count
            while len(self._counts) > _KEPT_BLOCKS:
                self._counts.popitem(last=False)


def _matches(
    matcher: MessageFilter, reader: QueueReader, start: int, stop: int, test: BitTest | None
) -> int:
    """Count the messages from *start* up to, not including, *stop* that a consumer would get."""
    tags, count = matcher.subscription.exact_tags, 0
    while start < stop:
        entries, counters = scan_block(matcher, reader, start, stop, test)
        count += int(np.count_nonzero(reader.have_tags(entries, tags))) if tags else len(entries)
        start += counters.scanned
    return count

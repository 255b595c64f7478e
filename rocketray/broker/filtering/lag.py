"""The lag of a group: messages that it still has to get, without those that its filter rejects.

A stored message matches a filter or does not, for ever. So matches are counted once for each block
of a queue, and the counts are kept. A question then costs two partial blocks and the blocks that
were not counted before. Of these it counts a bounded number, and its answer says if there were
more. The last answer about each queue is kept, too: while neither the queue nor the group moves,
which holds for most of thousands of queues, only the control page is read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from rocketray.errors import CorruptRecordError, OffsetOutOfRangeError, StoreError, StreamError
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import GroupDescription, LiveSubscription
from rocketray.kernels.spans import Field
from rocketray.runtime.files.paths import control_path, shard_directory
from rocketray.runtime.ipc.control_page import ControlPage
from rocketray.store.queues.ext_reader import BitTest
from rocketray.store.reading.reader import QueueReader

from .filter_stream import scan_block
from .filtered_lag import Exactness, FilteredLag
from .shard_bitmaps import StreamBits

_BLOCK_ENTRIES = 16_384  # as a step of a filter has (SCAN_MAX)
# Some 35 ms at 240 M entries a second, and 0.16 s at 6.6 M records, in a thread of the filter
# actor.
_NEW_BLOCKS_MAX = {"TAG": 512, "SQL92": 64}  # per question: 8 million entries, a million records
_KEPT_BLOCKS = 65_536  # the counts of a billion messages, each by one filter
_KEPT_ANSWERS = 65_536  # 4,000 queues with 16 groups each
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Block(NamedTuple):
    store_host: tuple[str, int]  # unique to a shard, so a recreated topic is told apart
    subscription: Subscription
    number: int


class _Question(NamedTuple):
    group: str  # others with the same filter have offsets of their own
    topic: str
    queue_id: int
    subscription: Subscription
    switch: tuple[int, Subscription] | None  # of a change of the subscription in progress


class _Place(NamedTuple):
    """What an answer holds for: a recreated queue has another control page."""

    inode: int
    changed_ns: int
    start: int
    stop: int


class _Kept(Generic[_Key, _Value]):
    """The values that were used last. Safe to use from several threads."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._values: OrderedDict[_Key, _Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _Key) -> _Value | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: _Key, value: _Value) -> None:
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._count:
                self._values.popitem(last=False)


class LagCounter:
    """Lag counts for the shards of one data directory. Safe to use from several threads."""

    def __init__(self, data: Path, *, block_entries: int = _BLOCK_ENTRIES) -> None:
        self._data = data
        self._block_entries = block_entries
        self._counts = _Kept[_Block, int](_KEPT_BLOCKS)
        self._answers = _Kept[_Question, tuple[_Place, FilteredLag]](_KEPT_ANSWERS)

    def of(self, group: GroupDescription) -> dict[int, FilteredLag]:
        """Return the lag of a group in each queue of its topic that has an offset."""
        return {queue: self._of(group, queue, offset) for queue, offset in group.offsets.items()}

    def of_each(
        self, groups: Sequence[GroupDescription]
    ) -> list[dict[int, FilteredLag] | StreamError]:
        """Return the lag of each group, or why it is unknown."""
        return [self._or_error(group) for group in groups]

    def _or_error(self, group: GroupDescription) -> dict[int, FilteredLag] | StreamError:
        try:
            return self.of(group)
        except StreamError as error:
            return error
        except OSError as error:
            return StoreError(f"the files of topic {group.topic} cannot be read: {error}")

    def _of(self, group: GroupDescription, queue_id: int, offset: int) -> FilteredLag:
        path = control_path(self._data, group.topic, queue_id)
        try:
            control = ControlPage(path)
            status = path.stat()
        except FileNotFoundError:  # the queue does not exist yet, or is closed
            return FilteredLag(0, 0, Exactness.AT_LEAST)
        stop = control.visible()
        start = min(max(offset, control.minimum()), stop)
        if start == stop:
            return FilteredLag(0, 0, Exactness.EXACT)
        switch, plan = None, group.plan
        if plan is not None and queue_id in plan.switches:
            switch = min(max(plan.switches[queue_id], start), stop), plan.new
        question = _Question(group.group, group.topic, queue_id, group.subscription, switch)
        place = _Place(status.st_ino, status.st_ctime_ns, start, stop)
        kept = self._answers.get(question)
        if kept is not None and kept[0] == place:
            return kept[1]
        lag = self._counted(question, place, control)
        if lag.exactness is not Exactness.AT_LEAST:  # else a repeated question continues
            self._answers.put(question, (place, lag))
        return lag

    def _counted(self, question: _Question, place: _Place, control: ControlPage) -> FilteredLag:
        group, topic, queue_id, subscription, switch = question
        _, _, start, stop = place
        wanted = LiveSubscription(group, topic, subscription, 0)
        with QueueReader(shard_directory(self._data, topic, queue_id), topic, queue_id) as reader:
            count = partial(self._count, reader, control)
            oldest_ms = _store_time(reader, start, stop)
            if switch is None:
                return replace(count(wanted, start, stop), oldest_ms=oldest_ms)
            at, after = switch
            old = count(wanted, start, at)
            new = count(wanted._replace(subscription=after), at, stop)
        worse = max(old.exactness, new.exactness, key=list(Exactness).index)
        return FilteredLag(old.count + new.count, old.diff + new.diff, worse, oldest_ms)

    def _count(
        self,
        reader: QueueReader,
        control: ControlPage,
        wanted: LiveSubscription,
        start: int,
        stop: int,
    ) -> FilteredLag:
        """Return the lag of a subscription from *start* up to, not including, *stop*."""
        subscription = wanted.subscription
        kind = subscription.expression_type
        diff = reader.gaps.count(start, stop)
        if kind == "CLASS":
            return FilteredLag(diff, diff, Exactness.UNFILTERED)
        matcher = MessageFilter(subscription)
        test = StreamBits(reader.directory, control, wanted).test()
        count, left = 0, _NEW_BLOCKS_MAX[kind]
        parts = [part for span in reader.gaps.outside(start, stop) for part in self._parts(*span)]
        for first, end in parts:
            block = _Block(reader.store_host, subscription, first // self._block_entries)
            is_whole = end - first == self._block_entries
            matches = self._counts.get(block) if is_whole else None
            if matches is None:
                if left == 0:
                    return FilteredLag(count, diff, Exactness.AT_LEAST)
                left -= 1
                matches = _matches(matcher, reader, first, end, test)
                if is_whole:
                    self._counts.put(block, matches)
            count += matches
        return FilteredLag(count, diff, Exactness.EXACT)

    def _parts(self, start: int, stop: int) -> Sequence[tuple[int, int]]:
        """Return the range, split where blocks end."""
        size = self._block_entries
        cuts = [start, *range(start - start % size + size, stop, size), stop]
        return [(first, end) for first, end in pairwise(cuts) if first < end]


def _store_time(reader: QueueReader, start: int, stop: int) -> int | None:
    """Return the store time of the first message of a range; None if there is none any more."""
    try:
        for first, _ in reader.gaps.outside(start, stop):
            for part in reader.records(reader.entries(first, first + 1).without_holes()):
                return int(part.fields[Field.STORE_TIMESTAMP, 0])
    except (CorruptRecordError, OffsetOutOfRangeError):  # removed, or damaged
        return None
    return None


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

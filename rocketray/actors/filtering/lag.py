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
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rocketray.actors.files.paths import control_path, shard_directory
from rocketray.actors.groups.group_descriptions import GroupDescription, LiveSubscription
from rocketray.actors.ipc.control_page import ControlPage
from rocketray.filters.message_filter import MessageFilter, compile_filter
from rocketray.filters.subscription import Subscription, parse
from rocketray.store.files.store_settings import settle_config
from rocketray.store.queues.ext_reader import BitTest
from rocketray.store.reading.reader import QueueReader

from .filter_stream import scan_block
from .shard_bitmaps import StreamBits

__all__ = ["Exactness", "FilteredLag", "LagCounter", "LagQuestion", "Switch", "lag_questions"]

_BLOCK_ENTRIES = 16_384
_NEW_BLOCKS_MAX = {"TAG": 512, "SQL92": 64}  # per question: 8 million entries, a million records
_KEPT_BLOCKS = 65_536


class Exactness(Enum):
    """The meaning of a lag's number."""

    EXACT = "exact"
    AT_LEAST = "at_least"  # the limit of blocks was reached
    UNFILTERED = "unfiltered"  # a predicate is not run: all messages that are left


class Switch(NamedTuple):
    """The offset from which on the group reads with another subscription."""

    queue_offset: int
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class LagQuestion:
    """A group in a queue; ``queue_offset`` is the next one that it has not finished.

    From ``switch`` on, if it is given, the group reads with another subscription. ``group`` is the
    group whose bits the queue's filter bitmaps may have.
    """

    topic: str
    queue_id: int
    subscription: Subscription
    queue_offset: int
    switch: Switch | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class FilteredLag:
    """The lag: ``count`` unfinished messages match, of ``diff`` unfinished ones in all."""

    count: int
    diff: int
    exactness: Exactness


@dataclass(frozen=True, slots=True)
class _Block:
    store_host: tuple[str, int]  # unique to a shard, so a recreated topic is told apart
    subscription: Subscription
    number: int


def lag_questions(group: GroupDescription) -> list[LagQuestion]:
    """Return the questions for a group, by queue."""
    plan = group.plan
    switches = {} if plan is None else {q: Switch(at, plan.new) for q, at in plan.switches.items()}
    return [
        LagQuestion(
            group.topic, queue, group.subscription, offset, switches.get(queue), group.group
        )
        for queue, offset in group.offsets.items()
    ]


class LagCounter:
    """Lag counts for the shards of one data directory. Safe to use from several threads."""

    def __init__(self, data: Path, *, block_entries: int = _BLOCK_ENTRIES) -> None:
        self._data = data
        self._block_entries = block_entries
        self._counts: OrderedDict[_Block, int] = OrderedDict()
        self._lock = threading.Lock()

    def answer(self, questions: Sequence[LagQuestion]) -> list[FilteredLag]:
        """Return the lag of each, in order."""
        return [self._answer(question) for question in questions]

    def _answer(self, question: LagQuestion) -> FilteredLag:
        try:
            control = self._control(question)
        except FileNotFoundError:  # the queue does not exist yet, or is closed
            return FilteredLag(0, 0, Exactness.AT_LEAST)
        stop = control.visible()
        start = min(max(question.queue_offset, control.minimum()), stop)
        if question.switch is None:
            return self._count(question, question.subscription, start, stop)
        at = min(max(question.switch.queue_offset, start), stop)
        old = self._count(question, question.subscription, start, at)
        new = self._count(question, question.switch.subscription, at, stop)
        worse = max(old.exactness, new.exactness, key=list(Exactness).index)
        return FilteredLag(old.count + new.count, old.diff + new.diff, worse)

    def _control(self, question: LagQuestion) -> ControlPage:
        return ControlPage(control_path(self._data, question.topic, question.queue_id))

    def _count(
        self, question: LagQuestion, subscription: Subscription, start: int, stop: int
    ) -> FilteredLag:
        """Return the lag of *subscription* from *start* up to, not including, *stop*."""
        kind = subscription.expression_type
        if start == stop:
            return FilteredLag(0, 0, Exactness.EXACT)
        if kind == "CLASS":
            return FilteredLag(stop - start, stop - start, Exactness.UNFILTERED)
        matcher = compile_filter(subscription)
        directory = shard_directory(self._data, question.topic, question.queue_id)
        host = settle_config(directory, None, read_only=True).store_host
        wanted = LiveSubscription(question.group, question.topic, subscription, 0)
        test = StreamBits(directory, self._control(question), wanted).test()
        count, left = 0, _NEW_BLOCKS_MAX[kind]
        with QueueReader(directory, question.topic, question.queue_id) as reader:
            for first, end in self._parts(start, stop):
                block = _Block(host, subscription, first // self._block_entries)
                is_whole = end - first == self._block_entries
                found = self._kept(block) if is_whole else None
                if found is None:
                    if left == 0:
                        return FilteredLag(count, stop - start, Exactness.AT_LEAST)
                    left -= 1
                    found = _matches(matcher, reader, first, end, test)
                    if is_whole:
                        self._keep(block, found)
                count += found
        return FilteredLag(count, stop - start, Exactness.EXACT)

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
    subscription, count = matcher.subscription, 0
    is_tags = subscription.expression_type == "TAG"
    tags = sorted(parse(subscription.expression).tags_set) if is_tags else []
    while start < stop:
        entries, counters = scan_block(matcher, reader, start, stop, test)
        count += int(np.count_nonzero(reader.have_tags(entries, tags))) if tags else len(entries)
        start += counters.scanned
    return count

"""The causes of a whole range of a topic's messages for one group, with counts and examples.

The rules are those of one message (rules.py). They are asked once for each stretch of a queue in
which the group's history is the same, and for each combination of results of the filters that were
in force there. The filters decide on columns. Only examples and messages that the group returned
become objects.

Messages that are not in their queue, such as delayed ones, have no offset. A range without offsets
has rows of their own for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rocketray.base.quantity import agreed, counted
from rocketray.base.system_topics import is_system_topic
from rocketray.broker.filtering.block_verdicts import REASONS, BlockVerdicts
from rocketray.broker.filtering.filter_stream import SCAN_MAX
from rocketray.broker.filtering.preview import PreviewRange, spans_within
from rocketray.broker.shards.shard_api import StoredFacts
from rocketray.broker.topics.queue_views import QueueView, open_queues
from rocketray.errors import ConfigError, OffsetOutOfRangeError
from rocketray.filters.filter_verdict import explain_filter
from rocketray.filters.subscription import Subscription
from rocketray.filters.verdict_values import FilterReason, FilterVerdict
from rocketray.groups.journal.group_journal import JournalEntry
from rocketray.groups.journal.place_history import Happening
from rocketray.hashing import tags_code
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.store.reading.record_spans import EntryColumns

from .arrival import arrival_of
from .cause import Cause
from .explanation import Found
from .inquiry import Inquiry
from .retry_trace import trace_of
from .returned import Returned, find_absent, find_returned
from .rules import GroupFacts, StandsStill, explain_copy, explain_stored

_COPIES_MAX = 100_000  # they are objects, unlike the messages of the range
_ARRIVALS_MAX = 1_000  # each takes some calls
_SEARCH_MAX = 10_000_000  # messages among which copies are looked for
_Codes = npt.NDArray[np.int64]
Told = Callable[[int, int], None]
"""Is told how many messages were explained, and of how many."""


@dataclass(frozen=True, slots=True)
class CauseRow:
    """A cause, the number of its messages, and the first of them that was found."""

    cause: Cause
    count: int
    example: StoredMessage


@dataclass(frozen=True, slots=True)
class CauseTable:
    """The causes, the most frequent one first.

    ``held`` is the number of queue offsets in the range, ``explained`` that of the messages in
    ``rows``. ``notes`` says which part of the range was not read, and why. ``absent`` is the number
    of messages for the topic that were stored in the range of time, but are not in the topic; None
    for a range of offsets, or of one queue. ``absent_rows`` has the causes of these.
    """

    rows: tuple[CauseRow, ...]
    held: int
    explained: int
    notes: tuple[str, ...] = ()
    absent: int | None = None
    absent_rows: tuple[CauseRow, ...] = ()


def explain_range(
    node: NodeClient,
    group: str,
    topic: str,
    within: PreviewRange,
    *,
    tell: Told = lambda _done, _all: None,
    copies_max: int = _COPIES_MAX,
) -> CauseTable:
    """Explain why the messages of *topic* in a range were, or were not, delivered to *group*.

    Reads the files of the node, and imports the group's predicate, if it has one. *within* must
    have a limit.

    Raises:
        ConfigError: there is no such queue, or it is a topic of the node itself.
        NodeElsewhereError: the files are on another machine or on several disks.
        StoreError: there is no such topic, or its files are damaged.
        PredicateError: the predicate cannot be imported.
    """
    assert within.limit is not None
    if is_system_topic(topic) or topic.startswith("%"):
        raise ConfigError(
            f"{topic} holds copies of messages; name the topic to which they were sent, and "
            "their copies are followed"
        )
    inquiry = Inquiry(node, group)  # before the ends of the queues are read
    data = node.files("explaining a range", node.topics.get(topic))
    with open_queues(data, topic) as views:
        spans = spans_within(views, within)
        returned = find_returned(
            data,
            node.topics.all(),
            group,
            topic,
            since_ms=_first_time(spans),
            scan_max=_SEARCH_MAX,
            copies_max=copies_max,
        )
        table = _Table(inquiry, group, topic, returned)
        table.notes += _expired(views, within)
        held, left = sum(stop - start for _, start, stop in spans), within.limit
        for view, start, stop in spans:
            end = min(stop, start + left)
            left -= end - start
            for done in table.take(view, start, end):
                tell(within.limit - left - (end - done), held)
    if held > within.limit:
        table.notes.append(f"only {within.limit:,} of {held:,} messages were explained: --max-scan")
    result = table.result(held)
    if (within.begin_offset, within.end_offset, within.queue_id) != (0, None, None):
        return result
    span_ms = within.begin_ms or 0, within.end_ms
    absent = find_absent(
        data, node.topics.all(), topic, span_ms, scan_max=_SEARCH_MAX, copies_max=copies_max
    )
    rows = _absent_rows(node, absent[:_ARRIVALS_MAX])
    notes = (*result.notes, *_absent(absent, copies_max))
    return replace(result, absent=len(absent), notes=notes, absent_rows=rows)


def _first_time(spans: Sequence[tuple[QueueView, int, int]]) -> int:
    """Return when the first message in *spans* was stored; copies of them are later."""
    firsts = [
        message.store_timestamp_ms
        for view, start, stop in spans
        if start < stop
        for message in view.reader.messages(view.reader.entries(start, start + 1).without_holes())
    ]
    return min(firsts, default=0)


def _expired(views: Sequence[QueueView], within: PreviewRange) -> Iterator[str]:
    """Yield a note for each queue whose first messages have been removed."""
    for view in views:
        if view.minimum > within.begin_offset and within.queue_id in (None, view.queue_id):
            yield (
                f"queue {view.queue_id} begins at offset {view.minimum} now: earlier messages "
                "expired, and are not counted"
            )


def _absent_rows(node: NodeClient, copies: Sequence[StoredMessage]) -> tuple[CauseRow, ...]:
    """Return the causes of messages that are not in their topic, each with the first of them."""
    examples: dict[Cause, StoredMessage] = {}
    counts = Counter[Cause]()
    for copy in copies:
        cause = arrival_of(node, copy).cause
        if cause is not None:  # else it has arrived since
            examples.setdefault(cause, copy)
            counts[cause] += 1
    return tuple(CauseRow(cause, count, examples[cause]) for cause, count in counts.most_common())


def _absent(absent: Sequence[StoredMessage], copies_max: int) -> Iterator[str]:
    if absent:
        least = "at least " if len(absent) >= copies_max else ""
        yield f"{least}{len(absent):,} more for the topic are not in it"
    if len(absent) > _ARRIVALS_MAX:
        yield f"of these, the causes of the first {_ARRIVALS_MAX:,} are shown"


@dataclass(slots=True)
class _Stretch:
    """A part of a queue in which the group's history is the same."""

    view: QueueView
    begin: int
    end: int
    facts: GroupFacts | None
    filters: tuple[Subscription, ...]
    causes: dict[tuple[FilterReason, ...], Cause] = field(default_factory=dict)


class _Table:
    """The sums of the blocks that were read."""

    def __init__(self, inquiry: Inquiry, group: str, topic: str, returned: Returned) -> None:
        self._inquiry = inquiry
        self._group = group
        self._topic = topic
        self._returned = returned
        self._verdicts: Callable[[Subscription], BlockVerdicts] = cache(BlockVerdicts)
        self._without = inquiry.without_subscription(topic)
        self._is_read = inquiry.facts_at(topic, 0, 0) is not None
        self._counts: dict[Cause, int] = {}
        self._examples: dict[Cause, StoredMessage] = {}
        self.notes = list(returned.notes)

    def result(self, held: int) -> CauseTable:
        """Return the causes by count; *held* is the number of queue offsets in the range."""
        order = sorted(self._counts, key=lambda cause: (-self._counts[cause], cause.value))
        rows = [CauseRow(each, self._counts[each], self._examples[each]) for each in order]
        why = [] if self._is_read else [self._without[1].detail]
        return CauseTable(tuple(rows), held, sum(self._counts.values()), (*why, *self.notes))

    def take(self, view: QueueView, start: int, stop: int) -> Iterator[int]:
        """Add the messages from offset *start* to *stop*; yield how far it is."""
        for stretch in self._stretches(view, start, stop):
            verdicts = [self._verdicts(each) for each in stretch.filters]
            step = min((each.block_max for each in verdicts), default=SCAN_MAX)
            for first in range(stretch.begin, stretch.end, step):
                last = min(first + step, stretch.end)
                try:
                    entries = view.reader.entries(first, last)
                    self._add(stretch, verdicts, entries.without_holes())
                except OffsetOutOfRangeError:
                    self._note_loss(view, first, last)
                else:
                    self._note_holes(view, entries)
                yield last

    def _note_loss(self, view: QueueView, first: int, last: int) -> None:
        self.notes.append(
            f"queue {view.queue_id}, offsets {first} to {last - 1}: expired while they were read"
        )

    def _note_holes(self, view: QueueView, entries: EntryColumns) -> None:
        lost = len(entries) - len(entries.without_holes())
        if lost:
            where = f"queue {view.queue_id}, from offset {entries.queue_offsets[0]}"
            missing = f"{counted(lost, 'message')} {agreed(lost, 'were')} lost by damage"
            self.notes.append(f"{where}: {missing}, and {agreed(lost, 'are')} not counted")

    def _stretches(self, view: QueueView, start: int, stop: int) -> Iterator[_Stretch]:
        if start >= stop:
            return
        stops = self._stop_in(view)
        bounds = {start, stop, *self._bounds(view.queue_id)}
        if stops is not None:
            bounds.add(stops.queue_offset)
        ordered = sorted(bound for bound in bounds if start <= bound <= stop)
        for begin, end in pairwise(ordered):
            facts = self._inquiry.facts_at(self._topic, view.queue_id, begin)
            if facts is not None and stops is not None and stops.queue_offset <= begin:
                facts = replace(facts, stands_still=stops if facts.history.is_ahead else None)
            filters = () if facts is None else _filters(facts)
            yield _Stretch(view, begin, end, facts, filters)

    def _bounds(self, queue_id: int) -> Iterator[int]:
        """Yield the offsets at which the group's history may change."""
        facts = self._inquiry.facts_at(self._topic, queue_id, 0)
        if facts is None:
            return
        yield facts.offset
        if facts.failing is not None:
            yield facts.failing.queue_offset
            yield facts.failing.queue_offset + 1
        for entry in self._inquiry.journal:
            if entry.topic == self._topic:
                yield from _bounds_of(entry, queue_id)

    def _stop_in(self, view: QueueView) -> StandsStill | None:
        """Return the first message at which the group's predicate stops it, if that is near."""
        where = self._topic, view.queue_id
        facts = self._inquiry.facts_at(*where, view.minimum)
        if facts is None:
            return None
        facts = self._inquiry.facts_at(*where, max(facts.offset, view.minimum))
        assert facts is not None, "the group reads the topic"
        return self._inquiry.stands_still(*where, view.maximum - 1, facts, view.minimum)

    def _add(
        self, stretch: _Stretch, verdicts: Sequence[BlockVerdicts], entries: EntryColumns
    ) -> None:
        reader = stretch.view.reader
        copies = self._returned.by_queue.get(stretch.view.queue_id, {})
        reasons = [each.reasons(reader, entries) for each in verdicts]
        codes = _combined(reasons, len(entries))
        if copies:
            is_returned = np.isin(entries.physical_offsets, np.array(sorted(copies), np.int64))
            places = np.flatnonzero(is_returned)
            originals = reader.messages(entries.select(places)) if len(places) else []
            for place, message in zip(places.tolist(), originals, strict=True):
                cause = self._of_returned(stretch, copies[int(message.physical_offset)])
                if cause is not None:
                    self._count(cause, 1, partial(_same, message))
                    codes[place] = -1
        found, firsts, counts = np.unique(codes, return_index=True, return_counts=True)
        for code, place, count in zip(
            found.tolist(), firsts.tolist(), counts.tolist(), strict=True
        ):
            if code >= 0:
                combination = tuple(REASONS[each[place]] for each in reasons)
                message_at = partial(_message, stretch.view, entries, place)
                cause = self._of_combination(stretch, combination, message_at)
                self._count(cause, count, message_at)

    def _count(self, cause: Cause, count: int, example: Callable[[], StoredMessage]) -> None:
        self._counts[cause] = self._counts.get(cause, 0) + count
        if cause not in self._examples:
            self._examples[cause] = example()

    def _of_combination(
        self,
        stretch: _Stretch,
        combination: tuple[FilterReason, ...],
        message_at: Callable[[], StoredMessage],
    ) -> Cause:
        """Return the cause of messages of a stretch on which its filters decided like this."""
        if combination in stretch.causes:
            return stretch.causes[combination]
        by = dict(zip(stretch.filters, combination, strict=True))
        facts, message, view = stretch.facts, message_at(), stretch.view
        if facts is not None and facts.stands_still is None and _stops(facts, by):
            facts = replace(facts, stands_still=StandsStill(message.queue_offset, ""))
        # It was read from its queue, so it is dispatched; *by* decides, so no tags code is needed.
        stored = StoredFacts(message, True, None, view.minimum, view.maximum)  # noqa: FBT003
        found = explain_stored(
            stored, self._group, facts, lambda each: FilterVerdict(by[each], ()), self._without
        )
        stretch.causes[combination] = _cause_of(found)
        return stretch.causes[combination]

    def _of_returned(self, stretch: _Stretch, copies: Sequence[StoredMessage]) -> Cause | None:
        """Return the cause of a message of which the group has copies; None if none counts."""
        again = None if stretch.facts is None else stretch.facts.history.again
        retries = trace_of(copies, self._group, 0 if again is None else again.time_ms)
        if retries is None:
            return None
        newest = retries.newest
        place = newest.topic, newest.queue_id, newest.queue_offset
        facts = self._inquiry.facts_at(*place)
        if facts is not None:
            stops = self._inquiry.stands_still(*place, facts, 0)
            facts = replace(facts, stands_still=stops)

        def judge(subscription: Subscription) -> FilterVerdict:
            ask = self._inquiry.ask_predicate
            return explain_filter(subscription, newest, tags_code(newest.tags), ask)

        return _cause_of(explain_copy(retries, facts, judge))


def _filters(facts: GroupFacts) -> tuple[Subscription, ...]:
    """Return the filters that the rules may ask at a place; see rules.py."""
    if facts.is_broadcast:
        return (facts.subscription,)
    history = facts.history
    asked = [each.subscription for each in history.stretches if each.what is Happening.PASSED]
    asked.append(facts.coming if history.is_ahead else history.stretches[-1].subscription)
    return tuple(dict.fromkeys(each or facts.subscription for each in asked))


def _stops(facts: GroupFacts, by: dict[Subscription, FilterReason]) -> bool:
    """Return whether the group will stop at a message, since its predicate fails on it."""
    is_stopping = facts.coming.on_error == "stop" and facts.history.is_ahead
    return (
        is_stopping and not facts.is_broadcast and by.get(facts.coming) is FilterReason.CLASS_ERROR
    )


def _bounds_of(entry: JournalEntry, queue_id: int) -> Sequence[int]:
    return entry.queues.get(queue_id, ())


def _combined(columns: Sequence[npt.NDArray[np.uint8]], count: int) -> _Codes:
    """Return a number for each row, equal for rows that are equal in all *columns* uint8[count]."""
    codes = np.zeros(count, np.int64)
    for column in columns:
        # Numbered again after each column: products of the raw codes would exceed an int64.
        _, codes = np.unique(codes * len(REASONS) + column, return_inverse=True)
    return codes


def _cause_of(found: Iterator[Found]) -> Cause:
    return next(cause for cause, _ in found if cause is not None)


def _message(view: QueueView, entries: EntryColumns, place: int) -> StoredMessage:
    [message] = view.reader.messages(entries.select(slice(place, place + 1)))
    return message


def _same(message: StoredMessage) -> StoredMessage:
    return message

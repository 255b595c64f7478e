"""The history of a group's offsets and filters, as evidence for explanations.

A group's journal has an entry for each event that is not reading: the start in a queue, moves by
an operator, filters that took effect, offsets that went back, deleted topics. Between two entries a
group's offset only advances by reading. So the entries and the present offset show for each message
under which filter the group passed it, or which move skipped it (place_history.py). There is no
entry for a message.

Invariants
  1. An entry is on disk before the event takes effect: the code that changes something notes it
     here, and saves the journals first (journal_file.py).
  2. A journal has at most ``ENTRIES_MAX`` entries and ``BYTES_MAX`` bytes besides its ``STATE``
     entries. Beyond that, entries with the state of that time replace its older half; what was read
     before is unknown afterwards.
  3. If an offset is found behind the one that the journal knows, an entry records that. If a member
     that lived on reports the higher offset, another entry does: then nothing was read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from typing import Any, NamedTuple

import orjson

from rocketray.base.names import QUEUE_COUNT_MAX
from rocketray.errors import StreamError
from rocketray.filters.subscription import Subscription

# Of 500 bytes on average. An explanation reads all of it, and a compaction writes all of it.
ENTRIES_MAX = 1_000
BYTES_MAX = 512 * 1024
ENTRY_MAX_BYTES = 128 * 1024  # 1,024 queues with two offsets each, and 4,096 characters
_WHO_MAX_CHARS = 200  # a command with many queues may be longer
_COORDINATOR = "the coordinator"
_DELETED_MAX = 1_000  # deleted groups that are remembered


class EntryKind(Enum):
    """The kinds of entry; the pairs of offsets of its queues are (before, after)."""

    STATE = "state"
    """The group's offset and filter at that time; earlier reads are unknown."""
    BEGIN = "begin"
    """The group began at an offset, after the messages before it."""
    MOVE = "move"
    """An operator moved the group."""
    FILTER = "filter"
    """From now on the queue is read with this filter, at any offset."""
    SWITCH = "switch"
    """From the second offset on the queue is read with this filter, below it as before."""
    BACK = "back"
    """A member committed an offset below the group's: the end of the queue was lost."""
    RESTART = "restart"
    """A restarted coordinator found a lower offset than its predecessor had, or a member that
    continued meanwhile reported the higher one."""
    TOPIC_DELETED = "topic_deleted"
    GROUP_DELETED = "group_deleted"


_ABOUT_FILTERS = frozenset({EntryKind.FILTER, EntryKind.SWITCH})


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event; ``queues`` maps a queue to the offset before and after it, -1 for none.

    ``who`` is a member's client id, or the command that was given.
    """

    kind: EntryKind
    time_ms: int
    who: str
    topic: str = ""
    queues: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    subscription: Subscription | None = None


class ReadState(NamedTuple):
    """A group's offset after an entry, and its filters, each with the offset at which it begins."""

    offset: int = -1
    filters: tuple[tuple[int, Subscription], ...] = ()

    def after(self, entry: JournalEntry, before: int, behind: int) -> ReadState:
        """Return the state after *entry*, which has these offsets for the queue."""
        if entry.subscription is None:
            return self._replace(offset=behind)
        if entry.kind is not EntryKind.SWITCH:
            return ReadState(behind, ((0, entry.subscription),))
        # Filters that were to begin there or later have never been used.
        kept = tuple(each for each in self.filters if each[0] < behind)
        return ReadState(before, (*kept, (behind, entry.subscription)))

    def filter_at(self, queue_offset: int) -> Subscription | None:
        """Return the filter for the message at *queue_offset*, None if unknown."""
        found = None
        for begin, subscription in self.filters:
            if begin <= queue_offset:
                found = subscription
        return found


States = dict[tuple[str, int], ReadState]


class Unsaved(NamedTuple):
    """The entries of a journal to append, or, with ``is_whole``, to write in place of the file."""

    entries: Sequence[JournalEntry]
    is_whole: bool


class GroupJournal:
    """The entries of one group, oldest first."""

    def __init__(
        self,
        entries: Iterable[JournalEntry] = (),
        *,
        is_cut: bool = False,
        is_certain: bool = True,
    ) -> None:
        """Take the entries of a file.

        *is_cut*: the file has more behind these. Without *is_certain* that included entries, which
        are lost.
        """
        self.entries = list(entries)
        self.states: States = _states(self.entries)
        self.is_certain = is_certain
        self._unsaved = 0
        self._is_whole = is_cut
        self._fixed = _fixed(self.entries)
        self._size = sum(len(encode_entry(entry)) for entry in self.entries[self._fixed :])

    def add(self, entry: JournalEntry) -> None:
        """Append *entry*; the deletion of the group drops all before it."""
        _apply(self.states, entry)
        if entry.kind is EntryKind.GROUP_DELETED:
            self.entries, self._fixed, self._size, self._is_whole = [], 0, 0, True
        self.entries.append(entry)
        self._unsaved += 1
        self._size += len(encode_entry(entry))
        if len(self.entries) - self._fixed > ENTRIES_MAX or self._size > BYTES_MAX:
            self._compact()

    @property
    def is_deleted(self) -> bool:
        """Whether the group was deleted, and none of its name exists since."""
        return bool(self.entries) and self.entries[-1].kind is EntryKind.GROUP_DELETED

    def unsaved(self) -> Unsaved | None:
        """Return what is not on disk yet."""
        if self._is_whole:
            return Unsaved(self.entries, is_whole=True)
        if not self._unsaved:
            return None
        return Unsaved(self.entries[-self._unsaved :], is_whole=False)

    def saved(self) -> None:
        """Note that all entries are on disk."""
        self._unsaved, self._is_whole = 0, False

    def _compact(self) -> None:
        """Replace the older half by the state of that time."""
        sizes = [len(encode_entry(entry)) for entry in self.entries[self._fixed :]]
        dropped, size = 0, 0
        # By number and by size, so that neither limit is met again soon.
        while dropped < len(sizes) // 2 or size < self._size // 2:
            size += sizes[dropped]
            dropped += 1
        end = self._fixed + dropped
        states, last = _states(self.entries[:end]), self.entries[end - 1]
        fixed = list(_state_entries(states, last.time_ms))
        self.entries[:end] = fixed
        self._fixed, self._size, self._is_whole = len(fixed), self._size - size, True


class GroupJournals:
    """The journals of all groups; ``changed`` means that some have to be saved."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        """Create it without journals; *clock_ms* is the wall clock."""
        self._clock_ms = clock_ms
        self._journals: dict[str, GroupJournal] = {}
        self._unsaved: set[str] = set()
        self._set_back: dict[tuple[str, str, int], tuple[int, int]] = {}  # by a restart

    def load(self, journals: Mapping[str, GroupJournal]) -> None:
        """Take the journals read from disk."""
        self._journals = dict(journals)
        self._unsaved = {group for group, journal in journals.items() if journal.unsaved()}

    def entries(self, group: str) -> tuple[JournalEntry, ...]:
        """Return the known entries of a group, oldest first."""
        journal = self._journals.get(group)
        return () if journal is None else tuple(journal.entries)

    def note(
        self,
        kind: EntryKind,
        group: str,
        topic: str,
        queues: Mapping[int, tuple[int, int]],
        *,
        who: str = _COORDINATOR,
        subscription: Subscription | None = None,
    ) -> None:
        """Note an event; if it changes no queue, only a deletion is one."""
        if queues or kind in (EntryKind.TOPIC_DELETED, EntryKind.GROUP_DELETED):
            who = who[:_WHO_MAX_CHARS]
            entry = JournalEntry(kind, self._clock_ms(), who, topic, dict(queues), subscription)
            self._add(group, entry)

    def is_read(
        self, group: str, topic: str, offsets: Mapping[int, int], by: Subscription, who: str
    ) -> None:
        """Note that queues at *offsets* are read with the filter *by*, where that is new."""
        whole = ((0, by),)
        fresh = {
            queue: (offset, offset)
            for queue, offset in offsets.items()
            if self._state(group, topic, queue).filters != whole
        }
        self.note(EntryKind.FILTER, group, topic, fresh, who=who, subscription=by)

    def agree(
        self,
        group: str,
        topic: str,
        offsets: Mapping[int, int],
        filters: Callable[[int], Sequence[tuple[int, Subscription]]],
    ) -> None:
        """Record how the offsets that a starting coordinator found differ from the journal.

        *filters* returns the filters with which a queue is read, for groups without a journal.
        """
        journal = self._journals.get(group)
        is_certain = journal is None or journal.is_certain
        states = {} if journal is None else journal.states
        fresh: States = {}
        back: dict[int, tuple[int, int]] = {}
        for queue, offset in offsets.items():
            state = states.get((topic, queue))
            if (state is None or not is_certain) and offset >= 0:
                fresh[topic, queue] = ReadState(offset, tuple(filters(queue)))
            elif state is not None and state.offset > offset:
                back[queue] = state.offset, offset
        for entry in _state_entries(fresh, self._clock_ms()):
            self._add(group, entry)
        self.note(EntryKind.RESTART, group, topic, back)
        self._set_back |= {(group, topic, queue): pair for queue, pair in back.items()}

    def told_again(self, group: str, topic: str, commits: Mapping[int, int], who: str) -> None:
        """Note the commits of owners that read on while the coordinator restarted."""
        told = {}
        for queue, offset in commits.items():
            known, found = self._set_back.pop((group, topic, queue), (-1, -1))
            if found < min(known, offset):
                # Beyond what the predecessor knew, nothing was read a second time.
                told[queue] = found, min(known, offset)
        self.note(EntryKind.RESTART, group, topic, told, who=who)

    def changed_hands(self, group: str, topic: str, queues: Iterable[int]) -> None:
        """Note that these queues have new owners, which read from the group's offsets."""
        for queue in queues:
            self._set_back.pop((group, topic, queue), None)

    @property
    def changed(self) -> bool:
        """Whether some entry is not on disk yet."""
        return bool(self._unsaved)

    def unsaved(self) -> dict[str, Unsaved]:
        """Return what is to be written, by group."""
        found = {group: self._journals[group].unsaved() for group in self._unsaved}
        return {group: unsaved for group, unsaved in found.items() if unsaved}

    def saved(self, group: str) -> None:
        """Note that the group's journal is on disk."""
        self._journals[group].saved()
        self._unsaved.discard(group)

    def forgotten(self) -> list[str]:
        """Remove and return the groups deleted longest ago, beyond the ``_DELETED_MAX`` newest."""
        deleted = [group for group, journal in self._journals.items() if journal.is_deleted]
        deleted.sort(key=lambda group: self._journals[group].entries[-1].time_ms)
        doomed = deleted[: max(0, len(deleted) - _DELETED_MAX)]
        for group in doomed:
            del self._journals[group]
        return doomed

    def _state(self, group: str, topic: str, queue: int) -> ReadState:
        journal = self._journals.get(group)
        return ReadState() if journal is None else journal.states.get((topic, queue), ReadState())

    def _add(self, group: str, entry: JournalEntry) -> None:
        self._journals.setdefault(group, GroupJournal()).add(entry)
        self._unsaved.add(group)


def encode_entry(entry: JournalEntry) -> bytes:
    """Return *entry* as JSON, on one line."""
    value: dict[str, Any] = {"kind": entry.kind.value, "timeMs": entry.time_ms, "who": entry.who}
    if entry.topic:
        value["topic"] = entry.topic
    if entry.queues:
        value["queues"] = {str(queue): list(pair) for queue, pair in entry.queues.items()}
    if entry.subscription is not None:
        value["filter"] = entry.subscription.to_json()
    return orjson.dumps(value)


def decode_entry(text: bytes) -> JournalEntry:
    """Return the argument of :func:`encode_entry` from its result.

    Raises:
        ValueError: the text has another form.
    """
    try:
        value = orjson.loads(text)
        kind = EntryKind(value["kind"])
        pairs = value.get("queues", {}).items()
        queues = {int(queue): (int(before), int(behind)) for queue, (before, behind) in pairs}
        filter_json = value.get("filter")
        subscription = None if filter_json is None else Subscription.from_json(filter_json)
        entry = JournalEntry(
            kind, int(value["timeMs"]), str(value["who"]), str(value.get("topic", "")), queues,
            subscription,
        )  # fmt: skip
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError, StreamError) as error:
        raise ValueError(f"invalid journal entry: {error!r:.200}") from None
    if any(not 0 <= queue < QUEUE_COUNT_MAX for queue in entry.queues):
        raise ValueError("invalid queue in a journal entry")
    if subscription is None and kind in _ABOUT_FILTERS:
        raise ValueError("a journal entry about a filter names none")
    if subscription is not None and kind not in _ABOUT_FILTERS | {EntryKind.STATE}:
        raise ValueError("a journal entry that is not about a filter names one")
    return entry


def _fixed(entries: Sequence[JournalEntry]) -> int:
    """Return how many entries at the beginning only describe the state of that time."""
    kinds = (EntryKind.STATE, EntryKind.SWITCH)
    fixed = takewhile(lambda entry: entry.kind in kinds and entry.who == _COORDINATOR, entries)
    return sum(1 for _ in fixed)


def _states(entries: Iterable[JournalEntry]) -> States:
    states: States = {}
    for entry in entries:
        _apply(states, entry)
    return states


def _apply(states: States, entry: JournalEntry) -> None:
    if entry.kind is EntryKind.GROUP_DELETED:
        states.clear()
    elif entry.kind is EntryKind.TOPIC_DELETED:
        for key in [key for key in states if key[0] == entry.topic]:
            del states[key]
    for queue, (before, behind) in entry.queues.items():
        key = entry.topic, queue
        states[key] = states.get(key, ReadState()).after(entry, before, behind)


def _state_entries(states: States, time_ms: int) -> Iterator[JournalEntry]:
    """Return entries that describe *states*: a STATE, and a SWITCH for each further filter."""
    alike: dict[tuple[int, str, Subscription | None], dict[int, tuple[int, int]]] = {}
    for (topic, queue), state in states.items():
        is_known = state.filter_at(0) is not None
        filters = state.filters if is_known else ((0, None), *state.filters)
        for place, (begin, subscription) in enumerate(filters):
            behind = begin if place else state.offset
            alike.setdefault((place, topic, subscription), {})[queue] = state.offset, behind
    for (place, topic, subscription), queues in sorted(alike.items(), key=lambda one: one[0][:2]):
        kind = EntryKind.SWITCH if place else EntryKind.STATE
        yield JournalEntry(kind, time_ms, _COORDINATOR, topic, queues, subscription)

"""The history of a group at one place of a queue, derived from the group's journal.

Between two entries of a journal a group's offset only advances by reading. So each range that it
covered is a passage under the filter of that time. A place can also have been skipped by a move,
lie before the group's start, or be passed at a time that the journal does not cover.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from rocketray.filters.subscription import Subscription

from .group_journal import EntryKind, JournalEntry, ReadState

_ENDS = frozenset({EntryKind.TOPIC_DELETED, EntryKind.GROUP_DELETED})


class Happening(Enum):
    """The kinds of event at a place."""

    PASSED = "passed"
    """The group finished it by reading, or its filter rejected it."""
    SKIPPED = "skipped"
    """The group's offset was moved past it."""
    BEGUN_BEHIND = "begun behind"
    UNKNOWN = "unknown"
    """The journal does not cover the time in which the group passed it."""


_BEHIND = {EntryKind.STATE: Happening.UNKNOWN, EntryKind.BEGIN: Happening.BEGUN_BEHIND}


@dataclass(frozen=True, slots=True)
class Stretch:
    """One event: caused by *entry*, or, for a passage, at some time before it.

    Without an entry it is from the time since the last entry, or there is no journal.
    """

    what: Happening
    entry: JournalEntry | None
    subscription: Subscription | None = None


@dataclass(frozen=True, slots=True)
class PlaceHistory:
    """All events of a place, oldest first.

    ``is_ahead``: the group will reach it, possibly once more, under the filter ``coming``.
    ``again``: the last entry that put the place ahead of a group that had passed it.
    """

    stretches: tuple[Stretch, ...]
    is_ahead: bool
    coming: Subscription | None = None
    again: JournalEntry | None = None


def history_of(
    journal: Iterable[JournalEntry], topic: str, queue_id: int, queue_offset: int, offset: int
) -> PlaceHistory:
    """Return the history of *queue_offset* until the group reached *offset*, -1 for none yet."""
    replay = _Replay(queue_offset)
    for entry in journal:
        if entry.kind is EntryKind.GROUP_DELETED or entry.topic == topic:
            replay.take(entry, queue_id)
    return replay.history(offset)


class _Replay:
    """The replay of a journal, entry by entry, as seen from one place."""

    def __init__(self, queue_offset: int) -> None:
        self._place = queue_offset
        self._forget()

    def _forget(self) -> None:
        self._state = ReadState()
        self._is_known = False
        self._found: list[Stretch] = []
        self._again: JournalEntry | None = None
        self._again_before: JournalEntry | None = None  # before a restart that may prove harmless

    def take(self, entry: JournalEntry, queue_id: int) -> None:
        if entry.kind in _ENDS:
            self._forget()
        if queue_id not in entry.queues:
            return
        before, behind = entry.queues[queue_id]
        self._pass(before, entry)
        if entry.kind is EntryKind.BACK and self._place >= behind:
            self._found.clear()  # the messages there were lost
        what = self._happening(entry.kind, before, behind)
        if what is not None:
            self._found.append(Stretch(what, entry, self._state.filter_at(self._place)))
        elif behind <= self._place < before:
            self._again_before, self._again = self._again, entry
        elif entry.kind is EntryKind.RESTART and before <= self._place < behind:
            self._again = self._again_before  # not read a second time
        self._state, self._is_known = self._state.after(entry, before, behind), True

    def history(self, offset: int) -> PlaceHistory:
        """Return the history, for a group that is at *offset* now."""
        coming, is_ahead = self._state.filter_at(self._place), self._place >= offset
        if not is_ahead:
            self._pass(offset, None)
            if not (self._found and self._is_known):
                self._found.append(Stretch(Happening.UNKNOWN, None))
        return PlaceHistory(tuple(self._found), is_ahead, coming, self._again)

    def _pass(self, end: int, entry: JournalEntry | None) -> None:
        """Note that the group read from its present offset up to *end*."""
        if self._is_known and 0 <= self._state.offset <= self._place < end:
            subscription = self._state.filter_at(self._place)
            self._found.append(Stretch(Happening.PASSED, entry, subscription))

    def _happening(self, kind: EntryKind, before: int, behind: int) -> Happening | None:
        if kind is EntryKind.MOVE:
            return Happening.SKIPPED if before <= self._place < behind else None
        return _BEHIND.get(kind) if self._place < behind else None

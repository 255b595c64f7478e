"""What a group did with one place of a queue, read from the group's journal.

Between two entries of a journal a group's offset moves on by reading only, so each stretch that it
covered is a passage under the filter of then. Moves over a place, beginnings behind it, and times
of which nothing is known are the other things that can have happened to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from rocketray.filters.subscription import Subscription

from .group_journal import EntryKind, JournalEntry, QueueState

__all__ = ["Happening", "PlaceHistory", "Stretch", "history_of"]

_ENDS = frozenset({EntryKind.TOPIC_DELETED, EntryKind.GROUP_DELETED})


class Happening(Enum):
    """What happened to a place."""

    PASSED = "passed"
    """The group finished it by reading, or its filter left it out."""
    SKIPPED = "skipped"
    """The group's offset was moved past it."""
    BEGUN_BEHIND = "begun behind"
    UNKNOWN = "unknown"
    """The journal knows nothing of the time in which the group went past it."""


_BEHIND = {EntryKind.STATE: Happening.UNKNOWN, EntryKind.BEGIN: Happening.BEGUN_BEHIND}


@dataclass(frozen=True, slots=True)
class Stretch:
    """One thing that happened: because of *entry*, or, for a passage, at some time before it.

    Without an entry it is of the time since the last one, or without a journal.
    """

    what: Happening
    entry: JournalEntry | None
    subscription: Subscription | None = None


@dataclass(frozen=True, slots=True)
class PlaceHistory:
    """All that happened to a place, oldest first.

    ``is_ahead``: the group gets to it, once more perhaps, under the filter *coming*; ``again`` is
    the entry by which it lies ahead of a group that was past it before, or that was so until then.
    """

    stretches: tuple[Stretch, ...]
    is_ahead: bool
    coming: Subscription | None = None
    again: JournalEntry | None = None


def history_of(
    journal: Iterable[JournalEntry], topic: str, queue_id: int, queue_offset: int, offset: int
) -> PlaceHistory:
    """What happened to *queue_offset* until the group stood at *offset*, -1 for nowhere yet."""
    replay = _Replay(queue_offset)
    for entry in journal:
        if entry.kind is EntryKind.GROUP_DELETED or entry.topic == topic:
            replay.take(entry, queue_id)
    return replay.history(offset)


class _Replay:
    """The way of a group, entry by entry, as seen from one place."""

    def __init__(self, queue_offset: int) -> None:
        self._place = queue_offset
        self._forget()

    def _forget(self) -> None:
        self._state = QueueState()
        self._is_known = False
        self._found: list[Stretch] = []
        self._again: JournalEntry | None = None
        self._again_before: JournalEntry | None = None  # a restart, which may prove to be harmless

    def take(self, entry: JournalEntry, queue_id: int) -> None:
        """Follow the group past *entry*."""
        if entry.kind in _ENDS:
            self._forget()
        if queue_id not in entry.queues:
            return
        before, behind = entry.queues[queue_id]
        self._pass(before, entry)
        if entry.kind is EntryKind.BACK and self._place >= behind:
            self._found.clear()  # what stood there was lost
        what = self._happening(entry.kind, before, behind)
        if what is not None:
            self._found.append(Stretch(what, entry, self._state.filter_at(self._place)))
        elif behind <= self._place < before:
            self._again_before, self._again = self._again, entry
        elif entry.kind is EntryKind.RESTART and before <= self._place < behind:
            self._again = self._again_before  # it was not read a second time
        self._state, self._is_known = self._state.after(entry, before, behind), True

    def history(self, offset: int) -> PlaceHistory:
        """All of it, for a group that stands at *offset* now."""
        coming, is_ahead = self._state.filter_at(self._place), self._place >= offset
        if not is_ahead:
            self._pass(offset, None)
            if not (self._found and self._is_known):
                self._found.append(Stretch(Happening.UNKNOWN, None))
        return PlaceHistory(tuple(self._found), is_ahead, coming, self._again)

    def _pass(self, end: int, entry: JournalEntry | None) -> None:
        """The group read from where it stood up to *end*."""
        if self._is_known and 0 <= self._state.offset <= self._place < end:
            subscription = self._state.filter_at(self._place)
            self._found.append(Stretch(Happening.PASSED, entry, subscription))

    def _happening(self, kind: EntryKind, before: int, behind: int) -> Happening | None:
        if kind is EntryKind.MOVE:
            return Happening.SKIPPED if before <= self._place < behind else None
        return _BEHIND.get(kind) if self._place < behind else None

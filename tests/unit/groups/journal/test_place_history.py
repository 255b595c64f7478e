"""What a journal says of one place, against a list that is walked through by hand."""

from __future__ import annotations

import random

import pytest

from rocketray.filters.subscription import Subscription
from rocketray.groups.journal.group_journal import EntryKind, JournalEntry
from rocketray.groups.journal.place_history import Happening, history_of

A, B = Subscription.tags("a"), Subscription.tags("b")
FILTER, BEGIN, MOVE = EntryKind.FILTER, EntryKind.BEGIN, EntryKind.MOVE


def entry(
    kind: EntryKind, before: int, behind: int, subscription: Subscription | None = None
) -> JournalEntry:
    return JournalEntry(kind, 0, "m", "T", {0: (before, behind)}, subscription)


def happened(journal: list[JournalEntry], place: int, offset: int) -> list[Happening]:
    return [stretch.what for stretch in history_of(journal, "T", 0, place, offset).stretches]


def test_a_group_that_began_was_moved_and_came_back() -> None:
    journal = [
        entry(FILTER, -1, -1, A),
        entry(BEGIN, -1, 2),
        entry(MOVE, 4, 8),
        entry(MOVE, 9, 3),
        entry(FILTER, 5, 5, B),
    ]
    assert happened(journal, 1, 7) == [Happening.BEGUN_BEHIND]
    assert happened(journal, 2, 7) == [Happening.PASSED]
    assert happened(journal, 5, 7) == [Happening.SKIPPED, Happening.PASSED]
    history = history_of(journal, "T", 0, 4, 7)
    assert [stretch.subscription for stretch in history.stretches] == [A, A]
    assert [stretch.what for stretch in history.stretches] == [Happening.SKIPPED, Happening.PASSED]
    ahead = history_of(journal, "T", 0, 8, 7)
    assert (ahead.is_ahead, ahead.coming, ahead.again) == (True, B, journal[3])


def test_nothing_is_read_twice_where_its_reader_lived_through_the_restart() -> None:
    moved = entry(MOVE, 9, 3)
    restarts = [entry(EntryKind.RESTART, 12, 0), entry(EntryKind.RESTART, 0, 12)]
    journal = [entry(FILTER, -1, -1, A), entry(BEGIN, -1, 0), moved, *restarts]
    assert happened(journal, 2, 12) == [Happening.PASSED]
    assert happened(journal, 4, 12) == [Happening.PASSED, Happening.PASSED]
    assert happened(journal[:-1], 2, 12) == [Happening.PASSED, Happening.PASSED]
    assert history_of(journal, "T", 0, 4, 12).again == moved
    assert history_of(journal, "T", 0, 2, 12).again is None


@pytest.mark.parametrize("kind", [EntryKind.TOPIC_DELETED, EntryKind.GROUP_DELETED])
def test_what_was_before_a_deletion_is_over(kind: EntryKind) -> None:
    topic = "T" if kind is EntryKind.TOPIC_DELETED else ""
    journal = [entry(BEGIN, -1, 5), JournalEntry(kind, 1, "", topic), entry(BEGIN, -1, 0)]
    assert happened(journal, 3, 4) == [Happening.PASSED]
    assert happened(journal[:2], 3, 4) == [Happening.UNKNOWN]


def test_other_topics_and_queues_are_no_matter() -> None:
    journal = [
        JournalEntry(MOVE, 0, "m", "U", {0: (0, 9)}),
        JournalEntry(MOVE, 0, "", "T", {1: (0, 9)}),
    ]
    assert happened(journal, 3, 4) == [Happening.UNKNOWN]


def test_random_ways_of_a_group(rng: random.Random) -> None:
    for _ in range(300):
        journal, offset, subscription = [entry(FILTER, -1, -1, A), entry(BEGIN, -1, 0)], 0, A
        walked: list[list[tuple[Happening, Subscription]]] = [[] for _ in range(30)]
        for _ in range(rng.randrange(8)):
            there = rng.randint(offset, 30)
            for place in range(offset, there):
                walked[place].append((Happening.PASSED, subscription))
            offset = there
            if rng.random() < 0.5:
                to = rng.randint(0, 30)
                for place in range(offset, to):
                    walked[place].append((Happening.SKIPPED, subscription))
                journal.append(entry(MOVE, offset, to))
                offset = to
            else:
                subscription = rng.choice([A, B])
                journal.append(entry(FILTER, offset, offset, subscription))
        for place, expected in enumerate(walked):
            found = history_of(journal, "T", 0, place, offset)
            assert [(each.what, each.subscription) for each in found.stretches] == expected
            assert found.is_ahead == (place >= offset)
            assert found.coming == subscription

"""A journal says all that changed, stays small, and knows what it does not know."""

from __future__ import annotations

import itertools
import random

import pytest

from rocketray.filters.subscription import Subscription
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.journal import group_journal
from rocketray.groups.journal.group_journal import (
    EntryKind,
    GroupJournal,
    GroupJournals,
    JournalEntry,
    ReadState,
    decode_entry,
    encode_entry,
)

OLD, NEW = Subscription.tags("a"), Subscription.sql("x > 1", dialect="rocketray")
ENTRIES = (
    JournalEntry(EntryKind.FILTER, 1, "m1", "T", {0: (-1, -1), 7: (-1, -1)}, OLD),
    JournalEntry(EntryKind.BEGIN, 2, "m1", "T", {0: (-1, 5)}),
    JournalEntry(EntryKind.SWITCH, 3, "rocketray groups migrate", "T", {0: (6, 9)}, NEW),
    JournalEntry(EntryKind.TOPIC_DELETED, 4, "the coordinator", "T"),
    JournalEntry(EntryKind.GROUP_DELETED, 5, "the coordinator"),
)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.kind.value)
def test_an_entry_is_read_as_it_was_written(entry: JournalEntry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"{}", b'{"kind":"move"}', b'{"kind":"other","timeMs":1,"who":""}',
        b'{"kind":"move","timeMs":1,"who":"","topic":"T","queues":{"0":[1]}}',
        b'{"kind":"move","timeMs":1,"who":"","topic":"T","queues":{"-1":[1,2]}}',
        b'{"kind":"move","timeMs":1,"who":"","topic":"T","queues":{"9999":[1,2]}}',
        b'{"kind":"filter","timeMs":1,"who":"","topic":"T","queues":{"0":[1,1]}}',
        b'{"kind":"filter","timeMs":1,"who":"","filter":{"expressionType":"X","expression":""}}',
    ],
)  # fmt: skip
def test_what_is_no_entry_is_told_from_one(text: bytes) -> None:
    with pytest.raises(ValueError, match="journal"):
        decode_entry(text)


def test_a_filter_below_a_switch_stays_until_another_takes_over() -> None:
    journal = GroupJournal(ENTRIES[:3])
    state = journal.states["T", 0]
    assert state == ReadState(6, ((0, OLD), (9, NEW)))
    assert (state.filter_at(8), state.filter_at(9)) == (OLD, NEW)
    journal.add(JournalEntry(EntryKind.FILTER, 4, "m2", "T", {0: (12, 12)}, NEW))
    assert journal.states["T", 0] == ReadState(12, ((0, NEW),))
    assert journal.states["T", 7].filters == ((0, OLD),)


def test_a_reader_is_noted_only_where_its_filter_is_new() -> None:
    journals = GroupJournals(itertools.count(1).__next__)
    journals.is_read("g", "T", {0: 3, 1: -1}, OLD, "m1")
    journals.is_read("g", "T", {0: 4, 1: 2}, OLD, "m1")
    journals.is_read("g", "T", {0: 4, 1: 2, 2: 0}, OLD, "m2")
    journals.is_read("g", "T", {1: 5}, NEW, "m3")
    noted = [(dict(entry.queues), entry.who) for entry in journals.entries("g")]
    assert noted == [({0: (3, 3), 1: (-1, -1)}, "m1"), ({2: (0, 0)}, "m2"), ({1: (5, 5)}, "m3")]


@pytest.mark.proves(
    "groups",
    "A journal has a bounded size and replaces its older half by a snapshot",
)
def test_a_journal_stays_small_and_says_where_all_stood(
    monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    monkeypatch.setattr(group_journal, "ENTRIES_MAX", 10)
    journal = GroupJournal()
    for time_ms in range(500):
        queue = rng.randrange(3)
        state = journal.states.get(("T", queue), ReadState())
        at = rng.randrange(100)
        if rng.random() < 0.4:
            subscription = rng.choice([OLD, NEW])
            kind = rng.choice([EntryKind.FILTER, EntryKind.SWITCH])
            pair = (at, at) if kind is EntryKind.FILTER else (at, at + 5)
            journal.add(JournalEntry(kind, time_ms, "m", "T", {queue: pair}, subscription))
        else:
            journal.add(
                JournalEntry(EntryKind.MOVE, time_ms, "m", "T", {queue: (state.offset, at)})
            )
        known = [entry for entry in journal.entries if entry.kind is EntryKind.MOVE]
        assert len(known) <= 10
        assert len(journal.entries) <= 10 + 3 * 11
        again = GroupJournal(journal.entries)
        assert again.states == journal.states, "entries alone say where everything stands"
    assert journal.entries[0].kind is EntryKind.STATE


def test_long_filters_count_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_journal, "BYTES_MAX", 20_000)
    journal = GroupJournal()
    for number in range(50):
        subscription = Subscription.tags("x" * 3_000 + str(number))
        journal.add(JournalEntry(EntryKind.FILTER, number, "m", "T", {0: (1, 1)}, subscription))
        assert sum(map(len, map(encode_entry, journal.entries))) < 20_000 + 3_200


@pytest.mark.proves("groups", "Of a deleted group only the deletion is kept")
def test_of_a_deleted_group_only_that_is_known_and_of_many_only_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_journal, "_DELETED_MAX", 2)
    journals = GroupJournals(itertools.count(1).__next__)
    for group in ("a", "b", "c", "d"):
        journals.is_read(group, "T", {0: 3}, OLD, "m1")
        journals.note(EntryKind.GROUP_DELETED, group, "", {})
    journals.is_read("c", "T", {0: -1}, OLD, "m1")
    assert [entry.kind for entry in journals.entries("a")] == [EntryKind.GROUP_DELETED]
    assert journals.forgotten() == ["a"]
    assert journals.entries("a") == ()
    assert len(journals.entries("c")) == 2


def test_offsets_without_a_journal_and_those_that_went_back_are_noted_at_the_start() -> None:
    before = GroupRegistry(GroupJournals(lambda: 1))
    before.subscriptions.load(_subscribed(OLD))
    before.offsets.commit("g", "T", 0, 7)
    before.agree_with_journals()
    [entry] = before.journals.entries("g")
    assert (entry.kind, entry.queues, entry.subscription) == (EntryKind.STATE, {0: (7, 7)}, OLD)
    before.journals.note(EntryKind.MOVE, "g", "T", {0: (7, 20)}, who="somebody")
    before.agree_with_journals()
    assert before.journals.entries("g")[-1].kind is EntryKind.RESTART
    assert before.journals.entries("g")[-1].queues == {0: (20, 7)}
    count = len(before.journals.entries("g"))
    before.agree_with_journals()
    assert len(before.journals.entries("g")) == count, "it is said once"


def _subscribed(subscription: Subscription) -> dict[str, object]:
    topics = {"T": subscription.to_json()}
    return {"subscriptionGroupTable": {"g": {"groupName": "g", "subscriptions": topics}}}

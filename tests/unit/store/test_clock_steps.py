"""Retention and the wall clock: what a step of it removes, and for how long one keeps what is old."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.nodes.stores import SMALL, message

from rocketray.store.age_clock import SETTLING_MS, AgeClock
from rocketray.store.message_store import MessageStore
from rocketray.store.retention import DiskUse, RetentionPolicy
from rocketray.testing import Clock

pytestmark = pytest.mark.proves(
    "durability",
    "A wall clock that is set, or wrong for up to ten minutes at a start, removes nothing "
    "and abandons no transaction",
)

THREE_DAYS = RetentionPolicy(max_age_ms=3 * 86_400_000)
DISK = DiskUse(0, 1 << 40)


def opened(path: Path, clock: Clock) -> MessageStore:
    return MessageStore(path, SMALL, clock_ms=AgeClock(clock, clock.elapsed))


def fill(store: MessageStore) -> None:
    """Store messages of eleven files."""
    while len(log_files(store)) < 11:
        store.put([message(0, size=200)], 0)


def log_files(store: MessageStore) -> list[Path]:
    return sorted((store.directory / "commitlog").glob("0*"))


def removed(store: MessageStore) -> int:
    return len(store.expire(THREE_DAYS, DISK))


def kept_for_three_days(store: MessageStore, clock: Clock) -> None:
    """Check that the ten old files, written now, go after 72 hours and not after 71."""
    clock.advance(hours=71)
    assert removed(store) == 0
    clock.advance(hours=1)
    assert removed(store) == 10


@pytest.mark.proves("retention", "A wall clock that is ahead for a while removes nothing")
def test_a_clock_that_is_days_ahead_for_a_round_removes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as store:
        clock.advance(milliseconds=SETTLING_MS)
        fill(store)
        clock.jump(seconds=4 * 86_400)
        assert removed(store) == 0
        clock.jump(seconds=-4 * 86_400)
        kept_for_three_days(store, clock)


@pytest.mark.proves(
    "retention",
    "Neither does one that is ahead at a start and set within ten minutes",
)
def test_a_clock_that_is_days_ahead_at_a_start_removes_nothing_if_it_is_set_soon(
    tmp_path: Path,
) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as store:
        fill(store)
    clock.jump(seconds=4 * 86_400)
    with opened(tmp_path, clock) as store:
        assert removed(store) == 0
        clock.advance(minutes=5)
        assert removed(store) == 0
        clock.jump(seconds=-4 * 86_400)
        kept_for_three_days(store, clock)


@pytest.mark.proves(
    "retention",
    "Messages that got a time in the future are removed in time while the process runs",
)
def test_one_message_of_a_year_ahead_keeps_none_for_longer_than_they_should(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as store:
        clock.jump(seconds=365 * 86_400)
        store.put([message(0)], 0)
        clock.jump(seconds=-365 * 86_400)
    with opened(tmp_path, clock) as store:
        fill(store)
        assert store.last_store_timestamp_ms > clock()
        assert removed(store) == 0  # a round every ten seconds
        kept_for_three_days(store, clock)


def test_what_is_old_is_removed_after_a_long_stop(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as store:
        fill(store)
    clock.advance(days=30)
    with opened(tmp_path, clock) as store:
        assert removed(store) == 0
        clock.advance(milliseconds=SETTLING_MS)
        assert removed(store) == 10

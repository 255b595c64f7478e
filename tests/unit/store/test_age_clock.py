"""Ages by two clocks: a row a step of the wall clock, and histories against the true ages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nodes.stores import FakeClock

from rocketray.store.age_clock import SETTLING_MS, AgeClock
from rocketray.testing import Clock

pytestmark = pytest.mark.proves(
    "durability",
    "A wall clock that is set, or wrong for up to ten minutes at a start, removes nothing "
    "and abandons no transaction",
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def begun(clock: Clock) -> AgeClock:
    return AgeClock(clock, clock.elapsed)


@pytest.mark.parametrize("step_ms", [0, 1, 4 * DAY_MS, 365 * DAY_MS, -DAY_MS, -365 * DAY_MS])
def test_a_step_makes_nothing_older_or_younger_that_was_seen(step_ms: int) -> None:
    clock = Clock()
    ages = begun(clock)
    clock.advance(milliseconds=SETTLING_MS)
    stored_ms, seen_ms = ages(), ages.steady_ms()
    clock.jump(seconds=step_ms / 1000)
    clock.advance(hours=5)
    assert ages() == clock(), "store times follow the wall clock"
    assert ages.age_ms(stored_ms, seen_ms, ages.steady_ms()) == 5 * HOUR_MS


def test_what_was_stored_in_the_future_ages_from_when_it_is_seen() -> None:
    clock = Clock()
    ages = begun(clock)
    clock.advance(days=1)
    seen_ms = ages.steady_ms()
    clock.advance(hours=2)
    assert ages.age_ms(clock() + 365 * DAY_MS, seen_ms, ages.steady_ms()) == 2 * HOUR_MS


@pytest.mark.parametrize(
    ("ahead_ms", "counted_ms"), [(0, 7 * DAY_MS), (365 * DAY_MS, 7 * DAY_MS), (-DAY_MS, 6 * DAY_MS)]
)
def test_an_earlier_store_time_counts_when_the_clock_has_settled(
    ahead_ms: int, counted_ms: int
) -> None:
    clock = Clock()
    stored_ms = clock() - 7 * DAY_MS
    clock.jump(seconds=ahead_ms / 1000)
    ages = begun(clock)
    seen_ms = ages.steady_ms()
    clock.advance(milliseconds=SETTLING_MS - 1)
    assert ages.age_ms(stored_ms, seen_ms, ages.steady_ms()) == SETTLING_MS - 1
    clock.jump(seconds=-ahead_ms / 1000)  # the clock is set right
    clock.advance(milliseconds=1)
    assert ages.age_ms(stored_ms, seen_ms, ages.steady_ms()) == counted_ms + SETTLING_MS


def test_a_clock_without_a_steady_one_is_trusted() -> None:
    clock = FakeClock()
    ages = AgeClock.of(clock)
    assert AgeClock.of(ages) is ages
    stored_ms = clock()
    clock.now_ms += DAY_MS
    assert ages.age_ms(stored_ms, ages.steady_ms(), ages.steady_ms()) == DAY_MS


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(0, 10 * DAY_MS)),
        st.tuples(st.just("jump"), st.integers(-400 * DAY_MS, 400 * DAY_MS)),
        st.tuples(st.just("store"), st.just(0)),
        st.tuples(st.just("see"), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.proves(
    "retention",
    "Nothing is taken for older than it is, whatever the clock is set to, and look-ups by time "
    "are right",
)
@given(STEPS)
def test_nothing_is_older_than_it_is_nor_younger_than_it_was_seen(
    steps: list[tuple[str, int]],
) -> None:
    clock = Clock()
    ages = begun(clock)
    last_ms = 0
    stored: list[tuple[int, int]] = []  # the store time, never decreasing, and the true one
    seen: list[int] = []
    for kind, amount in steps:
        match kind:
            case "pass":
                clock.advance(milliseconds=amount)
            case "jump":
                clock.jump(seconds=amount / 1000)
            case "store":
                last_ms = max(ages(), last_ms)
                stored.append((last_ms, clock.elapsed()))
            case "see":
                seen += [ages.steady_ms()] * (len(stored) - len(seen))
        now_ms = ages.steady_ms()
        for (stored_ms, born_ms), seen_ms in zip(stored, seen, strict=False):
            age_ms = ages.age_ms(stored_ms, seen_ms, now_ms)
            assert now_ms - seen_ms <= age_ms <= now_ms - born_ms

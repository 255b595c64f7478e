"""When a coordinator is lost, for a standby that may be the one that is cut off."""

from __future__ import annotations

import pytest

from rocketray.actors.cluster.coordinator_silence import (
    BACK_OFF_S,
    CALL_S,
    START_S,
    TAKE_OVER_S,
    TURN_MAX_S,
    CoordinatorSilence,
)
from rocketray.runtime.files.home import Home

pytestmark = pytest.mark.proves(
    "durability",
    "A standby takes over from no coordinator that runs: not when its own network was cut "
    "or its process stood still, nor when no packet of its machine reaches the "
    "coordinator, nor again and again",
)

FIRST = Home("/first", "00000000-0000-0000-0000-000000000001", "here")
OURS = Home("/joined", "00000000-0000-0000-0000-000000000002", "there", is_joined=True)
THEIRS = Home("/other", "00000000-0000-0000-0000-000000000003", "else", is_joined=True)


def heard(home: Home = FIRST, actor: str = "first") -> CoordinatorSilence:
    """A standby to which the coordinator has just answered."""
    silence = CoordinatorSilence()
    silence.sees(actor)
    silence.hears(home, 1)
    return silence


def seconds_until_lost(silence: CoordinatorSilence, at_most_s: int = 1000) -> int:
    """How many turns of a second without an answer it takes; no call is answered, either."""
    for second in range(at_most_s):
        if silence.is_lost:
            return second
        if silence.is_to_be_called:
            silence.calls()
        silence.misses(1, hears_ray=True)
    return at_most_s


def test_one_that_is_silent_for_some_time_is_lost() -> None:
    assert seconds_until_lost(heard()) == TAKE_OVER_S


def test_the_call_in_the_register_costs_no_time() -> None:
    """It is made, and has its time, before the other time is up."""
    silence = heard()
    while not silence.is_to_be_called:
        silence.misses(1, hears_ray=True)
    assert silence.silent_s + CALL_S < TAKE_OVER_S


def test_the_count_starts_again_with_each_answer() -> None:
    silence = heard()
    for _ in range(10):
        for _ in range(int(TAKE_OVER_S) - 1):
            silence.misses(1, hears_ray=True)
        silence.hears(FIRST, 1)
    assert seconds_until_lost(silence) == TAKE_OVER_S


def test_while_ray_itself_is_not_heard_nothing_is_lost_or_counted() -> None:
    """The standby's own network is cut, for however long, and is back before the coordinator."""
    for heard_before_s in (0, TAKE_OVER_S - 1, TAKE_OVER_S + 1):
        silence = heard()
        for _ in range(int(heard_before_s)):
            silence.misses(1, hears_ray=True)
        for _ in range(100):
            silence.misses(1, hears_ray=False)
            assert not silence.is_lost
            assert not silence.is_to_be_called
        assert seconds_until_lost(silence) == TAKE_OVER_S


def test_a_standby_that_waited_elsewhere_loses_nobody_while_it_hears_no_ray() -> None:
    for actor in ("", "first"):
        silence = CoordinatorSilence(waited_for=actor)
        silence.sees(actor)
        silence.misses(1, hears_ray=False)
        assert not silence.is_lost
        assert not silence.is_to_be_called


def test_a_call_from_before_the_cut_is_made_afresh() -> None:
    silence = heard()
    for _ in range(int(TAKE_OVER_S) - 1):
        silence.misses(1, hears_ray=True)
    silence.calls()
    silence.misses(1, hears_ray=False)
    assert not silence.is_called


def test_a_standby_that_stood_still_does_not_count_that_time() -> None:
    silence = heard()
    silence.misses(3600, hears_ray=True)
    assert silence.silent_s == TURN_MAX_S
    assert not silence.is_lost


def test_one_that_answers_in_the_register_is_not_lost_however_long_it_is_silent_otherwise() -> None:
    """The network is broken in one direction, or between these two machines only."""
    silence, calls = heard(), 0
    for _ in range(1000):
        silence.misses(1, hears_ray=True)
        assert not silence.is_lost
        if silence.is_called:
            silence.hears_in_register()
        elif silence.is_to_be_called:
            silence.calls()
            calls += 1
    assert calls > 10
    silence.hears_in_register()
    assert seconds_until_lost(silence) == TAKE_OVER_S, "it stopped later"


def test_without_a_call_that_had_its_time_nobody_is_lost() -> None:
    """The register did not answer when the standby wanted to call, and does so later."""
    silence = heard()
    for _ in range(100):
        silence.misses(1, hears_ray=True)
        assert not silence.is_lost
    silence.calls()
    for _ in range(int(CALL_S) - 1):
        silence.misses(1, hears_ray=True)
        assert not silence.is_lost
    silence.misses(1, hears_ray=True)
    assert silence.is_lost


def test_one_that_ray_does_not_have_any_more_needs_no_call() -> None:
    silence = heard()
    silence.sees("")
    for _ in range(int(TAKE_OVER_S)):
        assert not silence.is_lost
        assert not silence.is_to_be_called
        silence.misses(1, hears_ray=True)
    assert silence.is_lost


def test_one_that_was_started_a_moment_ago_has_longer_for_its_first_answer() -> None:
    silence = heard()
    silence.sees("second")
    assert seconds_until_lost(silence) == START_S
    silence.hears(FIRST, 1)
    assert seconds_until_lost(silence) == TAKE_OVER_S


@pytest.mark.parametrize("home", [OURS, THEIRS])
def test_one_that_was_taken_back_is_not_taken_again_for_a_while(home: Home) -> None:
    """Whichever standby had it: else two busy machines would take it from each other."""
    silence = heard(home, "a standby's")
    silence.sees("first")
    assert seconds_until_lost(silence) == BACK_OFF_S, "it has not answered yet"
    silence.hears(FIRST, 1)
    assert seconds_until_lost(silence) == BACK_OFF_S
    silence.hears(FIRST, 1)
    assert seconds_until_lost(silence) == TAKE_OVER_S, "the while is over"


def test_the_while_passes_also_as_long_as_it_answers() -> None:
    silence = heard(OURS, "a standby's")
    silence.sees("first")
    for _ in range(int(BACK_OFF_S) + 1):
        silence.hears(FIRST, 1)
    assert seconds_until_lost(silence) == TAKE_OVER_S


def test_what_one_standby_takes_from_another_is_not_taken_back() -> None:
    silence = heard(OURS, "a standby's")
    silence.sees("another standby's")
    silence.hears(THEIRS, 1)
    assert seconds_until_lost(silence) == TAKE_OVER_S


def test_a_node_that_has_waited_only_calls() -> None:
    assert seconds_until_lost(CoordinatorSilence(waited_for="")) == 0, "Ray has none"
    silence = CoordinatorSilence(waited_for="first")
    silence.sees("first")
    assert seconds_until_lost(silence) == CALL_S
    silence.hears_in_register()
    assert seconds_until_lost(silence) > CALL_S


@pytest.mark.parametrize("waited_for", ["", "first"])
def test_a_node_that_has_waited_leaves_one_that_was_started_meanwhile_its_time(
    waited_for: str,
) -> None:
    silence = CoordinatorSilence(waited_for=waited_for)
    silence.sees("of a first disk that is back")
    assert not silence.has_waited
    assert seconds_until_lost(silence) == START_S


def test_of_several_standbys_one_is_first() -> None:
    times = []
    for spread_s in (0.0, 2.0):
        silence = CoordinatorSilence(spread_s)
        silence.sees("first")
        silence.hears(FIRST, 1)
        times.append(seconds_until_lost(silence))
    assert times == [TAKE_OVER_S, TAKE_OVER_S + 2]

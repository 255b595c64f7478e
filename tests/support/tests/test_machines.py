"""The machines of random histories: as many as are asked for, and what fails is told."""

from __future__ import annotations

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from support.harness.machines import run

FAILING = 4


class Noting(RuleBasedStateMachine):
    """Notes the numbers of its histories."""

    noted: list[list[int]]

    def __init__(self) -> None:
        super().__init__()
        self.noted.append([])

    @rule(number=st.integers(0, 9))
    def note(self, number: int) -> None:
        self.noted[-1].append(number)


def noting() -> type[Noting]:
    return type("OneNoting", (Noting,), {"noted": []})


class FailsInARule(Noting):
    @rule()
    def fail(self) -> None:
        assert len(self.noted) < FAILING


class GivesOneUp(Noting):
    @rule()
    def give_up(self) -> None:
        assume(len(self.noted) != FAILING)


class FailsAtTheEnd(Noting):
    def teardown(self) -> None:
        assert len(self.noted) < FAILING


def test_some_histories_are_the_first_of_more() -> None:
    some, more = noting(), noting()
    run(some, 6, seed=7)
    run(more, 23, seed=7)
    assert (len(some.noted), len(more.noted)) == (6, 23)
    assert more.noted[:6] == some.noted
    assert len(set(more.noted[2])) > 1, "the third is random"


def test_a_history_that_is_given_up_does_not_count() -> None:
    GivesOneUp.noted = []
    run(GivesOneUp, 5, seed=7)
    assert len(GivesOneUp.noted) == 5 + 1


@pytest.mark.parametrize("machine", [FailsInARule, FailsAtTheEnd])
def test_the_last_history_fails_as_any_other_with_what_repeats_it(machine: type[Noting]) -> None:
    machine.noted = []
    with pytest.raises(AssertionError) as caught:
        run(machine, FAILING, seed=7)
    assert "--seed=7 begins with the histories that failed" in caught.value.__notes__

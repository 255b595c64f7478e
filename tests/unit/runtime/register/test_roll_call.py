"""Calls of standbys through the register, and the answers of a coordinator."""

from __future__ import annotations

import pytest
from support.nodes.dict_register import DictRegister

from rocketray.errors import RegisterUnavailableError
from rocketray.runtime.files.home import Home
from rocketray.runtime.register.roll_call import RollCall, answer, caller

pytestmark = pytest.mark.proves(
    "durability",
    "A standby takes over from no coordinator that runs: not when its own network was cut "
    "or its process stood still, nor when no packet of its machine reaches the "
    "coordinator, nor again and again",
)

THERE = Home("/joined", "00000000-0000-0000-0000-000000000002", "there", is_joined=True)
ELSE = Home("/other", "00000000-0000-0000-0000-000000000003", "else", is_joined=True)


@pytest.fixture
def register() -> DictRegister:
    return DictRegister()


def test_a_call_is_answered_when_the_coordinator_does_so(register: DictRegister) -> None:
    calls = RollCall(register, THERE)
    assert caller(register) is None
    calls.call()
    assert not calls.is_answered()
    assert caller(register) == "/joined of there"
    answer(register)
    assert calls.is_answered()
    assert register.keys == {}


def test_several_standbys_share_a_call(register: DictRegister) -> None:
    first, second = RollCall(register, THERE), RollCall(register, ELSE)
    first.call()
    second.call()
    assert caller(register) == "/joined of there"
    assert not first.is_answered()
    assert not second.is_answered()
    answer(register)
    assert first.is_answered()
    assert second.is_answered()


def test_the_call_of_another_standby_that_follows_the_answer_hides_it_not(
    register: DictRegister,
) -> None:
    first, second = RollCall(register, THERE), RollCall(register, ELSE)
    first.call()
    answer(register)
    second.call()
    assert first.is_answered()
    assert not second.is_answered()


def test_one_that_was_answered_while_it_was_made_is(register: DictRegister) -> None:
    first, second = RollCall(register, THERE), RollCall(register, ELSE)
    first.call()
    read = register.read

    def answered(key: str) -> bytes | None:
        answer(register)
        return read(key)

    register.read = answered  # type: ignore[method-assign]
    second.call()
    assert second.is_answered()


def test_the_same_call_is_made_again(register: DictRegister) -> None:
    calls = RollCall(register, THERE)
    calls.call()
    answer(register)
    calls.call()
    assert not calls.is_answered()


def test_without_the_register_nothing_is_known(register: DictRegister) -> None:
    calls = RollCall(register, THERE)
    calls.call()
    register.is_stopped = True
    with pytest.raises(RegisterUnavailableError):
        calls.is_answered()


def test_whatever_is_in_a_call_the_coordinator_answers_it(register: DictRegister) -> None:
    register.keys["standby/call"] = b"\xff"
    assert caller(register) == ""

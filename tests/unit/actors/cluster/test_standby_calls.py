"""What a coordinator does with a standby's call in the register, and what it tells its operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.nodes.dict_register import DictRegister

from rocketray.actors.cluster.cluster_state import Problems
from rocketray.actors.cluster.standby_calls import StandbyCalls
from rocketray.runtime.files.home import Home
from rocketray.runtime.register.roll_call import RollCall

pytestmark = pytest.mark.proves(
    "durability",
    "A standby takes over from no coordinator that runs: not when its own network was cut "
    "or its process stood still, nor when no packet of its machine reaches the "
    "coordinator, nor again and again",
)

HERE = Home("/first", "00000000-0000-0000-0000-000000000001", "here")
THERE = Home("/joined", "00000000-0000-0000-0000-000000000002", "there", is_joined=True)


@dataclass
class Coordinator:
    problems: Problems
    register: DictRegister = field(default_factory=DictRegister)
    serves: bool = True
    now_ms: int = 1000

    def __post_init__(self) -> None:
        self.calls = StandbyCalls(
            self.register, HERE, self.problems, lambda: self.now_ms, lambda: self.serves
        )


@pytest.fixture
def coordinator(tmp_path: Path) -> Coordinator:
    return Coordinator(Problems(tmp_path))


def test_a_call_is_answered_and_the_operator_told_for_a_minute(coordinator: Coordinator) -> None:
    coordinator.calls.look()
    roll = RollCall(coordinator.register, THERE)
    roll.call()
    coordinator.calls.look()
    assert roll.is_answered()
    (problem,) = coordinator.problems.lines()
    assert problem.startswith(
        "the standby on /joined of there hears nothing from the coordinator on /first of here, "
    )
    coordinator.now_ms += 60_000
    coordinator.calls.look()
    assert coordinator.problems.lines() == [problem]
    coordinator.now_ms += 1
    coordinator.calls.look()
    assert coordinator.problems.lines() == []


def test_a_call_from_before_its_start_is_answered_and_no_problem(coordinator: Coordinator) -> None:
    """It was for the coordinator before, which a standby has replaced by this one."""
    roll = RollCall(coordinator.register, THERE)
    roll.call()
    coordinator.calls.look()
    assert roll.is_answered()
    assert coordinator.problems.lines() == []
    roll.call()
    coordinator.calls.look()
    assert len(coordinator.problems.lines()) == 1


def test_one_that_serves_no_calls_does_not_answer(coordinator: Coordinator) -> None:
    roll = RollCall(coordinator.register, THERE)
    roll.call()
    coordinator.serves = False
    coordinator.calls.look()
    assert not roll.is_answered()
    assert coordinator.problems.lines() == []
    coordinator.serves = True
    coordinator.calls.look()
    assert roll.is_answered()


def test_without_a_call_nothing_is_asked(coordinator: Coordinator) -> None:
    coordinator.calls.look()
    assert coordinator.register.calls == ["read"]

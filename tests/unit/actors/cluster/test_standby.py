"""When a standby starts the coordinator, and which one it ends before."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from support.nodes.dict_register import DictRegister

from rocketray.actors.cluster import standby
from rocketray.actors.cluster.coordinator_silence import (
    BACK_OFF_S,
    CALL_S,
    START_S,
    TAKE_OVER_S,
    CoordinatorSilence,
)
from rocketray.actors.cluster.standby import Standby
from rocketray.errors import ActorError, RegisterUnavailableError
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import RayError
from rocketray.runtime.register.roll_call import answer, caller

pytestmark = [
    pytest.mark.proves(
        "durability",
        "When the coordinator's machine is lost, a standby starts it with all that was saved, "
        "and gives it back; nothing acknowledged is missing",
    ),
    pytest.mark.proves(
        "durability",
        "A standby takes over from no coordinator that runs: not when its own network was cut "
        "or its process stood still, nor when no packet of its machine reaches the "
        "coordinator, nor again and again",
    ),
]

HOME = Home("/joined", "00000000-0000-0000-0000-000000000002", "there", is_joined=True)
ELSEWHERE = Home("/other", "00000000-0000-0000-0000-000000000003", "else", is_joined=True)
FIRST = Home("/first", "00000000-0000-0000-0000-000000000001", "here")
SPREAD_S = 2.0


@dataclass
class Ray:
    """The coordinators on a Ray, one at most at a time; calls to one that is silent wait."""

    present: str = "first"
    is_silent: bool = False
    looks_at_register: bool = False
    cut_until_s: float = 0.0
    blocked: int = 0
    place: Home = FIRST
    now_s: float = 0.0
    told: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    fails: Exception | None = None
    register: DictRegister = field(default_factory=DictRegister)

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def actor_or_none(*_: str) -> Any:
            if self.is_cut():  # a call to the GCS waits
                self.blocked += 1
                self.now_s = self.cut_until_s
            here = self.present
            if not here:
                return None
            return SimpleNamespace(id=here, place=SimpleNamespace(remote=lambda: self.ask(here)))

        def end(*_: Any) -> None:
            self.told.append(f"ended {self.present}")
            self.present = ""

        def start(*_: Any, **__: Any) -> Any:
            if self.fails is not None:
                raise self.fails
            self.told.append("started")
            self.present, self.is_silent, self.place = "ours", False, HOME
            return actor_or_none()

        def wait(calls: list[str], timeout: float) -> tuple[list[str], list[str]]:
            is_done = not (self.is_silent or self.is_cut()) or self.of(calls[0]) != self.present
            self.now_s += 0 if is_done else timeout
            return (calls, []) if is_done else ([], calls)

        def get(call: str, timeout: float = 0.0) -> Home:
            del timeout
            if self.of(call) != self.present:
                raise RayError("it has ended")
            return self.place

        monkeypatch.setattr(standby, "actor_or_none", actor_or_none)
        monkeypatch.setattr(standby, "actor_id_of", lambda actor: actor.id)
        monkeypatch.setattr(standby, "hears_gcs", lambda: not self.is_cut())
        monkeypatch.setattr(standby, "end_coordinator", end)
        monkeypatch.setattr(standby, "stop_coordinator", end)
        monkeypatch.setattr(standby, "start_actor", start)
        monkeypatch.setattr(standby, "check_standby", self._check)
        monkeypatch.setattr(standby, "open_register", lambda _: self.register)
        monkeypatch.setattr(standby, "ray", SimpleNamespace(wait=wait, get=get))
        clock = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self.sleep)
        monkeypatch.setattr(standby, "time", clock)

    def is_cut(self) -> bool:
        """Whether no packet passes between the standby's machine and any other."""
        return self.now_s < self.cut_until_s

    def ask(self, actor: str) -> str:
        self.calls.append(f"{actor} at {self.now_s}")
        return self.calls[-1]

    def of(self, call: str) -> str:
        return call.partition(" ")[0]

    def _check(self, *_: str) -> None:
        if isinstance(self.fails, RegisterUnavailableError):
            raise self.fails

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.looks_at_register and caller(self.register) is not None:
            answer(self.register)

    def run(self, standby: Standby, until_s: float) -> None:
        """Have the standby look once a second."""
        while self.now_s < until_s:
            self.sleep(1)
            standby.look()


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Ray:
    found = Ray()
    found.patch(monkeypatch)
    return found


@pytest.fixture
def ours(there: Ray) -> Standby:
    found = Standby(HOME, "file:///register")
    there.run(found, 100)
    assert there.told == []
    return found


def test_a_silent_coordinator_is_ended_and_another_one_started_here(
    there: Ray, ours: Standby
) -> None:
    there.is_silent = True
    there.run(ours, 100 + TAKE_OVER_S - 1)
    assert there.told == []
    there.run(ours, 100 + TAKE_OVER_S + SPREAD_S + 2)
    assert there.told == ["ended first", "started"]
    there.run(ours, 300)
    assert len(there.told) == 2


def test_one_that_is_gone_is_replaced(there: Ray, ours: Standby) -> None:
    there.present = ""
    there.run(ours, 100 + TAKE_OVER_S - 1)
    assert there.told == []
    there.run(ours, 100 + TAKE_OVER_S + SPREAD_S + 2)
    assert there.told == ["started"]


def test_one_that_starts_elsewhere_has_a_minute(there: Ray, ours: Standby) -> None:
    there.present, there.is_silent = "second", True
    there.run(ours, 100 + START_S - 2)
    assert there.told == []
    there.run(ours, 100 + START_S + SPREAD_S + 3)
    assert there.told == ["ended second", "started"]


def test_one_that_another_standby_started_a_moment_ago_is_left_alone(
    there: Ray, ours: Standby
) -> None:
    there.is_silent = True
    there.run(ours, 100 + TAKE_OVER_S - 2)
    there.present = "second"
    ours._take_over()
    assert there.told == []


def test_a_standby_whose_own_network_was_cut_ends_nobody(there: Ray, ours: Standby) -> None:
    """When the network is back, the coordinator has the whole time, and is heard."""
    there.cut_until_s = 200
    there.run(ours, 200)
    there.is_silent = True
    there.run(ours, 200 + TAKE_OVER_S - 6)
    assert there.told == []
    there.is_silent = False
    there.run(ours, 300)
    assert there.told == []


def test_silence_from_before_a_cut_does_not_count_after_it(there: Ray, ours: Standby) -> None:
    there.is_silent = True
    there.run(ours, 110)
    asked = len(there.calls)
    while len(there.calls) == asked:  # a look in the first moment of the cut would block once
        there.run(ours, there.now_s + 1)
    there.cut_until_s = 200
    there.run(ours, 200)
    assert there.blocked == 0, "a standby that hears no Ray looks for no actor"
    there.calls.clear()
    there.run(ours, 200 + TAKE_OVER_S - 3)
    assert there.told == []
    assert there.calls, "it asks afresh"
    there.run(ours, 200 + TAKE_OVER_S + SPREAD_S + 3)
    assert there.told == ["ended first", "started"]


def test_the_last_word_rests_on_a_call_that_is_some_seconds_old(there: Ray, ours: Standby) -> None:
    there.is_silent = True
    there.run(ours, 100 + TAKE_OVER_S + SPREAD_S + 2)
    assert there.told == ["ended first", "started"]
    asked_s = {call.partition(" ")[0]: float(call.rpartition(" ")[2]) for call in there.calls[::-1]}
    last_s = max(float(each.rpartition(" ")[2]) for each in there.calls if "first" in each)
    assert asked_s["ours"] - last_s <= standby._ANSWER_S + 2


def test_one_that_answers_in_the_register_is_left_alone(
    there: Ray, ours: Standby, caplog: pytest.LogCaptureFixture
) -> None:
    """No packet of this machine comes to the coordinator's."""
    there.is_silent = there.looks_at_register = True
    there.run(ours, 1000)
    assert there.told == []
    assert "the coordinator of cluster default on /first of here answers in the" in caplog.text
    there.looks_at_register = False
    there.run(ours, 1000 + TAKE_OVER_S + SPREAD_S + 2 + CALL_S)
    assert there.told == ["ended first", "started"]
    assert "has not answered for 2" in caplog.text


def test_one_that_was_taken_back_is_not_taken_again_for_a_while(there: Ray, ours: Standby) -> None:
    there.present = ""
    there.run(ours, 200)
    assert there.told == ["started"]
    there.present, there.place, there.is_silent = "taken-back", FIRST, True
    there.run(ours, 200 + BACK_OFF_S - 5)
    assert there.told == ["started"]
    there.is_silent = False
    there.run(ours, there.now_s + 5)
    there.is_silent, begun_s = True, there.now_s
    there.run(ours, begun_s + BACK_OFF_S - 10)
    assert there.told == ["started"]
    there.run(ours, begun_s + BACK_OFF_S + 10)
    assert there.told == ["started", "ended taken-back", "started"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_node_that_has_waited_for_an_answer_starts_one_unless_it_answers_in_the_register(
    there: Ray, is_there: bool
) -> None:
    ours = Standby(HOME, "file:///register")
    there.is_silent, there.looks_at_register = True, is_there
    ours.start_coordinator("first")
    assert there.told == ([] if is_there else ["ended first", "started"])


def test_a_node_that_has_waited_and_finds_none_starts_one_at_once(there: Ray) -> None:
    there.present = ""
    Standby(HOME, "file:///register").start_coordinator("first")
    assert there.told == ["started"]
    assert there.now_s < CALL_S


def test_a_node_that_has_waited_ends_none_that_was_started_meanwhile(there: Ray) -> None:
    """All machines start after a power failure, and the first disk's node is a minute late."""
    there.is_silent = True
    Standby(HOME, "file:///register").start_coordinator("")
    assert there.told == []
    assert there.now_s < CALL_S, "it waits for its answer elsewhere"


def test_a_node_that_hears_no_ray_starts_none(there: Ray) -> None:
    ours = Standby(HOME, "file:///register")
    there.is_silent = True
    ours._silence = CoordinatorSilence(waited_for="first")
    ours._turn()
    there.cut_until_s = 3 * START_S
    there.run(ours, there.cut_until_s)
    assert there.told == []


@pytest.mark.parametrize(
    "failure",
    [ActorError("the name is taken"), RegisterUnavailableError("file:///register", "why")],
)
def test_a_failed_start_is_tried_again_later(
    there: Ray, ours: Standby, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    there.present, there.fails = "", failure
    there.run(ours, 100 + TAKE_OVER_S + SPREAD_S + 10)
    if isinstance(failure, RegisterUnavailableError):
        (line,) = caplog.messages
        assert "cluster default has had no answer from its coordinator for 2" in line
        assert "no other one is started: the register" in line
    there.fails = None
    there.run(ours, 100 + 2 * (TAKE_OVER_S + SPREAD_S + 2))
    assert there.told == ["started"]


@pytest.mark.parametrize(("place", "told"), [(HOME, ["ended first"]), (ELSEWHERE, [])])
def test_a_node_that_stops_ends_the_coordinator_that_runs_there(
    there: Ray, place: Home, told: list[str]
) -> None:
    there.place = place
    ours = Standby(HOME, "file:///register")
    ours.start()
    ours.stop()
    assert there.told == told

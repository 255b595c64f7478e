"""When a standby starts the coordinator, and which one it ends before."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from rocketray.actors.cluster import standby
from rocketray.actors.cluster.standby import TAKE_OVER_S, Standby
from rocketray.actors.files.home import Home
from rocketray.actors.ray_process.ray_runtime import RayError
from rocketray.errors import ActorError, RegisterUnavailableError

HOME = Home("/joined", "00000000-0000-0000-0000-000000000002", "there", is_joined=True)
ELSEWHERE = Home("/other", "00000000-0000-0000-0000-000000000003", "else", is_joined=True)
START_S = 60.0
SPREAD_S = 2.0


@dataclass
class Ray:
    """The coordinators on a Ray, one at most at a time; calls to one that is silent wait."""

    present: str = "first"
    is_silent: bool = False
    place: Home = ELSEWHERE
    now_s: float = 0.0
    told: list[str] = field(default_factory=list)
    fails: Exception | None = None

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def actor_or_none(*_: str) -> Any:
            here = self.present
            if not here:
                return None
            ask = SimpleNamespace(remote=lambda: here)
            return SimpleNamespace(id=here, place=ask)

        def end(_: str) -> None:
            self.told.append(f"ended {self.present}")
            self.present = ""

        def start(*_: Any, **__: Any) -> Any:
            if self.fails is not None:
                raise self.fails
            self.told.append("started")
            self.present, self.is_silent = "ours", False
            return actor_or_none()

        def wait(calls: list[str], timeout: float) -> tuple[list[str], list[str]]:
            self.now_s += timeout if self.is_silent else 0
            is_done = not self.is_silent or calls != [self.present]
            return (calls, []) if is_done else ([], calls)

        def get(call: str, timeout: float = 0.0) -> Home:
            del timeout
            if call != self.present:
                raise RayError("it has ended")
            return self.place

        monkeypatch.setattr(standby, "actor_or_none", actor_or_none)
        monkeypatch.setattr(standby, "actor_id_of", lambda actor: actor.id)
        monkeypatch.setattr(standby, "end_coordinator", end)
        monkeypatch.setattr(standby, "stop_coordinator", end)
        monkeypatch.setattr(standby, "start_actor", start)
        monkeypatch.setattr(standby, "check_standby", self._check)
        monkeypatch.setattr(standby, "ray", SimpleNamespace(wait=wait, get=get))
        monkeypatch.setattr(standby, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def _check(self, *_: str) -> None:
        if isinstance(self.fails, RegisterUnavailableError):
            raise self.fails

    def run(self, standby: Standby, until_s: float) -> None:
        """Have the standby look once a second."""
        while self.now_s < until_s:
            self.now_s += 1
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


@pytest.mark.parametrize(
    "failure",
    [ActorError("the name is taken"), RegisterUnavailableError("file:///register", "why")],
)
def test_a_failed_start_is_tried_again_later(
    there: Ray, ours: Standby, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    there.present, there.fails = "", failure
    there.run(ours, 100 + TAKE_OVER_S + SPREAD_S + 2)
    if not isinstance(failure, ActorError):
        assert "cluster default has no coordinator yet: the register" in caplog.text
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

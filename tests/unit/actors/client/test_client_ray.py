"""A lost Ray is left and joined again; calls fail at once meanwhile, and a program's own Ray stays."""

from __future__ import annotations

import ctypes
import signal
import threading
import time

import pytest
from support.harness.patience import wait_until

from rocketray.actors.client import client_ray
from rocketray.actors.client.client_ray import ClientRay
from rocketray.errors import NodeNotRunningError, ShardUnavailableError

pytestmark = pytest.mark.proves(
    "durability",
    "Programs on the node's machine and elsewhere, an app and `rocketray consume` "
    "continue when their Ray is back: nothing acknowledged is missing, nothing is stored "
    "twice",
)


class FakeRay:
    """The Ray of this process, as the functions of ``ray_runtime`` show it."""

    gcs = "10.0.0.1:6379"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session = ""
        self.answers = True
        self.is_gcs_away = False
        self.joined: list[str] = []
        self.left: list[bool] = []
        monkeypatch.setattr(client_ray, "has_ray", lambda: bool(self.session))
        monkeypatch.setattr(client_ray, "is_driver", lambda: True)
        monkeypatch.setattr(client_ray, "ray_session", lambda: self.session)
        monkeypatch.setattr(client_ray, "leave_ray", self.leave)
        monkeypatch.setattr(client_ray, "watch_ray", lambda **_: self)

    def lost(self) -> str | None:
        return None if self.answers else "its GCS does not answer"

    def join(self, address: str) -> None:
        if not self.answers:
            raise NodeNotRunningError("nothing answers")
        self.joined.append(address)
        self.session = f"session {len(self.joined)}"

    def leave(self, *, is_lost: bool) -> None:
        self.left.append(is_lost)
        self.session = ""


class User:
    """What holds the Ray, as a connection does."""


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return FakeRay(monkeypatch)


def fails(client: ClientRay) -> str:
    """What a call says now; empty if it may be made."""
    try:
        client.check()
    except ShardUnavailableError as error:
        return error.reason
    return ""


def watched_threads(client: ClientRay) -> int:
    """How many threads watch the Ray of *client*: those of other tests end in their own time."""
    runs = [vars(each).get("_target") for each in threading.enumerate() if each.name == "ray"]
    return sum(getattr(run, "__self__", None) is client for run in runs)


def test_a_lost_ray_is_left_and_joined_again_at_its_address(ray: FakeRay) -> None:
    client, user = ClientRay(0.001), User()
    assert client.enter(ray.join)
    client.keep(user)
    assert not client.enter(ray.join)
    ray.answers = False
    wait_until(lambda: bool(fails(client)))
    assert fails(client) == (
        "Ray is lost, its GCS does not answer; this process joins it again when it answers"
    )
    with pytest.raises(NodeNotRunningError, match="Ray is lost"):
        client.enter(ray.join)
    wait_until(lambda: bool(ray.left))
    ray.answers = True
    wait_until(lambda: not fails(client))
    assert ray.left == [True]
    assert ray.joined == ["", ray.gcs]
    ray.answers = False
    wait_until(lambda: len(ray.left) == 2)  # it is still watched
    ray.answers = True
    wait_until(lambda: not fails(client))
    assert user


def test_sigterm_has_the_programs_handler_when_the_ray_was_left_and_when_it_is_joined_again(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    c_signal = ctypes.CDLL(None).signal  # what Ray installs, Python does not know
    leave, join = ray.leave, ray.join

    def leave_as_ray_does(*, is_lost: bool) -> None:
        c_signal(signal.SIGTERM, ctypes.c_void_p(signal.SIG_IGN))
        leave(is_lost=is_lost)

    def join_as_ray_does(address: str) -> None:
        c_signal(signal.SIGTERM, ctypes.c_void_p(signal.SIG_IGN))
        join(address)

    monkeypatch.setattr(client_ray, "leave_ray", leave_as_ray_does)
    client, user, came = ClientRay(0.001), User(), list[int]()
    before = signal.getsignal(signal.SIGTERM)
    client.enter(join_as_ray_does)
    signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        client.keep(user)
        ray.answers = False
        wait_until(lambda: bool(ray.left))
        time.sleep(0.01)
        signal.raise_signal(signal.SIGTERM)
        ray.answers = True
        wait_until(lambda: not fails(client))
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM] * 2
    assert user


def test_a_gcs_that_is_away_and_comes_back_is_noted(ray: FakeRay) -> None:
    client, user = ClientRay(0.001), User()
    client.enter(ray.join)
    client.keep(user)
    for is_away in (True, False, True):
        ray.is_gcs_away = is_away
        wait_until(lambda: (client.gcs_away() is not None) is ray.is_gcs_away)
        assert not fails(client)
    assert client.gcs_away() == (
        f"Ray's GCS at {ray.gcs} does not answer: what needs it has to wait"
    )
    ray.answers = False
    wait_until(lambda: bool(ray.left))
    ray.is_gcs_away, ray.answers = False, True
    wait_until(lambda: not fails(client) and client.gcs_away() is None)
    assert user


def test_a_ray_that_the_program_initialized_is_left_alone(ray: FakeRay) -> None:
    ray.session = "the program's"
    client, user = ClientRay(0.001), User()
    assert not client.enter(ray.join)
    client.keep(user)
    ray.answers = False
    wait_until(lambda: bool(fails(client)))
    assert "let it call ray.shutdown(), and ray.init() again" in fails(client)
    ray.session = ""  # the program shuts it down
    time.sleep(0.02)
    assert fails(client)
    ray.answers, ray.session = True, "the program's next one"
    wait_until(lambda: not fails(client))
    assert not ray.left
    assert not ray.joined
    assert user


def test_a_ray_that_the_program_initialized_meanwhile_is_used(ray: FakeRay) -> None:
    client, user = ClientRay(0.001), User()
    client.enter(ray.join)
    client.keep(user)
    ray.answers = False
    wait_until(lambda: bool(ray.left))
    ray.answers, ray.session = True, "the program's"
    wait_until(lambda: not fails(client))
    assert len(ray.left) == 1
    assert ray.session in {"the program's", "session 2"}
    assert user


def test_the_watch_ends_with_the_last_connection(ray: FakeRay) -> None:
    client, user = ClientRay(0.001), User()
    client.enter(ray.join)
    client.keep(user)
    client.keep(user)
    assert watched_threads(client) == 1
    del user
    wait_until(lambda: watched_threads(client) == 0)
    again = User()
    client.keep(again)
    assert watched_threads(client) == 1


def test_an_actor_does_not_watch_its_ray(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_ray, "is_driver", lambda: False)
    ray.session = "the actor's"
    client, user = ClientRay(0.001), User()
    client.enter(ray.join)
    client.keep(user)
    assert watched_threads(client) == 0

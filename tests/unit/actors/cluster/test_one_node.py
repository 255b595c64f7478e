"""Which actors a node ends before it starts its own."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from rocketray.actors.cluster import one_node
from rocketray.actors.cluster.one_node import _Owner, make_room
from rocketray.actors.files.home import Home
from rocketray.actors.ray_process.ray_runtime import GetTimeoutError
from rocketray.errors import ActorError, ShardUnavailableError

HOME = Home("/new", "00000000-0000-0000-0000-000000000001", "here", cluster="c")
LOST = Home("/old", "00000000-0000-0000-0000-000000000002", "gone", cluster="c")
STANDBY = Home(
    "/joined", "00000000-0000-0000-0000-000000000003", "there", cluster="c", is_joined=True
)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The actors of a cluster of that name, which do not answer."""
    names = ["coordinator", "filter"]
    monkeypatch.setattr(one_node, "names_of", lambda *_: [*names])
    monkeypatch.setattr(one_node, "_other_clusters", lambda _: set())
    monkeypatch.setattr(one_node, "_owner", lambda _: _Owner())

    def end_actors(_: str, but: str = "") -> None:
        names[:] = [name for name in names if name == but]

    monkeypatch.setattr(one_node, "end_actors", end_actors)
    clock = SimpleNamespace(sleep=lambda _: None, monotonic=itertools.count(0.0, 5.0).__next__)
    monkeypatch.setattr(f"{one_node.__name__}.time", clock)
    return names


def test_with_the_register_actors_of_a_lost_machine_are_ended(left: list[str]) -> None:
    make_room(HOME, takes_over=True)
    assert left == []


def test_without_it_they_are_left_alone(left: list[str]) -> None:
    with pytest.raises(ActorError, match="cluster 'c' on this Ray is a node already"):
        make_room(HOME)
    assert len(left) == 2


def test_actors_that_answer_are_left_alone_also_with_the_register(
    left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_node, "_owner", lambda _: _Owner(filter_actor=LOST))
    with pytest.raises(ActorError, match="is the node on /old of gone already"):
        make_room(HOME, takes_over=True)
    assert len(left) == 2


def test_the_coordinator_of_a_standby_continues_until_its_node_starts_another(
    left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_node, "_owner", lambda _: _Owner(STANDBY))
    with pytest.raises(ActorError, match="is the node on /joined of there already"):
        make_room(HOME)
    assert len(left) == 2
    make_room(HOME, takes_over=True)
    assert left == ["coordinator"]


@pytest.mark.parametrize(
    ("answers", "known"),
    [
        ({"coordinator": STANDBY, "filter": HOME}, _Owner(coordinator=STANDBY)),
        ({"coordinator": None, "filter": HOME}, _Owner(filter_actor=HOME)),
        ({"filter": HOME}, _Owner(filter_actor=HOME)),
        ({"coordinator": None, "filter": None}, _Owner()),
        ({}, _Owner()),
    ],
)
def test_what_is_known_of_the_owner_tells_who_answered(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Home | None], known: _Owner
) -> None:
    """An actor that is not there, and one that does not answer: None."""

    def find_actor(_: str, name: str) -> Any:
        if name not in answers:
            raise ShardUnavailableError(name, 1000, "there is no such actor")
        asked = SimpleNamespace(remote=lambda: answers[name])
        return SimpleNamespace(place=asked, home=asked)

    def get(answer: Home | None, timeout: float) -> Home:
        if answer is None:
            raise GetTimeoutError(timeout)
        return answer

    monkeypatch.setattr(one_node, "find_actor", find_actor)
    monkeypatch.setattr(one_node, "ray", SimpleNamespace(get=get))
    assert one_node._owner("c") == known
    assert known.home in (known.coordinator, known.filter_actor)

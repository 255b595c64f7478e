"""Which actors a node ends before it starts its own."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from rocketray.actors.cluster import one_node
from rocketray.actors.cluster.one_node import _Owner, make_room
from rocketray.errors import ActorError, ShardUnavailableError
from rocketray.hosting.host_status import SINKS, actor_name
from rocketray.runtime.calls.endpoint import on_disk
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import GetTimeoutError

pytestmark = pytest.mark.proves(
    "durability",
    "The hosts of an app stay the same processes, and continue, when the node of the "
    "first disk stops, is killed, starts again, or loses the coordinator to a standby and "
    "takes it back",
)

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


def test_a_coordinator_that_another_node_has_started_meanwhile_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    present, killed = ["silent"], []

    def kill(actor: str) -> None:
        killed.append(actor)
        present[:] = ["of another node"]

    monkeypatch.setattr(one_node, "actor_or_none", lambda *_: present[0])
    monkeypatch.setattr(one_node, "actor_id_of", lambda actor: actor)
    monkeypatch.setattr(one_node, "ray", SimpleNamespace(kill=kill))
    one_node.end_coordinator("c", "silent")
    one_node.end_coordinator("c", "silent")
    assert killed == ["silent"]


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


def test_the_actors_of_a_node_are_those_of_its_disk_and_no_app(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hosts of apps and sinks are in the same namespace, and run on any machine."""
    disk = STANDBY.uuid
    own = ["coordinator", "filter", "gateway", "gateway-spare"]
    first = sorted([*own, "shards:app:0", "shards:common-0", "shards:shared"])
    joined = sorted(on_disk(name, disk) for name in first if name != "coordinator")
    others = [actor_name("trade", 0), actor_name("filter", SINKS), "a user's", f"theirs@{disk}"]
    listed = [{"name": name, "namespace": "rocketray-c"} for name in (*others, *first, *joined)]
    listed.append({"name": "filter", "namespace": "rocketray-other"})
    util = SimpleNamespace(list_named_actors=lambda all_namespaces: listed)
    monkeypatch.setattr(one_node, "ray", SimpleNamespace(util=util))
    assert one_node.names_of("c") == first
    assert one_node.names_of("c", disk) == joined


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
            raise ShardUnavailableError(name, "there is no such actor")
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

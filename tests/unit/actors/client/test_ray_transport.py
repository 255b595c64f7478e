"""How a call becomes a Ray call: its entry, its concurrency group, and several at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

from rocketray.actors.client import ray_transport
from rocketray.actors.client.client_ray import CLIENT_RAY
from rocketray.actors.client.ray_transport import RayTransport, begin
from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.errors import ShardUnavailableError
from rocketray.runtime.calls.endpoint import Endpoint, client_of, once, waits
from rocketray.runtime.files.paths import node_file
from rocketray.runtime.machine import here
from rocketray.runtime.ray_process.ray_runtime import GetTimeoutError, ray

pytestmark = pytest.mark.proves(
    "durability",
    "While the GCS of a separate Ray is unavailable, programs on all machines send and "
    "consume; with its state in Redis it is used again, and without it the nodes and "
    "programs of all machines join the new Ray by themselves",
)

DISK = "00000000-0000-0000-0000-000000000002"


class DoorApi(Protocol):
    def look(self, place: str) -> str: ...

    @once
    def open(self, place: str, *, slowly: bool = False) -> str: ...

    @waits
    def wait(self) -> str: ...


class Entry:
    """A method of an actor, which notes its calls; their results are the calls themselves."""

    def __init__(self, calls: list[Any], *said: Any) -> None:
        self._calls = calls
        self._said = said

    def options(self, **options: Any) -> Entry:
        return Entry(self._calls, *self._said, options)

    def remote(self, *arguments: Any, **options: Any) -> Any:
        self._calls.append((*self._said, *arguments, options))
        return self._calls[-1]


class Actor:
    def __init__(self, calls: list[Any], name: str) -> None:
        self.call = Entry(calls, name, "call")
        self.call_once = Entry(calls, name, "call_once")


def door(number: int) -> Endpoint[DoorApi]:
    return Endpoint(f"house {number}", DoorApi, ("door", number))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    monkeypatch.setattr(ray_transport, "find_actor", lambda _, name: Actor(calls, name))
    monkeypatch.setattr(RayTransport, "_result", lambda _, call, __: (len(calls), call))
    return calls


def test_a_call_that_must_not_be_repeated_has_an_entry_of_its_own(calls: list[Any]) -> None:
    client = client_of(RayTransport(Path()), door(1))
    client.look("here")
    client.open("here", slowly=True)
    client.wait()
    begin(DEFAULT_CLUSTER, door(2), DoorApi.open, "there")
    given = "DoorApi", ("door", 1)
    assert calls == [
        ("house 1", "call", *given, "look", "here", {}),
        ("house 1", "call_once", *given, "open", "here", {"slowly": True}),
        ("house 1", "call", {"concurrency_group": "waiting"}, *given, "wait", {}),
        ("house 2", "call_once", "DoorApi", ("door", 2), "open", "there", {}),
    ]


def test_calls_of_several_objects_are_all_under_way_before_the_first_result(
    calls: list[Any],
) -> None:
    doors = [door(number) for number in range(3)]
    found: Any = RayTransport(Path()).call_each(doors, DoorApi.look, "here")
    assert [(under_way, call[0]) for under_way, call in found] == [
        (3, "house 0"),
        (3, "house 1"),
        (3, "house 2"),
    ]


def test_a_gateway_that_does_not_run_is_started_before_a_call(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_transport, "actor_or_none", lambda *_: None)
    client_of(RayTransport(Path()), Endpoint(f"gateway@{DISK}", DoorApi)).look("here")
    monkeypatch.setattr(ray_transport, "actor_or_none", Actor)
    client_of(RayTransport(Path()), Endpoint("gateway", DoorApi)).look("there")
    waiting = {"concurrency_group": "waiting"}
    assert calls == [
        ("coordinator", "call", waiting, "NodeApi", (), "open_gateway", DISK, {}),
        (f"gateway@{DISK}", "call", "DoorApi", (), "look", "here", {}),
        ("gateway", "call", "DoorApi", (), "look", "there", {}),
    ]


def test_a_call_without_an_answer_ends_with_the_node_and_the_next_node_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(*_: Any, **__: Any) -> str:
        if len(late) < 2:
            late.append(0)
            raise GetTimeoutError
        return "answer"

    late: list[int] = []
    monkeypatch.setattr(ray_transport, "find_actor", lambda _, name: Actor([], name))
    monkeypatch.setattr(ray, "get", get)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.communicate()
    before, after = (
        {**here(), "data": str(tmp_path), "pid": pid} for pid in (ended.pid, os.getpid())
    )
    transport = RayTransport(Path(), node=before)
    node_file(tmp_path).write_text(json.dumps(after))
    with pytest.raises(ShardUnavailableError, match="has ended, and did not answer before"):
        client_of(transport, door(1)).look("here")
    assert transport.node == after
    assert client_of(transport, door(1)).look("here") == "answer"
    assert len(late) == 2


def test_a_call_fails_at_once_while_ray_is_lost(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = RayTransport(Path())
    monkeypatch.setattr(CLIENT_RAY, "_lost", "Ray is lost")
    for call in (client_of(transport, door(1)).look, transport.is_local):
        with pytest.raises(ShardUnavailableError, match="Ray is lost"):
            call("here")
    assert calls == []


def test_while_the_gcs_is_away_only_actors_that_are_known_are_called(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = RayTransport(Path())
    client_of(transport, door(1)).look("before")
    monkeypatch.setattr(CLIENT_RAY._away, "said", "Ray's GCS does not answer")
    client_of(transport, door(1)).look("meanwhile")
    with pytest.raises(ShardUnavailableError, match=r"house 2.*Ray's GCS does not answer"):
        client_of(transport, door(2)).look("meanwhile")
    assert [(call[0], call[-2]) for call in calls] == [
        ("house 1", "before"),
        ("house 1", "meanwhile"),
    ]
    monkeypatch.setattr(ray_transport, "ray_session", lambda: "the next one")
    with pytest.raises(ShardUnavailableError):
        client_of(transport, door(1)).look("later")


def test_a_call_without_an_answer_ends_while_the_gcs_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def get(*_: Any, **__: Any) -> str:
        monkeypatch.setattr(CLIENT_RAY._away, "said", "Ray's GCS does not answer")
        raise GetTimeoutError

    monkeypatch.setattr(ray_transport, "find_actor", lambda _, name: Actor([], name))
    monkeypatch.setattr(ray_transport, "_WITHOUT_GCS_S", 0.0)
    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(ShardUnavailableError, match=r"house 1.*Ray's GCS does not answer"):
        client_of(RayTransport(Path()), door(1)).look("here")


def test_after_the_node_is_lost_each_call_raises(calls: list[Any]) -> None:
    transport = RayTransport(Path())
    error = ConnectionError("Ray is gone")
    transport.lose(error)  # type: ignore[arg-type]
    with pytest.raises(ConnectionError, match="is gone"):
        client_of(transport, door(1)).look("here")
    assert calls == []

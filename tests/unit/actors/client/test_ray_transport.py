"""How a call becomes a Ray call: its entry, its concurrency group, and several at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest

from rocketray.actors.calls.endpoint import Endpoint, client_of, once, waits
from rocketray.actors.client import ray_transport
from rocketray.actors.client.ray_transport import RayTransport, begin
from rocketray.cluster import DEFAULT_CLUSTER


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


def test_after_the_node_is_lost_each_call_raises(calls: list[Any]) -> None:
    transport = RayTransport(Path())
    error = ConnectionError("Ray is gone")
    transport.lose(error)  # type: ignore[arg-type]
    with pytest.raises(ConnectionError, match="is gone"):
        client_of(transport, door(1)).look("here")
    assert calls == []

"""What a connection finds out without an actor, and how it looks up ids of imported messages."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rocketray.actors.client.connection import Connection
from rocketray.actors.client.standalone import Client
from rocketray.actors.topics.catalog import TopicCatalog, TopicConfig
from rocketray.actors.topics.topic_start import Started, TopicProgress
from rocketray.actors.transactions.transaction_state import TransactionOverview
from rocketray.errors import ConfigError, StoreError, StreamError

OLD_ID = "C0000209000026920000000000000ABC"


@pytest.mark.parametrize("topic", ["First", "Second"])
def test_an_id_of_no_shard_of_ours_is_asked_of_every_topic(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = TopicCatalog().with_topic("First", 1).with_topic("Second", 2)
    asked: list[str] = []
    imported: Any = SimpleNamespace(imported_offset_id=OLD_ID)
    a_key_like_it = SimpleNamespace(imported_offset_id=None)

    def query(_connection: Connection, name: str, key: str) -> list[Any]:
        asked.append(name)
        assert key == OLD_ID
        return [a_key_like_it, imported] if name == topic else [a_key_like_it]

    monkeypatch.setattr(Connection, "topics", lambda _connection: catalog.topics)
    monkeypatch.setattr(Connection, "query", query)
    connection: Any = object.__new__(Connection)
    assert connection.view(OLD_ID.lower()) is imported
    assert asked == ["First", "Second"][: 1 + (topic == "Second")]
    monkeypatch.setattr(Connection, "query", lambda *_: [a_key_like_it])
    assert connection.view(OLD_ID) is None


def test_a_node_on_which_no_transaction_was_begun_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shard host was not started yet."""
    topics = TopicCatalog().with_topic("Trade", 1).topics
    monkeypatch.setattr(Connection, "topics", lambda _connection: topics)
    connection: Any = object.__new__(Connection)
    assert connection.transactions(10) == TransactionOverview()


class Coordinator:
    """As much of the coordinator as topics need; each call is made by ``remote``."""

    def __init__(self) -> None:
        self.catalog = TopicCatalog()
        self.running: set[int] = set()
        self.closed: dict[str, StreamError] = {}
        self.calls: list[str] = []
        self.interrupt_at: int | None = None

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *given, **_: (getattr(self, f"do_{name}"), given))

    def do_topics(self) -> dict[str, TopicConfig]:
        return dict(self.catalog.topics)

    def do_create_topic(self, name: str, queues: int, *_: Any) -> TopicConfig:
        self.calls.append(f"note {name} {queues}")
        existing = self.catalog.topics.get(name)
        if existing is None or existing.queues != queues:
            self.catalog = self.catalog.with_topic(name, queues)
        return self.catalog.get(name)

    def do_start_queues(self, name: str, topic_id: str, queues: range, wait_s: float) -> Started:
        assert topic_id == self.catalog.get(name).topic_id
        assert 1 <= wait_s <= 60
        if queues.start == self.interrupt_at:
            raise KeyboardInterrupt
        self.calls.append(f"start {queues.start}-{queues.stop - 1}")
        began = tuple(f"{name}/{queue}" for queue in queues if queue not in self.running)
        self.running |= {*queues}
        return Started(self.closed, (), began)


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    def ask(_connection: Connection, call: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
        function, arguments = call
        return function(*arguments)

    monkeypatch.setattr(Connection, "_ask", ask)
    return Coordinator()


def connection_to(coordinator: Coordinator, kind: type[Connection] = Connection) -> Connection:
    connection = object.__new__(kind)
    connection._coordinator = coordinator
    return connection


def test_a_topic_whose_making_was_interrupted_is_completed_by_the_same_call(
    coordinator: Coordinator,
) -> None:
    connection = connection_to(coordinator)
    coordinator.interrupt_at = 16
    with pytest.raises(KeyboardInterrupt):
        connection.create_topic("Trade", 24)
    assert coordinator.calls == ["note Trade 24", "start 0-7", "start 8-15"]
    coordinator.interrupt_at = None
    seen: list[TopicProgress] = []
    assert connection.create_topic("Trade", on_progress=seen.append).queues == 24
    assert (coordinator.running, seen[-1].started) == ({*range(24)}, 8)
    assert connection.alter_topic("Trade", 26, seen.append).queues == 26
    assert (coordinator.running, seen[-1].started) == ({*range(26)}, 2)
    with pytest.raises(ConfigError, match="cannot be reduced"):
        connection.alter_topic("Trade", 1)


def test_a_queue_that_stays_closed_fails_who_makes_the_topic_and_nobody_after(
    coordinator: Coordinator,
) -> None:
    connection = connection_to(coordinator)
    coordinator.closed = {"Trade/1": StoreError("the disk is full")}
    with pytest.raises(StoreError, match="the disk is full"):
        connection.create_topic("Trade", 2)
    assert connection.create_topic("Trade", 2).queues == 2
    assert connection.alter_topic("Trade", 3).queues == 3
    with pytest.raises(StoreError, match="the disk is full"):
        connection.alter_topic("Other", 1)


def test_a_topic_of_another_size_is_told_of_before_anything_is_started(
    coordinator: Coordinator,
) -> None:
    coordinator.do_create_topic("Trade", 4)  # its queues do not run
    coordinator.calls.clear()
    client = connection_to(coordinator, Client)
    with pytest.raises(ConfigError, match="exists and has 4 queues, not 8"):
        client.create_topic("Trade", 8)
    assert coordinator.calls == []
    assert client.create_topic("Trade", 4).queues == 4
    assert coordinator.calls == ["note Trade 4", "start 0-3"]

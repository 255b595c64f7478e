"""What a connection finds out without an actor, and how it looks up ids of imported messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rocketray.actors.client.connection import Connection
from rocketray.actors.topics.catalog import TopicCatalog
from rocketray.actors.transactions.transaction_state import TransactionOverview

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

    monkeypatch.setattr(Connection, "query", query)
    connection: Any = object.__new__(Connection)
    connection.topics = SimpleNamespace(all=lambda: catalog.topics)
    assert connection.view(OLD_ID.lower()) is imported
    assert asked == ["First", "Second"][: 1 + (topic == "Second")]
    monkeypatch.setattr(Connection, "query", lambda *_: [a_key_like_it])
    assert connection.view(OLD_ID) is None


def test_a_node_on_which_no_transaction_was_begun_has_none() -> None:
    """Its shared process was not started yet."""
    topics = TopicCatalog().with_topic("Trade", 1).topics
    connection: Any = object.__new__(Connection)
    connection.topics = SimpleNamespace(all=lambda: topics)
    assert connection.transactions(10) == TransactionOverview()

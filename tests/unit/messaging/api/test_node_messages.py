"""Lookups over the shards of a node: ids of imported messages, and what all shards find."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import InvalidMessageError, TopicNotFoundError
from rocketray.message import Message
from rocketray.messaging.api.node_messages import NodeMessages
from rocketray.testing import Broker, Clock
from rocketray.testing.fixtures import broker, clock

__all__ = ["broker", "clock"]

OLD_ID = "C0000209000026920000000000000ABC"


@pytest.mark.parametrize("topic", ["First", "Second"])
def test_an_id_of_no_shard_of_ours_is_asked_of_every_topic(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = TopicCatalog().with_topic("First", 1).with_topic("Second", 2)
    asked: list[str] = []
    imported: Any = SimpleNamespace(imported_offset_id=OLD_ID)
    a_key_like_it = SimpleNamespace(imported_offset_id=None)

    def query(_messages: NodeMessages, name: str, key: str) -> list[Any]:
        asked.append(name)
        assert key == OLD_ID
        return [a_key_like_it, imported] if name == topic else [a_key_like_it]

    monkeypatch.setattr(NodeMessages, "query", query)
    topics: Any = SimpleNamespace(all=lambda: catalog.topics)
    messages = NodeMessages(SimpleNamespace(), topics)
    assert messages.view(OLD_ID.lower()) is imported
    assert asked == ["First", "Second"][: 1 + (topic == "Second")]
    monkeypatch.setattr(NodeMessages, "query", lambda *_: [a_key_like_it])
    assert messages.view(OLD_ID) is None


def test_the_results_of_all_queues_are_one_list_in_the_order_of_store_times(
    broker: Broker, clock: Clock
) -> None:
    broker.topics.create("orders", 3)
    begin_ms = clock()
    with broker.producer() as producer:
        for number in range(9):
            keyed = Message("orders", b"%d" % number, keys=["k"])
            producer.send_many("orders", [keyed], queue_id=number * 2 % 3)
            clock.advance(seconds=1)
    found = broker.messages.query("orders", "k")
    assert [int(one.body) for one in found] == [*range(9)]
    for count in range(1, 10):  # of a key the newest, whatever their queues; of a time the oldest
        assert broker.messages.query("orders", "k", count) == found[-count:]
        assert broker.messages.query_by_time("orders", begin_ms, clock(), count) == found[:count]
    assert broker.messages.query_by_time("orders", begin_ms + 2000, begin_ms + 4000) == found[2:5]
    assert broker.messages.offset_at_time("orders", 2, begin_ms + 5000) == 2
    assert broker.messages.at("orders", found[8].queue_id, found[8].queue_offset) == found[8]
    assert broker.messages.view(found[8].offset_message_id) == found[8]
    assert broker.messages.facts(found[8]).max_queue_offset == 3
    assert [one.messages for one in broker.node.shard_statistics("orders")] == [3, 3, 3]


def test_a_lookup_without_a_key_or_a_topic_is_an_error(broker: Broker) -> None:
    broker.topics.create("orders", 1)
    with pytest.raises(InvalidMessageError, match="key to look up is ''; give a text"):
        broker.messages.query("orders", "")
    with pytest.raises(TopicNotFoundError):
        broker.messages.query("ordres", "k")

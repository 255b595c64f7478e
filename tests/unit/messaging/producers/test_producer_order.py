"""Which queue a message goes to, in what order, and in how many batches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.harness.patience import patience
from support.nodes.local_node import LocalNode

from rocketray.message import SHARDING_KEY, Message
from rocketray.messaging.producers.producer import NodeProducer

QUEUES = 4
KEYS = [f"customer-{number}" for number in range(7)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as local:
        local.topics.ensure("T", QUEUES)
        yield local


def bodies_by_key(node: LocalNode) -> dict[str, dict[int, list[int]]]:
    """The numbers of each key's messages, by the queue that they are in."""
    found: dict[str, dict[int, list[int]]] = {key: {} for key in KEYS}
    for message in node.stored("T"):
        key, _, number = message.body.decode().partition(" ")
        found[key].setdefault(message.queue_id, []).append(int(number))
    return found


def send_in_every_way(producer: NodeProducer, key: str) -> None:
    for number in range(0, 60, 6):
        producer.send_async("T", f"{key} {number}".encode(), sharding_key=key)
        producer.send_oneway("T", f"{key} {number + 1}".encode(), sharding_key=key)
        producer.send("T", f"{key} {number + 2}".encode(), sharding_key=key)
        producer.send_async("T", f"{key} {number + 3}".encode(), sharding_key=key)
        listed = [
            Message("T", f"{key} {number + after}".encode(), properties={SHARDING_KEY: key})
            for after in (4, 5)
        ]
        producer.send_many("T", listed)


@pytest.mark.proves(
    "producers",
    "Messages of a key share a queue, and keep the order of the thread that sent them",
)
def test_messages_of_a_key_share_a_queue_and_keep_the_order_of_their_thread(
    node: LocalNode,
) -> None:
    with node.producer() as producer:
        threads = [threading.Thread(target=send_in_every_way, args=(producer, key)) for key in KEYS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience(60))
    for key, queues in bodies_by_key(node).items():
        assert list(queues.values()) == [list(range(60))], key


@pytest.mark.proves("producers", "Messages without a key are sent round-robin")
def test_lists_without_a_key_go_to_each_queue_in_turn(node: LocalNode) -> None:
    with node.producer() as producer:
        chosen = [
            producer.send_many("T", bodies=[b"x", b"y"])[0].queue_id for _ in range(3 * QUEUES)
        ]
        named = [producer.send("T", b"x", queue_id=2).queue_id for _ in range(3)]
    assert chosen == [(chosen[0] + number) % QUEUES for number in range(3 * QUEUES)]
    assert named == [2, 2, 2]


@pytest.mark.proves("producers", "A list is sent in batches of 1024 messages, each to one queue")
def test_a_list_goes_in_batches_of_1024_each_to_one_queue(node: LocalNode) -> None:
    with node.producer() as producer:
        results = producer.send_many("T", [Message("T", b"x")] * 3000)
    statistics = node.shard_statistics("T")
    assert sorted(shard.messages for shard in statistics) == [0, 952, 1024, 1024]
    assert sum(shard.batches for shard in statistics) == 3
    assert len({(one.queue_id, one.queue_offset) for one in results}) == 3000

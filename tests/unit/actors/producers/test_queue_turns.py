"""Messages without a queue leave out the queues of disks that fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.local_node import LocalNode

from rocketray.actors.producers.queue_turns import AVOIDED_S, QueueTurns
from rocketray.actors.topics.catalog import TopicCatalog
from rocketray.errors import ShardUnavailableError, StoreFullError
from rocketray.store.retention import DiskUse

FAR = "00000000-0000-0000-0000-000000000002"


def test_a_disk_that_failed_is_left_out_for_a_while_unless_all_did() -> None:
    now_s = 100.0
    turns = QueueTurns(lambda: now_s)
    topic = replace(TopicCatalog().with_topic("T", 4).get("T"), disks=("", FAR, "", FAR))
    assert Counter(turns.next(topic) for _ in range(8)) == dict.fromkeys(range(4), 2)
    turns.avoid(FAR)
    assert Counter(turns.next(topic) for _ in range(8)) == {0: 4, 2: 4}
    turns.avoid("")
    assert Counter(turns.next(topic) for _ in range(8)) == dict.fromkeys(range(4), 2)
    now_s += AVOIDED_S
    assert not turns.is_avoided(FAR)
    assert Counter(turns.next(topic) for _ in range(8)) == dict.fromkeys(range(4), 2)


class HalfAway:
    """A node whose topic has its odd queues on a disk that the cluster cannot reach."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self.asked = 0
        topics: Any = node.topics
        self.topics = type("Topics", (), {"get": lambda _, name: _on_both(topics.get(name))})()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def at(self, disk: str) -> Any:
        if disk:
            self.asked += 1
            raise ShardUnavailableError(f"on disk {disk}", 1000, "its machine does not answer")
        return self._node


class OfTwoDisks(HalfAway):
    """A node whose topic has its odd queues on another disk, which answers."""

    def at(self, _: str) -> Any:
        return self._node


def _on_both(topic: Any) -> Any:
    return replace(topic, disks=("", FAR) * (topic.queues // 2))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HalfAway]:
    with LocalNode(tmp_path) as made:
        made.topics.create("T", 4)
        yield HalfAway(made)


def test_messages_without_a_key_go_to_the_disk_that_answers(node: HalfAway) -> None:
    with LocalNode.producer(node) as producer:  # type: ignore[arg-type]
        sent = Counter(producer.send("T", b"any").queue_id for _ in range(20))
        assert sent == {0: 10, 2: 10}
        assert node.asked == 1
        with pytest.raises(ShardUnavailableError, match="does not answer"):
            producer.send("T", b"there", queue_id=1)
        bodies = [b"1", b"2", b"3"]
        for _ in range(4):
            assert {*producer.send_many("T", bodies=bodies).queues} <= {0, 2}


def test_messages_without_a_key_go_to_the_disk_that_is_not_full(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as made:
        made.topics.create("T", 4)
        for queue_id in (1, 3):
            made.shard("T", queue_id).writer.watch_disk(DiskUse(used=96, free=4))
        node: Any = OfTwoDisks(made)
        with LocalNode.producer(node) as producer:
            with pytest.raises(StoreFullError, match="shard T/1: the disk of"):
                producer.send("T", b"there", queue_id=1)
            sent = Counter(producer.send("T", b"any").queue_id for _ in range(20))
            assert sent == {0: 10, 2: 10}
            with pytest.raises(StoreFullError, match="shard T/3: the disk of"):
                producer.send("T", b"there", queue_id=3)

"""The services beside a disk that joined: they use the queues of that disk alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketray.base.system_topics import END_TOPIC, GIVEN_UP_TOPIC, SCHEDULE_TOPIC
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.placement import Placement
from rocketray.broker.topics.process_names import SHARED_PROCESS
from rocketray.message import ForwardedMessage, Message
from rocketray.runtime.calls.endpoint import on_disk
from rocketray.services.system.node_link import NodeLinks
from rocketray.services.system.system_log import SystemLog

pytestmark = pytest.mark.proves(
    "durability",
    "Delayed messages, transactions and retries are on the disk of their queue, also "
    "while the machine of the first disk is down, and on another disk while that of the "
    "queue is",
)

FAR = "00000000-0000-0000-0000-000000000002"


def catalog() -> TopicCatalog:
    both = Placement(disks=lambda: ("", FAR))
    names = ("%DLQ%g", END_TOPIC, GIVEN_UP_TOPIC, SCHEDULE_TOPIC)
    found = TopicCatalog()
    for name in names:
        found = found.with_topic(name, 1, both)
    return found


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ShardProcess]:
    catalog().of_disk(FAR).save(tmp_path)
    process = ShardProcess(tmp_path, on_disk(SHARED_PROCESS, FAR), {}, clock_ms=lambda: 1)
    yield process
    process.close()


def test_their_log_is_the_queue_of_the_disk(process: ShardProcess) -> None:
    log = SystemLog(process, lambda: 1)
    assert log.exists(END_TOPIC)
    assert not log.exists("%DLQ%g")
    assert [log.store(Message(END_TOPIC, body)) for body in (b"a", b"b")] == [0, 1]
    found = log.read(END_TOPIC, 0, 10)
    assert [(one.queue_id, one.body) for one in found] == [(1, b"a"), (1, b"b")]
    assert process.queues_of(SCHEDULE_TOPIC) == [*range(18, 36)]


def test_their_log_follows_a_topic_that_is_created_again_with_other_queues(
    process: ShardProcess, tmp_path: Path
) -> None:
    log = SystemLog(process, lambda: 1)
    assert log.exists(END_TOPIC)
    process.remove(END_TOPIC)
    assert not log.exists(END_TOPIC)
    recreated = TopicCatalog().with_topic(END_TOPIC, 1, Placement(disks=lambda: (FAR,)))
    recreated = TopicCatalog(recreated.topics, next_shard_number=99)
    recreated.save(tmp_path)
    process.open([(recreated.get(END_TOPIC), [0])])
    log.store(Message(END_TOPIC, b"again"))
    assert [one.queue_id for one in log.read(END_TOPIC, 0, 10)] == [0]


@pytest.mark.parametrize(
    ("disk", "topic", "number", "queue_id"),
    [
        (FAR, GIVEN_UP_TOPIC, 0, 1),
        ("", GIVEN_UP_TOPIC, 0, 0),
        (FAR, SCHEDULE_TOPIC, 4, 22),
        (FAR, "%DLQ%g", 0, 0),
        ("another disk", SCHEDULE_TOPIC, 4, 4),
    ],
)
def test_what_they_store_in_topics_of_services_is_on_the_same_disk(
    disk: str, topic: str, number: int, queue_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = []

    class Node:
        def __init__(self) -> None:
            self.disk, self.topics, self.messages = disk, self, self

        def get(self, name: str) -> Any:
            return catalog().get(name)

        def ensure(self, *_: object) -> None:
            """Do nothing: it is there."""

        def query(self, name: str, _: str, *, queues: list[int]) -> list[Any]:
            stored.append((name, *queues))
            return []

    node: Any = Node()
    links = NodeLinks(lambda: node)
    message = ForwardedMessage(topic, b"", {"UNIQ_KEY": "K"}, 0, ("127.0.0.1", 1))
    assert not links.is_stored(message, number)
    assert stored == [(topic, queue_id)]

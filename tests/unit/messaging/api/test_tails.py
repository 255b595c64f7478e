"""A queue read by position from its files, and by calls to the service of its disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from support.nodes.shards import Shards

from rocketray.broker.fetching.range_service import RangeService
from rocketray.broker.topics.queue_tail import QueueTail
from rocketray.broker.topics.topics import Topics
from rocketray.errors import OffsetOutOfRangeError
from rocketray.message import Message
from rocketray.messaging.api.tails import RemoteTail, tail_of
from rocketray.runtime.files.home import Home, settle_identity
from rocketray.testing import Broker

TOPIC = "Trade"


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    with Shards(tmp_path, Trade=1) as written:
        yield written


class KnownTopics:
    """The names of the topics that the coordinator has."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def all(self) -> dict[str, None]:
        return dict.fromkeys(self.names)


def remote(data: Path, topics: KnownTopics, topic: str = TOPIC) -> RemoteTail:
    service = RangeService(Home(str(data), settle_identity(data), "elsewhere"), "127.0.0.1")
    return RemoteTail(service, cast("Topics", topics), topic, 0)


def test_both_read_the_same_messages_with_the_same_errors(tmp_path: Path, shards: Shards) -> None:
    shards.fill(TOPIC, 0, 400)
    shards.append([Message(TOPIC, b"x" * 60_000, properties={"n": str(n)}) for n in range(1)], 0)
    far = remote(tmp_path, KnownTopics(TOPIC))
    with closing(QueueTail(tmp_path, TOPIC, 0)) as near:
        shards.delete_before(TOPIC, 0, 3)
        assert (far.minimum(), far.end()) == (near.minimum(), near.end()) == (3, 401)
        for start, count in ((3, 1), (3, 1000), (399, 2), (400, 7), (401, 7), (9000, 1)):
            assert far.read(start, count) == near.read(start, count)
        for tail in (far, near):
            with pytest.raises(OffsetOutOfRangeError, match="Trade/0"):
                tail.read(1, 10)


def test_a_topic_that_does_not_exist_yet_has_no_messages(tmp_path: Path) -> None:
    topics = KnownTopics()
    far = remote(tmp_path, topics, "Later")
    assert (far.minimum(), far.end()) == (0, 0)
    with Shards(tmp_path, Later=1) as shards:
        shards.fill("Later", 0, 3)
        topics.names = ("Later",)
        assert [message.queue_offset for message in far.read(0, far.end())] == [0, 1, 2]


def test_a_broker_has_its_files(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, broker.producer() as producer:
        broker.topics.ensure(TOPIC, 1)
        producer.send(TOPIC, b"one")
        with closing(tail_of(broker, TOPIC, 0)) as tail:
            assert isinstance(tail, QueueTail)
            assert [message.body for message in tail.read(0, 10)] == [b"one"]

"""Queues of two disks read by position: one disk is here, the other is asked by calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from support.nodes.shards import Shards

from rocketray.broker.fetching import range_service
from rocketray.broker.fetching.range_service import RangeService
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.broker.topics.log_reader import LogReader, Queue
from rocketray.broker.topics.placement import Placement
from rocketray.errors import NodeElsewhereError, ShardUnavailableError, TopicNotFoundError
from rocketray.message import Message
from rocketray.messaging.api import node_log
from rocketray.messaging.api.node_log import NodeLog
from rocketray.messaging.api.tails import TailNode
from rocketray.runtime.files.home import Home, settle_identity

pytestmark = pytest.mark.proves(
    "stock-faust",
    "The URL names a cluster, and an app on any machine reads the queues of all disks, "
    "also of those that move",
)

DISK = "00000000-0000-0000-0000-000000000002"
TOPIC = "Trade"
QUEUES = 4
LATER_S = 0.05


@dataclass
class Disk:
    """A disk as a client sees it."""

    data: Path
    is_here: bool
    ranges: RangeService

    def files(self, use: str) -> Path:
        if self.is_here:
            return self.data
        raise NodeElsewhereError(use)


@dataclass
class Cluster:
    """Two disks, of which the second one is elsewhere."""

    disks: dict[str, Disk]
    shards: dict[str, Shards]
    places: list[str] = field(default_factory=lambda: ["", DISK] * (QUEUES // 2))
    is_answering: bool = True

    @property
    def topics(self) -> Any:
        return self

    def all(self) -> Mapping[str, TopicConfig]:
        if not self.is_answering:
            raise ShardUnavailableError("the coordinator", "it is away", 1)
        spread = Placement(1, spread=lambda _, queues: tuple(self.places[:queues]))
        return TopicCatalog().with_topic(TOPIC, QUEUES, spread).topics

    def at(self, disk: str) -> Disk:
        return self.disks[disk]

    def fill(self, queue_id: int, count: int, size: int = 1) -> None:
        messages = [Message(TOPIC, bytes([n % 251]) * size) for n in range(count)]
        self.shards[self.places[queue_id]].append(messages, queue_id)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    disks, shards = {}, {}
    for disk in ("", DISK):
        data = tmp_path / f"disk {disk}"
        data.mkdir()
        home = Home(str(data), settle_identity(data), "here")
        disks[disk] = Disk(data, disk == "", RangeService(home, "127.0.0.1"))
        shards[disk] = Shards(data, Trade=QUEUES)
    yield Cluster(disks, shards)
    for each in shards.values():
        each.close()


@pytest.fixture
def log(cluster: Cluster) -> Iterator[NodeLog]:
    opened = NodeLog(cast("TailNode", cluster))
    yield opened
    opened.close()


def all_of(log: NodeLog, positions: dict[Queue, int], most: int = 100) -> dict[Queue, list[int]]:
    """Read on until there is nothing more, as an app does."""
    got: dict[Queue, list[int]] = {}
    while found := log.read(positions, most, 0):
        for queue, messages in found.items():
            got.setdefault(queue, []).extend(one.queue_offset for one in messages)
            positions[queue] = messages[-1].queue_offset + 1
    return got


def test_it_reads_what_a_reader_of_each_disk_reads(cluster: Cluster, log: NodeLog) -> None:
    random = Random(7)
    for queue_id in range(QUEUES):
        cluster.fill(queue_id, random.randint(1, 300))
        first = random.randint(0, 3)
        cluster.shards[cluster.places[queue_id]].delete_before(TOPIC, queue_id, first)
    positions = {(TOPIC, queue_id): random.randint(0, 40) for queue_id in range(QUEUES)}
    twins = {disk: LogReader(cluster.disks[disk].data) for disk in ("", DISK)}
    expected = {}
    for queue, position in positions.items():
        minimum, end = twins[cluster.places[queue[1]]].bounds(queue)
        assert log.bounds(queue) == (minimum, end)
        assert log.known_end(queue) == end
        expected[queue] = [*range(max(position, minimum), end)]
    assert all_of(log, positions, 37) == {q: found for q, found in expected.items() if found}
    for twin in twins.values():
        twin.close()


def test_a_read_waits_for_the_next_message_on_any_disk_or_is_interrupted(
    cluster: Cluster, log: NodeLog
) -> None:
    for queue_id in range(QUEUES):
        cluster.fill(queue_id, 1)
    positions = {(TOPIC, queue_id): 1 for queue_id in range(QUEUES)}
    for queue_id in (1, 2):
        later = threading.Timer(LATER_S, cluster.fill, (queue_id, 1))
        later.start()
        assert [*log.read(positions, 10, 3600)] == [(TOPIC, queue_id)]
        later.join()
        positions[TOPIC, queue_id] = 2
    began_s = time.monotonic()
    assert log.read(positions, 10, LATER_S) == {}
    assert time.monotonic() - began_s >= LATER_S
    interrupting = threading.Timer(LATER_S, log.interrupt)
    interrupting.start()
    assert log.read(positions, 10, 3600) == {}
    interrupting.join()


@pytest.mark.timeout(60)
def test_an_interrupt_before_a_read_of_one_disk_is_not_lost(cluster: Cluster, log: NodeLog) -> None:
    """Neither before the first read, nor while the files of the queue are opened again."""
    cluster.fill(0, 1)
    positions = {(TOPIC, 0): 1}
    log.interrupt()
    assert log.read(positions, 10, 3600) == {}
    log.reopen()
    assert log.read(positions, 10, 3600) == {}
    cluster.fill(0, 1)
    assert [*log.read(positions, 10, 3600)] == [(TOPIC, 0)]


def test_a_queue_with_much_keeps_no_other_from_its_turn(
    cluster: Cluster, log: NodeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_service, "REPLY_BYTES", 1)
    for queue_id in (1, 3):
        for _ in range(4):
            cluster.fill(queue_id, 10, size=1000)
    got = [[*log.read({(TOPIC, 1): 0, (TOPIC, 3): 0}, 10, 0)] for _ in range(4)]
    assert {queue for [queue] in got} == {(TOPIC, 1), (TOPIC, 3)}


def test_a_queue_that_was_moved_is_followed_and_comes_back(
    cluster: Cluster, log: NodeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_log, "LOOK_S", 0.0)
    cluster.fill(0, 3)
    positions = {(TOPIC, 0): 0}
    assert all_of(log, positions) == {(TOPIC, 0): [0, 1, 2]}
    cluster.places[0] = DISK
    cluster.fill(0, 5)
    assert all_of(log, positions) == {(TOPIC, 0): [3, 4]}
    cluster.is_answering = False  # the coordinator; what is known is read on
    cluster.fill(0, 1)
    assert all_of(log, positions) == {(TOPIC, 0): [5]}
    cluster.is_answering = True
    cluster.places[0] = ""
    cluster.fill(0, 6)
    assert all_of(log, positions) == {(TOPIC, 0): [6, 7, 8]}


def test_what_is_not_there_is_named(log: NodeLog) -> None:
    with pytest.raises(TopicNotFoundError, match="Nobody"):
        log.bounds(("Nobody", 0))

"""A link to a queue: how long it collects, its ring, and what is in flight when the queue moves."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from support.harness.patience import patience, wait_until
from support.nodes.local_node import LocalNode
from support.nodes.moving_disks import FAR

from rocketray.broker.shards.shard_api import ShardApi
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.topic_files import handed_over_file
from rocketray.errors import ShardMovedError, ShardUnavailableError
from rocketray.message import Message
from rocketray.messaging.producers import batcher
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.queue_link import collecting_s
from rocketray.runtime.files.paths import producer_rings_directory
from rocketray.runtime.files.runtime_lock import RuntimeLock, remove_runtime

pytestmark = pytest.mark.proves(
    "producers",
    "A queue that moves to another disk and on is followed, though the producer looked "
    "before it was open there; one that waits, for a result or for room, is woken when it "
    "is found",
)


@pytest.mark.proves(
    "producers",
    "A producer collects for four times the duration of its last hand-over, between 0.1 and 0.5 ms",
)
def test_a_producer_collects_for_four_times_as_long_as_it_hands_over_within_bounds() -> None:
    assert collecting_s(0.00005) == pytest.approx(0.0002)
    assert collecting_s(0.0) == pytest.approx(0.0001)
    assert collecting_s(1.0) == pytest.approx(0.0005)


class SilentShard:
    """A shard that never says that it reads a ring; perhaps it does."""

    def __init__(self, shard: ShardApi, *, attaches: bool) -> None:
        self._shard = shard
        self._attaches = attaches

    def attach_ring(self, path: str) -> None:
        if self._attaches:
            self._shard.attach_ring(path)
        raise ShardUnavailableError("shard T/0", "there was no answer")


class SilentNode(LocalNode):
    """A node whose shards are silent at times."""

    is_silent = False
    attaches = False

    def shard_calls(self, topic: TopicConfig, queue_id: int) -> Any:
        shard = super().shard_calls(topic, queue_id)
        return SilentShard(shard, attaches=self.attaches) if self.is_silent else shard


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SilentNode]:
    with SilentNode(tmp_path) as node:
        node.topics.ensure("T", 1)
        yield node


@pytest.mark.parametrize("attaches", [False, True])
def test_a_ring_that_no_shard_was_heard_to_read_is_given_back(
    node: SilentNode, *, attaches: bool
) -> None:
    rings = producer_rings_directory(node.data, "T", 0)
    node.attaches, node.is_silent = attaches, True
    with node.producer() as producer:
        for _ in range(3):
            with pytest.raises(ShardUnavailableError):
                producer.send("T", b"x")
        assert not [*rings.iterdir()]
        node.is_silent = False
        assert producer.send("T", b"x").queue_offset == 0
        assert len([*rings.iterdir()]) == 1
        node.shard("T", 0).flush()
        assert node.shard_statistics("T")[0].rings == 1


@pytest.mark.parametrize("is_stored", [False, True], ids=["not stored", "stored"])
def test_what_a_node_that_ended_left_unacknowledged_is_stored_once(
    tmp_path: Path, *, is_stored: bool
) -> None:
    first = RuntimeLock(tmp_path)
    with SilentNode(tmp_path) as node, node.producer() as producer:
        node.topics.ensure("T", 1)
        producer.send("T", b"0")
        node.stall("T", 0)
        waiting = [producer.begin_many("T", [Message("T", b"1"), Message("T", b"2")])]
        waiting += [producer.begin_many("T", [Message("T", b"3")])]
        chosen = producer.begin_many("T", [Message("T", b"4", unique_key="chosen")])
        link: Any = producer.links.existing("T", 0)
        if is_stored:  # and the node ended before it acknowledged
            for payload in link._ring.unacknowledged().values():
                node.shard_calls(node.topics.get("T"), 0).append(payload, 0)
        first.close()
        remove_runtime(tmp_path)
        producer.refresh_topics()
        assert not any(each.done() for each in waiting)  # no node runs yet
        lock = RuntimeLock(tmp_path)
        producer.refresh_topics()
        assert [each.result(patience(10))[0].queue_offset for each in waiting] == [1, 3]
        with pytest.raises(ShardUnavailableError, match="may have stored what was sent"):
            chosen.result(patience(10))
        stored = [each.body for each in node.messages.query_by_time("T", 0, 2**62)]
        assert stored == [b"0", b"1", b"2", b"3", *([b"4"] if is_stored else [])]
        lock.close()


def test_a_ring_whose_queue_was_moved_away_and_back_is_replaced_when_the_producer_looks(
    node: SilentNode,
) -> None:
    """Its old files were removed meanwhile; the disk of the queue is the same as before."""
    rings = producer_rings_directory(node.data, "T", 0)
    with node.producer() as producer:
        producer.send("T", b"before")
        producer.refresh_topics()
        [kept] = rings.iterdir()
        kept.unlink()
        producer.refresh_topics()
        [other] = rings.iterdir()
        assert other != kept
        producer.send("T", b"after")
    assert [message.body for message in node.stored("T")] == [b"before", b"after"]


class Calls:
    """A shard as a disk's process has it: it is there only while the queue is on that disk."""

    retry_after_ms = 1

    def __init__(self, node: TwoDisks, shard: ShardApi, disk: str) -> None:
        self._node, self._shard, self._disk = node, shard, disk

    def attach_ring(self, path: str) -> None:
        self._check()
        self._shard.attach_ring(path)

    def append(self, *batch: Any, **options: Any) -> Any:
        self._check()
        return self._shard.append(*batch, **options)

    def _check(self) -> None:
        if self._disk != self._node.on:
            reason = "another process has it by now"
            raise ShardMovedError("shard T/0", reason, self.retry_after_ms)


class TwoDisks(LocalNode):
    """A node as a producer sees it whose queue moves between this machine and another one."""

    on = ""
    """The disk on which the queue is open."""

    def at(self, disk: str, away: frozenset[str] | None = None) -> Any:
        del away
        return mock.Mock(data=self.data, is_local=lambda: not disk)

    def shard_calls(self, topic: TopicConfig, queue_id: int) -> Any:
        return Calls(self, super().shard_calls(topic, queue_id), topic.disk_of(queue_id))

    def move(self, producer: NodeProducer, disk: str) -> None:
        """Have the queue on a disk, and the producer learn it."""
        self.on = disk
        self.tell(producer, disk)

    def tell(self, producer: NodeProducer, disk: str) -> None:
        """Have a producer learn that the queue is on that disk."""
        producer.links._follow(replace(self.topics.get("T"), disks=(disk,)))


def test_a_queue_that_moves_on_is_followed_though_its_disk_before_was_late(tmp_path: Path) -> None:
    """A producer that looked between the move and the opening once stayed there for good."""
    with TwoDisks(tmp_path) as node:
        node.topics.ensure("T", 1)
        with node.producer() as producer:
            producer.send("T", b"here")
            node.move(producer, FAR)
            producer.send("T", b"there")
            node.tell(producer, "")  # where it is not open yet
            node.on = ""
            node.move(producer, FAR)
            producer.send("T", b"there again", timeout_s=patience(5))
        bodies = [message.body for message in node.stored("T")]
    assert bodies == [b"here", b"there", b"there again"]


HOUR_MS = 3_600_000


class Moving:
    """A producer whose queue moves; it finds the queue only by itself, and by no look that is due."""

    def __init__(self, node: TwoDisks) -> None:
        self.node = node
        node.topics.ensure("T", 1)
        self.producer = NodeProducer(node, timeout_s=patience(30))
        self.producer.send("T", b"first")
        self.producer.links._look_at_s = math.inf
        self.link: Any = self.producer.links.existing("T", 0)
        self.catalog_has = ""
        """The disk that the catalog has, as the producer sees it."""
        seen: Any = mock.Mock(wraps=node)
        seen.topics.get = lambda name: replace(node.topics.get(name), disks=(self.catalog_has,))
        self.producer.links._node = seen

    def send(self, *bodies: bytes) -> threading.Thread:
        """Send in a thread, and wait there for the results."""

        def run() -> None:
            for sent in [self.producer.send_async("T", body) for body in bodies]:
                sent.result()

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: len(self.link.in_flight) > 0)
        return thread

    def hand_over(self) -> None:
        """Close the queue on this machine: what is in its ring is not stored."""
        self.node.stall("T", 0)

    def open(self, disk: str) -> None:
        """Have the queue on a disk, as the catalog says from now on."""
        self.node.on = self.catalog_has = disk

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.node.stored("T")]


def ended(sending: threading.Thread) -> None:
    """Wait until all is acknowledged, which the test sees sooner in the store."""
    sending.join(patience(20))
    assert not sending.is_alive()


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    with TwoDisks(tmp_path) as node:
        moving = Moving(node)
        yield moving
        moving.producer.close()


def test_who_waits_at_a_ring_that_was_left_is_woken(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "_LOOK_S", 3600.0)
    moving.hand_over()
    sending = moving.send(b"moved")
    moving.open(FAR)
    moving.producer.refresh_topics()
    ended(sending)
    assert moving.bodies() == [b"first", b"moved"]


@pytest.mark.parametrize("waits", [True, False])
def test_a_queue_that_is_handed_over_is_looked_for_at_once(moving: Moving, *, waits: bool) -> None:
    moving.hand_over()
    handed_over_file(moving.node.data, "T", 0).touch()
    pending = None if waits else moving.producer.send_async("T", b"moved")
    sending = moving.send(b"moved") if waits else None
    wait_until(lambda: moving.link in moving.producer.links._moving)
    assert moving.link.disk == "", "the catalog has it here"
    moving.open(FAR)
    if sending is not None:
        ended(sending)
    if pending is not None:
        wait_until(pending.done)
    assert moving.bodies() == [b"first", b"moved"]


def test_a_call_is_repeated_when_the_queue_is_found_and_no_later(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving.open(FAR)
    moving.producer.refresh_topics()
    monkeypatch.setattr(Calls, "retry_after_ms", HOUR_MS)
    moving.node.on = ""
    sending = moving.send(b"moved")
    wait_until(lambda: moving.link in moving.producer.links._moving)
    moving.open("")
    ended(sending)
    assert moving.bodies() == [b"first", b"moved"]
    assert moving.producer.send("T", b"after").queue_offset == 2
    assert moving.link.is_here


def test_a_queue_moves_while_a_sender_waits_for_room_in_its_ring(moving: Moving) -> None:
    """It holds the lock of the link, which has to lead to the new place."""
    bodies = [b"%d" % number + bytes(400_000) for number in range(24)]
    moving.hand_over()
    sending = moving.send(*bodies)
    wait_until(lambda: len(moving.link.in_flight) >= 4)
    time.sleep(0.1)  # until the ring is full
    moving.open(FAR)
    moving.producer.refresh_topics()
    ended(sending)
    assert moving.bodies() == [b"first", *bodies]

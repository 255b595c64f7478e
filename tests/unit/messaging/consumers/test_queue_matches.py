"""Without a filter a member reads its queues itself: it gets what the filter actor would give it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.harness.patience import patience
from support.nodes.local_node import LocalNode

from rocketray.errors import ShardUnavailableError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.groups.filter_plan import QueuePart
from rocketray.kernels import futex
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.consumers.queue_stream import QueueStreams
from rocketray.runtime.files.paths import consumer_directory, shard_directory
from rocketray.runtime.ipc import control_page
from rocketray.store.retention import RetentionPolicy

ALL = Subscription.tags("*")
NEWEST_ONLY = RetentionPolicy(max_bytes=1)
BODY_BYTES = 100_000  # ten messages fill a file


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        yield node


def rings(node: LocalNode) -> int:
    return len(list(consumer_directory(node.data).glob("*.match")))


class Reader:
    """A member, and what it got."""

    def __init__(self, node: LocalNode, group: str) -> None:
        self.member = GroupConsumer(node, group, "T", ALL)
        self.found: list[bytes] = []
        self.next_offsets: dict[int, int] = {}

    def take(self, max_count: int) -> None:
        for batch in self.member.poll(0.05, max_count):
            self.found += [body[:4] for body in batch.bodies()]
            self.next_offsets[batch.queue_id] = batch.next_queue_offset
            self.member.commit("T", batch.queue_id, batch.next_queue_offset)


def test_it_gets_what_the_filter_actor_would_give_it(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    node.topics.ensure("T", 2, retention=NEWEST_ONLY)
    itself = Reader(node, "itself")
    assert rings(node) == 0
    with monkeypatch.context() as without:
        without.setattr(futex, "can_wait_any", lambda: False)
        filtered = Reader(node, "filtered")
    assert rings(node) == 2
    readers, sent = (itself, filtered), 0
    with node.producer() as producer, itself.member, filtered.member:
        for _ in range(40):
            for _ in range(rng.randrange(4)):
                body = b"%04d" % sent + bytes(BODY_BYTES)
                producer.send("T", body, queue_id=rng.randrange(2))
                sent += 1
            if rng.random() < 0.1:
                for reader in readers:  # the files of what both finished may go
                    end(reader, sent)
                    reader.member.beat()
                node.expire()
            rng.choice(readers).take(rng.randrange(1, 5))
        for reader in readers:
            end(reader, sent)
    assert sorted(itself.found) == sorted(filtered.found) == [b"%04d" % at for at in range(sent)]
    assert itself.next_offsets == filtered.next_offsets
    assert itself.member.counters() == filtered.member.counters()
    assert itself.member.counters() == FilterCounters(scanned=sent, delivered=sent)


def end(reader: Reader, sent: int) -> None:
    while len(reader.found) < sent:
        reader.take(1000)


def test_a_message_wakes_it_though_the_filter_actor_is_gone(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_page, "_WAIT_SLICE_S", 100.0)  # nothing else would wake it
    node.topics.ensure("T", 3)
    node._stop.set()
    node.filter.wake()
    node._filter_thread.join()
    reader = Reader(node, "g")
    with node.producer() as producer, reader.member:
        for number in range(9):
            sleeper = threading.Thread(target=lambda: reader.member.poll(100.0, 1), daemon=True)
            sleeper.start()
            producer.send("T", b"%d" % number, queue_id=number % 3)
            sleeper.join(patience(20))
            assert not sleeper.is_alive()


def test_another_filter_takes_a_ring_and_no_filter_leaves_it(node: LocalNode) -> None:
    node.topics.ensure("T", 1)
    with node.producer() as producer:
        for tag in "abab":
            producer.send("T", b"body", tags=tag, queue_id=0)
        source = QueueStreams(node, "g", "T")
        stream = source.open(0, QueuePart(ALL, 1), 0)
        assert stream.is_attached
        taken = stream.take_matches(10)
        assert taken is not None
        assert taken.entries.queue_offsets.tolist() == [0]
        stream.read_on(QueuePart(Subscription.tags("b"), 3))
        assert (stream.is_attached, rings(node), len(source.bell._lines)) == (False, 1, 1)
        stream.attach()
        matches: list[int] = []
        while stream.next_queue_offset < 3:
            if (taken := stream.take_matches(10)) is not None:
                matches += taken.entries.queue_offsets.tolist()
        assert matches == [1]
        stream.read_on(QueuePart(ALL, None))
        assert (stream.is_attached, rings(node), len(source.bell._lines)) == (True, 0, 2)
        taken = stream.take_matches(10)
        assert taken is not None
        assert taken.entries.queue_offsets.tolist() == [3]  # the filter has rejected the one before
        assert stream.counters() == FilterCounters(scanned=4, tag_rejected=1)
        stream.stop()
        assert len(source.bell._lines) == 1
        stream.close()
        source.close()


def test_a_queue_whose_files_went_to_another_disk_is_away_and_not_damaged(node: LocalNode) -> None:
    node.topics.ensure("T", 1)
    with node.producer() as producer:
        producer.send("T", b"body", queue_id=0)
        source = QueueStreams(node, "g", "T")
        stream = source.open(0, QueuePart(ALL, None), 0)
        assert stream.is_there()
        directory = shard_directory(node.data, "T", 0)
        directory.rename(directory.with_name("elsewhere"))
        assert not stream.is_there()
        with pytest.raises(ShardUnavailableError, match="T/0 is unavailable: it has no directory"):
            stream.take_matches(10)
        directory.with_name("elsewhere").rename(directory)
        stream.stop()
        stream.close()
        source.close()


def test_of_more_queues_than_it_can_watch_the_rest_is_filtered(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(futex, "MOST_LINES", 3)
    node.topics.ensure("T", 4)
    reader = Reader(node, "g")
    assert rings(node) == 2
    with node.producer() as producer, reader.member:
        for number in range(8):
            producer.send("T", b"%04d" % number, queue_id=number % 4)
        end(reader, 8)


def test_messages_that_are_removed_before_it_reads_them_are_missed(node: LocalNode) -> None:
    node.topics.ensure("T", 1, retention=NEWEST_ONLY)
    reader = Reader(node, "g")
    with node.producer() as producer, reader.member:
        for number in range(45):
            producer.send("T", b"%04d" % number + bytes(BODY_BYTES))
        node.shard("T", 0).flush()
        node.expire()
        first = node.shard("T", 0).writer.control.minimum()
        assert first > 0
        end(reader, 45 - first)
        assert reader.member.counters().missed == first
        assert reader.found == [b"%04d" % at for at in range(first, 45)]


def test_a_gap_that_a_recovery_left_is_passed_at_once(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of a gap's million offsets at a time would take a minute, and count as scanned."""
    node.topics.create("T", 1, queues_per_process=1)
    itself = Reader(node, "itself")
    with monkeypatch.context() as without:
        without.setattr(futex, "can_wait_any", lambda: False)
        filtered = Reader(node, "filtered")
    behind = 1_000_000
    with itself.member, filtered.member:
        for number in range(2):
            with node.producer() as producer:
                producer.send("T", b"%04d" % number)
            for reader in (itself, filtered):
                end(reader, number + 1)
            if number == 0:
                node.shard("T", 0).writer.store.skip_to("T", 0, behind)
                node.end_process(node.topics.get("T").process_of(0))
                node.shard("T", 0)  # behind the gap, in another epoch
        for reader in (itself, filtered):
            assert reader.found == [b"0000", b"0001"]
            assert reader.next_offsets == {0: behind + 1}
            assert reader.member.counters() == FilterCounters(scanned=2, delivered=2)

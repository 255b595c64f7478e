"""Messages that expire under their readers: who still has them, who missed them, and who says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.harness.patience import patience, wait_until
from support.nodes.local_node import SEGMENT, LocalNode

from rocketray.base.ack_mode import Durability
from rocketray.base.quantity import counted
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.filtering.filter_stream import FilterStream
from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.errors import StoreFullError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.message import Message, PhysicalOffset
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.runtime.files.paths import consumer_directory, shard_directory
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.runtime.ipc.control_page import Doorbell
from rocketray.runtime.ipc.match_ring import MatchRing, StreamDescription, StreamState
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns
from rocketray.store.retention import DiskUse, Reason, RetentionPolicy
from rocketray.testing.node import EMPTY_DISK

COUNT = 45
BODY_BYTES = 100_000  # ten messages fill a segment of 1 MiB
FULL_DISK = DiskUse(used=96, free=4)
ALL = Subscription.tags("*")
NEWEST_ONLY = RetentionPolicy(max_bytes=1)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        yield node


def fill(node: LocalNode, retention: RetentionPolicy) -> None:
    """Send numbered messages, which fill four segments and half of one."""
    node.topics.ensure("Trade", 1, retention=retention)
    with node.producer() as producer:
        for number in range(COUNT):
            producer.send("Trade", b"%d" % number + b"." * BODY_BYTES, keys=[f"k{number}"])


def take(member: GroupConsumer, until: int) -> list[ConsumedBatch]:
    """Batches up to the queue offset *until*."""
    batches: list[ConsumedBatch] = []

    def is_there() -> bool:
        batches.extend(member.poll(0.2))
        return bool(batches) and batches[-1].next_queue_offset >= until

    wait_until(is_there)
    assert batches[-1].next_queue_offset == until
    return batches


def numbers(batches: list[ConsumedBatch]) -> list[int]:
    return [int(body.split(b".")[0]) for batch in batches for body in batch.bodies()]


def minimum(node: LocalNode) -> int:
    return node.shard("Trade", 0).writer.control.minimum()


def log_files(node: LocalNode) -> list[str]:
    directory = shard_directory(node.data, "Trade", 0) / "commitlog"
    return sorted(path.name for path in directory.iterdir())


def test_a_topic_without_retention_keeps_all_on_any_disk(node: LocalNode) -> None:
    fill(node, RetentionPolicy())
    assert node.expire(FULL_DISK) == []
    assert (minimum(node), len(log_files(node))) == (0, 5)


def test_a_group_that_is_behind_holds_files_up_to_twice_the_limit(node: LocalNode) -> None:
    fill(node, RetentionPolicy(max_bytes=2 * SEGMENT - SEGMENT // 2))
    with node.consumer("g", "Trade", ALL) as member:
        take(member, COUNT)
    assert node.state.registry.needed_from("Trade", 0) == 0  # nothing was committed
    gone = node.expire()
    assert [(one.reason, one.was_held) for one in gone] == [(Reason.SIZE, True)]
    node.state.registry.offsets.commit("g", "Trade", 0, COUNT)
    assert [one.was_held for one in node.expire()] == [False]
    assert node.expire() == []
    assert minimum(node) == 20


def test_a_crowded_disk_holds_nothing_for_groups_and_a_full_one_knows_no_age(
    node: LocalNode,
) -> None:
    fill(node, RetentionPolicy(max_bytes=3 * SEGMENT))
    node.consumer("g", "Trade", ALL).close()
    assert node.expire() == []
    crowded = DiskUse(used=80 * SEGMENT, free=20 * SEGMENT)
    assert [(one.reason, one.was_held) for one in node.expire(crowded)] == [(Reason.SIZE, True)]
    forcibly = DiskUse(used=86 * SEGMENT, free=14 * SEGMENT)  # two files less are below 85 %
    assert [(one.reason, one.was_held) for one in node.expire(forcibly)] == 2 * [
        (Reason.DISK, True)
    ]
    assert len(log_files(node)) == 2


def test_a_member_that_comes_back_too_late_goes_on_at_the_minimum_and_says_so(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    fill(node, NEWEST_ONLY)
    node.consumer("g", "Trade", ALL).close()
    node.state.registry.offsets.commit("g", "Trade", 0, 3)
    node.expire()
    first = minimum(node)
    assert first > 3
    with node.consumer("g", "Trade", ALL) as member:
        assert numbers(take(member, COUNT)) == list(range(first, COUNT))
        assert member.counters().missed == first - 3
    moved = f"offset 3 of group g is out of range (OFFSET_TOO_SMALL); continuing at {first}, "
    assert moved + f"{counted(first - 3, 'message')} missed" in caplog.text
    assert node.state.registry.memberships.counters("g", "Trade").missed == first - 3
    caplog.clear()
    node.consumer("g", "Trade", ALL).close()
    assert "out of range" not in caplog.text, "it was corrected, although nothing was committed"
    assert node.state.registry.memberships.counters("g", "Trade").missed == first - 3


def test_what_was_taken_stays_readable_and_what_was_not_is_counted(node: LocalNode) -> None:
    fill(node, NEWEST_ONLY)
    with node.consumer("g", "Trade", ALL) as member:
        batches = member.poll(30.0, 15)
        assert len(batches[0]) > 0
        node.expire()
        first, had = minimum(node), len(batches[0])
        assert first > had
        assert len(log_files(node)) == 1
        rest = take(member, COUNT)
        assert numbers(batches) == list(range(had))  # of files that are gone
        assert numbers(rest) == list(range(first, COUNT))
        assert member.counters().missed == first - had
        reader = batches[0].reader
        assert isinstance(reader, QueueReader)
        mapped = len(reader._log)
        member.commit("Trade", 0, COUNT)
        member.poll(0.0)
        assert len(reader._log) == 1 < mapped  # deleted files take room until they are unmapped


def open_stream(node: LocalNode) -> tuple[FilterStream, MatchRing]:
    """A stream that nobody pumps but the test."""
    bell = consumer_directory(node.data) / "bell"
    Doorbell(bell)
    description = StreamDescription("Trade", 0, "g", Subscription.tags("*"), 0, str(bell))
    ring = MatchRing(consumer_directory(node.data) / "test-ring", description)
    return FilterStream(ring.path, node.data, FilterRules()), ring


def test_a_filter_that_is_behind_goes_on_at_the_minimum_and_counts(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    fill(node, NEWEST_ONLY)
    stream, ring = open_stream(node)
    node.expire()
    first = minimum(node)
    assert stream.pump()
    rows, scanned = ring.take(100)
    assert (rows[:, 2].tolist(), scanned) == (list(range(first, COUNT)), COUNT)
    assert ring.counters() == FilterCounters(COUNT - first, missed=first)
    assert f"missed {counted(first, 'message')}, deleted before the filter read on" in caplog.text
    stream.close()


def test_a_file_that_goes_while_it_is_scanned_stops_no_stream(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(node, NEWEST_ONLY)
    stream, ring = open_stream(node)
    scan = stream._reader.match_tags

    def expire_and_scan(start: int, stop: int, codes: object) -> EntryColumns:
        monkeypatch.undo()
        node.expire()
        entries = scan(start, stop, None)
        stream._reader.tags(entries)  # as a filter that reads records does
        return entries

    monkeypatch.setattr(stream._reader, "match_tags", expire_and_scan)
    assert not stream.pump()
    assert ring.state is StreamState.RUNNING
    assert stream.pump()
    assert ring.counters().missed == minimum(node)
    stream.close()


def test_a_shard_stops_while_it_removes_files(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(node, NEWEST_ONLY)
    shard = node.shard("Trade", 0)
    store = shard.writer.store
    flushing, go_on = threading.Event(), threading.Event()
    flush = store.flush

    def wait_and_flush(*, everything: bool = False) -> PhysicalOffset:
        if everything:
            flushing.set()
            go_on.wait(patience(30))
        return flush(everything=everything)

    monkeypatch.setattr(store, "flush", wait_and_flush)
    expiring = threading.Thread(
        target=shard.writer.expire, args=(NEWEST_ONLY, None, EMPTY_DISK), daemon=True
    )
    closing = threading.Thread(target=shard.close, daemon=True)
    expiring.start()
    assert flushing.wait(patience(30))
    closing.start()
    closing.join(0.2)  # it waits for the files to be removed
    go_on.set()
    for thread in (expiring, closing):
        thread.join(patience(30))
        assert not thread.is_alive()
    assert len(log_files(node)) == 1


def test_a_full_disk_refuses_messages_until_there_is_room(node: LocalNode) -> None:
    node.topics.ensure("Trade", 1)
    writer = node.shard("Trade", 0).writer
    message = Message("Trade", b"x", unique_key="u")
    batch = encode_messages([message], born_host=("127.0.0.1", 1), clock_ms=lambda: 1)
    with node.producer() as producer:
        producer.send("Trade", b"first")
        writer.watch_disk(FULL_DISK)
        with pytest.raises(StoreFullError):
            producer.send("Trade", b"refused")
        refused = writer.append(pack_batch(batch), Durability.MEMORY)
        assert refused.status is AppendStatus.STORE_FULL
        writer.watch_disk(DiskUse(used=50, free=50))
        producer.send("Trade", b"second")
    assert [one.body for one in writer.store.reads.scan()] == [b"first", b"second"]
    assert writer.statistics().refused_batches >= 2


def test_questions_about_deleted_messages_have_no_answer_and_no_error(node: LocalNode) -> None:
    fill(node, NEWEST_ONLY)
    store = node.shard("Trade", 0).writer.store
    old = next(store.reads.scan())
    node.expire()
    assert store.reads.view_by_id(old.offset_message_id) is None
    assert store.reads.query("Trade", "k0") == []
    assert store.reads.query("Trade", old.unique_key or "") == []
    assert store.reads.queue_offset_by_time("Trade", 0, 0) == minimum(node)
    assert next(store.reads.scan()).queue_offset == minimum(node)

"""A shard that is opened again: the rings come first, whatever is asked meanwhile, and none keeps it."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rocketray.base.ack_mode import Durability
from rocketray.base.config import StoreConfig
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.process_names import SHARED_PROCESS
from rocketray.errors import InvalidMessageError, ShardUnavailableError, StoreError
from rocketray.message import Message
from rocketray.runtime.clock import steady_clock_ms
from rocketray.runtime.files.paths import (
    filter_doorbell_path,
    producer_rings_directory,
    shard_directory,
)
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.runtime.ipc.append_status import refusal
from rocketray.runtime.ipc.control_page import Doorbell
from rocketray.runtime.ipc.ring import RING_BYTES, ProducerRing, ShardRing
from rocketray.runtime.processes import owned_name
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.files.file_system import FileSystem

TOPIC = "T"
CONFIG = StoreConfig(
    commit_log_segment_bytes=64 * 1024,
    consume_queue_segment_entries=100,
    index_hash_slots=100,
    index_entries=1000,
)


def payload(first: int, count: int) -> bytes:
    messages = [
        Message(TOPIC, b"%d" % n, unique_key=f"{n:032d}") for n in range(first, first + count)
    ]
    return pack_batch(encode_messages(messages, born_host=("127.0.0.1", 1), clock_ms=lambda: 1))


def open_shard(data: Path) -> OwnedShard:
    topic = TopicCatalog().with_topic(TOPIC, 1).get(TOPIC)
    return OwnedShard(data, topic, 0, CONFIG, clock_ms=lambda: 1000)


def test_an_opening_reads_the_settings_of_a_store_before_and_under_its_lock_only(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    file_read = FileSystem.read

    def noted(system: FileSystem, path: Path, limit: int) -> bytes:
        read.append(path)
        return file_read(system, path, limit)

    open_shard(data).close()
    monkeypatch.setattr(FileSystem, "read", noted)
    open_shard(data).close()
    assert [path.name for path in read].count("store.json") == 2


def test_a_queue_that_was_made_and_has_no_directory_is_not_made_anew(data: Path) -> None:
    catalog = TopicCatalog().with_topic(TOPIC, 2).with_made({TOPIC: [0]})

    def opened(queue_id: int) -> OwnedShard:
        config = replace(CONFIG, store_host=catalog.get(TOPIC).store_hosts[queue_id])
        return OwnedShard(data, catalog.get(TOPIC), queue_id, config, clock_ms=lambda: 1000)

    opened(1).close()  # noted, and not made before: as after an interruption
    directory = shard_directory(data, TOPIC, 0)
    with pytest.raises(
        StoreError, match=f"{directory} is missing, and queue T/0 was created there"
    ):
        opened(0)
    assert not directory.exists()
    directory.mkdir()  # where its disk would be mounted
    with pytest.raises(
        StoreError, match=r"has no store\.json, .* created there; .*: mount its disk"
    ):
        opened(0)
    assert list(directory.iterdir()) == []
    (directory / "commitlog").mkdir()
    with pytest.raises(StoreError, match=f"rocketray store import {directory} --all"):
        opened(0)


def make_ring(data: Path, name: str = "ring") -> ProducerRing:
    return ProducerRing(producer_rings_directory(data, TOPIC, 0) / owned_name(name))


def bodies(shard: OwnedShard) -> list[int]:
    return [int(message.body) for message in shard.writer.store.reads.scan()]


def is_stored(shard: OwnedShard, number: int) -> bool:
    return bool(shard.lookups.query(f"{number:032d}", 1, 0, 2**62))


def kill(shard: OwnedShard) -> None:
    """Let the shard end as a killed process does: its rings stay as they are."""
    shard.writer.store._damage = "killed by the test"
    shard.writer.store.close()


@pytest.mark.parametrize("stored", [0, 3, 10])
def test_a_batch_that_comes_by_a_call_is_stored_behind_the_frame_that_a_crash_cut_short(
    data: Path, stored: int
) -> None:
    shard = open_shard(data)
    shard.append(payload(0, 5), Durability.MEMORY)
    ring, other = make_ring(data, "b"), make_ring(data, "a")
    other.try_write(payload(100, 2), Durability.MEMORY)
    other.publish()
    ring.try_write(payload(5, 10), Durability.MEMORY)
    ring.publish()
    ShardRing(ring.path).record(1, Ack(AppendStatus.PENDING, 5))
    if stored:
        shard.append(payload(5, stored), Durability.MEMORY)
    kill(shard)

    shard = open_shard(data)
    assert shard.append(payload(1000, 10), Durability.MEMORY).first_queue_offset == 17
    assert bodies(shard) == [*range(15), 100, 101, *range(1000, 1010)]
    assert ring.acknowledged() == other.acknowledged() == 1
    ack = ring.ack(1)
    assert (ack.status, ack.first_queue_offset, ack.messages) == (AppendStatus.OK, 5, 10)
    assert shard.writer.store.reads.view(ack.first_physical_offset).body == b"5"
    shard.close()


def test_a_query_finds_what_was_in_a_ring_when_it_was_asked(data: Path) -> None:
    ring = make_ring(data)
    ring.try_write(payload(0, 1), Durability.DISK)
    ring.publish()
    shard = open_shard(data)
    bell = Doorbell(filter_doorbell_path(data))
    assert is_stored(shard, 0)  # it waited while the shard was away
    rung = bell.count()
    ring.try_write(payload(1, 1), Durability.MEMORY)
    ring.publish()
    assert is_stored(shard, 1)  # its thread did not get to it yet
    assert bell.count() > rung
    assert not is_stored(shard, 2)
    assert ring.acknowledged() == 2
    shard.close()


def test_a_ring_that_is_being_made_is_left_alone_and_read_when_it_is_attached(data: Path) -> None:
    rings = producer_rings_directory(data, TOPIC, 0)
    rings.mkdir(parents=True)
    half = rings / owned_name("half")
    half.write_bytes(bytes(RING_BYTES))
    short = rings / owned_name("short")
    short.touch()
    shard = open_shard(data)
    assert {half, short} == {*rings.iterdir()}
    short.unlink()
    ring = make_ring(data, "short")
    ring.try_write(payload(0, 1), Durability.MEMORY)
    ring.publish()
    shard.attach_ring(str(ring.path))
    shard.drain()
    assert bodies(shard) == [0]
    shard.close()


@pytest.mark.parametrize("size", [0, 1, 4096, RING_BYTES])
def test_a_ring_whose_producer_was_killed_while_making_it_is_removed(data: Path, size: int) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    rings = producer_rings_directory(data, TOPIC, 0)
    rings.mkdir(parents=True)
    (rings / f"{dead.pid}-half").write_bytes(bytes(size))
    shard = open_shard(data)
    assert not [*rings.iterdir()]
    shard.close()


def fail(*_: object, **__: object) -> None:
    raise OSError(24, "none left in the test")


@pytest.mark.parametrize(
    "part",
    [
        "owned_shard.disk_use",
        "owned_shard.Doorbell",
        "shard_rings.ShardRings.attach_ring",
        "owned_shard.Compaction",
    ],
)
def test_a_shard_that_cannot_be_opened_is_let_go(
    data: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    make_ring(data)
    with monkeypatch.context() as patch:
        patch.setattr(f"rocketray.broker.shards.{part}", fail)
        with pytest.raises(OSError, match="none left"):
            open_shard(data)
    open_shard(data).close()


@pytest.mark.parametrize("part", ["ControlPage", "ShardAppends", "ShardBitmaps"])
def test_a_writer_that_cannot_be_made_lets_go_of_the_directory(
    data: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(f"rocketray.broker.shards.shard_writer.{part}", fail)
        with pytest.raises(OSError, match="none left"):
            open_shard(data)
    open_shard(data).close()


def test_a_shard_that_cannot_be_flushed_is_closed_nevertheless(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = open_shard(data)
    ring = make_ring(data)
    shard.attach_ring(str(ring.path))
    ring.try_write(payload(0, 1), Durability.DISK)
    ring.publish()
    monkeypatch.setattr(shard.writer.store, "flush", fail)
    with pytest.raises(OSError, match="none left"):
        shard.close()
    assert not ring.acknowledged()
    shard = open_shard(data)
    assert ring.ack(1).status is AppendStatus.OK
    assert bodies(shard) == [0]
    shard.close()


def test_a_shard_that_is_closed_leaves_its_rings_to_the_next_one(data: Path) -> None:
    shard = open_shard(data)
    ring = make_ring(data)
    shard.attach_ring(str(ring.path))
    shard.close()
    ring.try_write(payload(0, 3), Durability.MEMORY)
    ring.publish()
    successor = open_shard(data)
    visible = successor.writer.control.visible()
    ring.try_write(payload(3, 1), Durability.MEMORY)
    ring.publish()
    assert shard.drain() == 0
    with pytest.raises(ShardUnavailableError, match="closed; the next call opens it again"):
        shard.append(payload(9, 1), Durability.DISK)
    with pytest.raises(ShardUnavailableError, match="closed; the next call opens it again"):
        shard.attach_ring(str(ring.path))
    with pytest.raises(ShardUnavailableError, match="closed; the next call opens it again"):
        is_stored(shard, 0)
    shard.close()
    assert successor.writer.control.visible() == visible == 3
    successor.close()
    assert ring.ack(2).first_queue_offset == 3


def test_a_process_closes_its_other_shards_where_one_fails(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = TopicCatalog().with_topic("%RETRY%a", 2).with_topic("%RETRY%b", 1)
    catalog.save(data)
    host = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    monkeypatch.setattr(host.shard("%RETRY%a", 0).writer.store, "flush", fail)
    monkeypatch.setattr(host.shard("%RETRY%b", 0).writer.store, "flush", fail)
    with pytest.raises(OSError, match="none left"):
        host.remove("%RETRY%a")
    with pytest.raises(OSError, match="none left"):
        host.close()
    successor = ShardProcess(data, SHARED_PROCESS, {}, clock_ms=lambda: 0)
    for topic in catalog.topics.values():
        assert not successor.open([(topic, range(topic.queues))]).closed
    successor.close()


def test_what_could_not_be_brought_to_disk_is_not_acknowledged_with_what_comes_next(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = open_shard(data)
    ring = make_ring(data)
    shard.attach_ring(str(ring.path))
    for number in range(3):
        ring.try_write(payload(number, 1), Durability.DISK)
    ring.publish()
    with monkeypatch.context() as patch:
        patch.setattr(shard.writer.store, "flush", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="none left"):
                is_stored(shard, 0)  # in a thread that does not end the process
        ring.try_write(payload(3, 1), Durability.MEMORY)
        ring.publish()
        with pytest.raises(OSError, match="none left"):
            shard.drain()
    assert ring.acknowledged() == 0
    assert is_stored(shard, 3)
    assert shard.writer.control.flushed() == shard.writer.store.reads.max_physical_offset
    assert bodies(shard) == [0, 1, 2, 3]
    assert [ring.ack(sequence).first_queue_offset for sequence in range(1, 5)] == [0, 1, 2, 3]
    shard.close()


def test_a_batch_for_the_disk_that_comes_again_is_acknowledged_once_it_is_there(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = open_shard(data)
    with monkeypatch.context() as patch:
        patch.setattr(shard.writer.store, "flush", fail)
        for attempt in (1, 2):
            with pytest.raises(OSError, match="none left"):
                shard.append(payload(0, 3), Durability.DISK, attempt=attempt)
    assert shard.append(payload(0, 3), Durability.DISK, attempt=3).status is AppendStatus.OK
    assert shard.writer.control.flushed() == shard.writer.store.reads.max_physical_offset
    assert bodies(shard) == [0, 1, 2]
    shard.close()


def test_a_batch_of_a_later_version_whose_mode_is_unknown_is_refused(data: Path) -> None:
    shard = open_shard(data)
    with pytest.raises(InvalidMessageError, match="no ack mode with the number 7; upgrade"):
        shard.append(payload(0, 3), 7)
    assert bodies(shard) == []
    shard.close()


def test_a_call_that_a_query_held_up_until_its_sender_gave_it_up_stores_nothing(
    data: Path,
) -> None:
    """The sender looks then whether it is there, and sends it again."""
    shard = open_shard(data)
    failed: list[ShardUnavailableError] = []

    def append_late() -> None:
        try:
            shard.append(payload(0, 3), Durability.MEMORY, not_after_ms=steady_clock_ms() + 100)
        except ShardUnavailableError as error:
            failed.append(error)

    late = threading.Thread(target=append_late)
    with shard.writer.reading():  # as a query does, for long
        late.start()
        time.sleep(0.3)
        assert not shard.writer.store.reads.query(TOPIC, f"{0:032d}", 1)
    assert not is_stored(shard, 0)
    shard.append(payload(0, 3), Durability.MEMORY, not_after_ms=steady_clock_ms() + 60_000)
    late.join()
    assert bodies(shard) == [0, 1, 2]
    assert "nothing was stored" in str(failed[0])
    shard.close()


@pytest.mark.proves("producers", "A batch during which a shard failed may be stored")
def test_a_batch_that_a_shard_failed_with_is_perhaps_stored(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of its sender says so: here it is in the log and in the queue."""
    shard = open_shard(data)

    def fail(*_arguments: object) -> None:
        raise OSError(errno.EIO, "the disk failed")

    monkeypatch.setattr(shard.writer.store._index, "put", fail)
    ack = shard.append(payload(0, 3), Durability.MEMORY)
    assert bodies(shard) == [0, 1, 2]
    with pytest.raises(ShardUnavailableError, match="so the outcome is unknown"):
        raise refusal(ack.status, "T/0", data)
    kill(shard)


def test_calls_to_a_shard_that_was_just_closed_are_told_to_try_again(data: Path) -> None:
    """Its process finds it for a moment still, since closing is done before the tables change."""
    shard = open_shard(data)
    shard.append(payload(0, 1), Durability.MEMORY, attempt=1)
    shard.abandon()
    for call in (
        lambda: shard.append(payload(1, 1), Durability.MEMORY, attempt=2),
        lambda: shard.lookups.query(f"{0:032d}"),
        lambda: shard.lookups.message_at(0),
        lambda: shard.lookups.offset_at_time(0),
        lambda: shard.lookups.view(0),
    ):
        with pytest.raises(ShardUnavailableError, match="the next call opens it again"):
            call()

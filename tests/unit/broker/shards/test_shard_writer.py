"""A shard's writer: every frame once, whatever dies in between."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rocketray.base.ack_mode import Durability
from rocketray.base.config import StoreConfig
from rocketray.broker.shards.repeated_batches import BatchIdentity
from rocketray.broker.shards.shard_writer import ShardWriter
from rocketray.errors import CorruptRecordError, ShardFencedError, StoreLockedError
from rocketray.message import Message
from rocketray.runtime.files.paths import CONTROL_PAGE
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.runtime.ipc.ring import ProducerRing, ShardRing
from rocketray.runtime.processes import owned_name
from rocketray.store.batches.batch_form import RecordOptions
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch, unpack_batch
from rocketray.store.formats.sys_flag import PREPARED

pytestmark = pytest.mark.proves("durability", "A stale incarnation of a shard appends nothing")

CONFIG = StoreConfig(
    commit_log_segment_bytes=64 * 1024,
    consume_queue_segment_entries=100,
    index_hash_slots=100,
    index_entries=1000,
)


def payload(first: int, count: int) -> bytes:
    messages = [
        Message("Topic", b"%d" % n, keys=[f"k{n}"], unique_key=f"{n:032d}")
        for n in range(first, first + count)
    ]
    batch = encode_messages(messages, born_host=("127.0.0.1", 1), clock_ms=lambda: 1)
    return pack_batch(batch)


def open_writer(directory: Path) -> ShardWriter:
    return ShardWriter(directory / "shard", "Topic", 0, CONFIG, clock_ms=lambda: 1000)


def bodies(writer: ShardWriter) -> list[bytes]:
    return [message.body for message in writer.store.reads.scan()]


@pytest.mark.proves(
    "producers",
    "A message is acknowledged after it is stored and visible to readers",
)
def test_frames_are_stored_then_seen_then_acknowledged(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    ring = ProducerRing(tmp_path / owned_name("r"))
    writer.rings.attach_ring(ring.path)
    for number in range(3):
        ring.try_write(payload(number * 10, 10), Durability.MEMORY)
    ring.publish()
    assert writer.rings.drain() == 3
    assert writer.control.visible() == 30
    assert [ring.ack(n).first_queue_offset for n in (1, 2, 3)] == [0, 10, 20]
    assert writer.store.reads.view(ring.ack(2).first_physical_offset).body == b"10"
    assert writer.rings.drain() == 0
    writer.close()


@pytest.mark.proves(
    "producers",
    "A shard that is killed during a batch completes the batch, and does not repeat it",
)
@pytest.mark.parametrize("stored", range(11))
def test_a_frame_cut_short_by_a_crash_is_completed_not_repeated(
    tmp_path: Path, stored: int
) -> None:
    """The slot says where the frame began; the log says how much of it is there."""
    writer = open_writer(tmp_path)
    writer.append(payload(0, 5), Durability.MEMORY)
    ring = ProducerRing(tmp_path / owned_name("r"))
    other = ProducerRing(tmp_path / owned_name("another"))
    other.try_write(payload(100, 3), Durability.MEMORY)
    other.publish()
    ring.try_write(payload(5, 10), Durability.MEMORY)
    ring.publish()
    ShardRing(ring.path).record(1, Ack(AppendStatus.PENDING, 5))
    if stored:
        writer.append(payload(5, stored), Durability.MEMORY)
    writer.store.close()

    successor = open_writer(tmp_path)
    for path in (other.path, ring.path):
        successor.rings.attach_ring(path)
    assert successor.rings.drain() == 1  # the other was completed when it was attached
    assert bodies(successor) == [b"%d" % n for n in [*range(15), 100, 101, 102]]
    ack = ring.ack(1)
    assert (ack.status, ack.first_queue_offset, ack.messages) == (AppendStatus.OK, 5, 10)
    assert successor.store.reads.view(ack.first_physical_offset).body == b"5"
    assert len(successor.store.reads.query("Topic", "k7")) == 1
    successor.close()


def test_an_outcome_that_was_written_is_not_acted_on_again(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    ring = ProducerRing(tmp_path / owned_name("r"))
    ring.try_write(payload(0, 2), Durability.MEMORY)
    ring.publish()
    ShardRing(ring.path).record(1, Ack(AppendStatus.STORE_FULL))
    writer.rings.attach_ring(ring.path)
    writer.rings.drain()
    assert ring.ack(1).status is AppendStatus.STORE_FULL
    assert writer.statistics().messages == 0
    writer.close()


def truncate(frame: bytearray) -> None:
    del frame[-9:]


def wrong_magic(frame: bytearray) -> None:
    frame[0] ^= 0xFF


@pytest.mark.proves("producers", "A batch is stored completely or not at all")
@pytest.mark.parametrize("damage", [truncate, wrong_magic])
def test_a_malformed_batch_is_refused_whole(
    tmp_path: Path, damage: Callable[[bytearray], None]
) -> None:
    writer = open_writer(tmp_path)
    ring = ProducerRing(tmp_path / owned_name("r"))
    frame = bytearray(payload(0, 3))
    damage(frame)
    ring.try_write(bytes(frame), Durability.MEMORY)
    ring.try_write(payload(0, 1), Durability.MEMORY)
    ring.publish()
    writer.rings.attach_ring(ring.path)
    writer.rings.drain()
    assert ring.ack(1).status is AppendStatus.MESSAGE_ILLEGAL
    assert ring.ack(2).status is AppendStatus.OK
    assert writer.statistics().refused_batches == 1
    assert bodies(writer) == [b"0"]
    writer.close()


@pytest.mark.proves(
    "producers",
    "A batch larger than a segment is refused, and the next one is stored",
)
def test_a_batch_larger_than_a_segment_is_refused_and_the_next_one_stored(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    large = [Message("Topic", bytes(70_000))]
    frame = pack_batch(encode_messages(large, born_host=("127.0.0.1", 1), clock_ms=lambda: 1))
    assert writer.append(frame, Durability.MEMORY).status is AppendStatus.MESSAGE_ILLEGAL
    assert writer.append(payload(0, 1), Durability.MEMORY).status is AppendStatus.OK
    writer.close()


def test_a_ring_may_bring_batches_without_room_for_crcs_among_others(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    ring = ProducerRing(tmp_path / owned_name("r"))
    writer.rings.attach_ring(ring.path)
    without = encode_messages(
        [Message("Topic", b"%d" % number) for number in (1, 2)],
        born_host=("127.0.0.1", 1),
        clock_ms=lambda: 1,
        options=RecordOptions(properties_crc=False),
    )
    for frame in (payload(0, 1), pack_batch(without), payload(3, 1)):
        ring.try_write(frame, Durability.MEMORY)
    ring.publish()
    assert writer.rings.drain() == 3
    stored = list(writer.store.reads.scan())  # checks them
    assert [one.body for one in stored] == [b"0", b"1", b"2", b"3"]
    records = [writer.store._log.read(one.physical_offset, one.size) for one in stored]
    assert [b"__CRC32#" in record for record in records] == [True, False, False, True]
    writer.close()


def test_a_prepared_message_is_refused_for_nobody_could_commit_it(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    batch = encode_messages(
        [Message("Topic", b"half")],
        born_host=("127.0.0.1", 1),
        clock_ms=lambda: 1,
        options=RecordOptions(sys_flag=PREPARED),
    )
    ack = writer.append(pack_batch(batch), Durability.MEMORY)
    assert ack.status is AppendStatus.MESSAGE_ILLEGAL
    assert bodies(writer) == []
    writer.close()


def test_a_second_writer_is_locked_out_and_a_newer_one_fences(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    with pytest.raises(StoreLockedError):
        open_writer(tmp_path)
    writer.control.take_epoch()
    assert writer.append(payload(0, 1), Durability.MEMORY).status is AppendStatus.FENCED
    assert bodies(writer) == []
    writer.close()


def test_a_directory_whose_creation_broke_off_keeps_its_sizes(tmp_path: Path) -> None:
    """Another release, or other options, may have other sizes by the time it is opened again."""
    open_writer(tmp_path).close()
    (tmp_path / "shard" / CONTROL_PAGE).unlink()  # it is created after the settings
    other = replace(CONFIG, commit_log_segment_bytes=128 * 1024)
    writer = ShardWriter(tmp_path / "shard", "Topic", 0, other, clock_ms=lambda: 1000)
    assert writer.store.config == CONFIG
    writer.close()


@pytest.mark.proves("producers", 'A batch with `ack="disk"` is flushed before it is visible')
def test_a_disk_batch_is_flushed_before_it_is_seen(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.append(payload(0, 1), Durability.MEMORY)
    assert writer.control.flushed() == 0
    writer.append(payload(1, 1), Durability.DISK)
    assert writer.control.flushed() == writer.store.reads.max_physical_offset
    writer.close()


@pytest.mark.parametrize("mode", Durability)
def test_each_way_in_does_what_the_mode_demands(tmp_path: Path, mode: Durability) -> None:
    writer = open_writer(tmp_path)
    ring = ProducerRing(tmp_path / owned_name("r"))
    writer.rings.attach_ring(ring.path)

    def by_frame() -> None:
        ring.try_write(payload(0, 1), mode)
        ring.publish()
        assert writer.rings.drain() == 1

    def by_call() -> None:
        writer.append(payload(0, 1), mode)

    for send in (
        by_frame,
        by_frame,
        by_call,
    ):  # the first makes the files; a kernel stores the next
        send()
        is_on_disk = writer.control.flushed() == writer.store.reads.max_physical_offset
        assert is_on_disk == mode.needs_sync
    writer.close()


def test_rings_of_closed_producers_are_removed_once_drained(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    ring = ProducerRing(tmp_path / owned_name("r"))
    writer.rings.attach_ring(ring.path)
    ring.try_write(payload(0, 1), Durability.MEMORY)
    ring.publish()
    ring.close()
    writer.rings.forget_closed()
    assert ring.path.exists()
    writer.rings.drain()
    writer.rings.forget_closed()
    assert not ring.path.exists()
    assert writer.statistics().rings == 0
    writer.close()


def test_the_ring_of_a_dead_producer_is_drained_and_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    writer = open_writer(tmp_path)
    ring = ProducerRing(tmp_path / f"{dead.pid}-r")
    writer.rings.attach_ring(ring.path)
    ring.try_write(payload(0, 1), Durability.MEMORY)
    ring.publish()
    writer.rings.forget_closed()
    assert ring.path.exists()
    writer.rings.drain()
    writer.rings.forget_closed()
    assert bodies(writer) == [b"0"]
    assert not ring.path.exists()
    writer.close()


@pytest.mark.proves(
    "producers", "`rocketray producers` lists the processes that have a ring to a queue"
)
def test_a_producer_is_listed_until_it_closes_its_ring_or_dies(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    ring = ProducerRing(tmp_path / owned_name("r"), opened_ms=500)
    closed, dead = (
        ProducerRing(tmp_path / owned_name("c")),
        ProducerRing(tmp_path / f"{ended.pid}-r"),
    )
    for each in (ring, closed, dead):
        writer.rings.attach_ring(each.path)
    closed.close()
    ring.try_write(payload(0, 3), Durability.MEMORY)
    ring.publish()
    writer.rings.drain()
    [(pid, facts)] = writer.rings.producers()
    assert (pid, facts.opened_ms, facts.batches, facts.stored_ms) == (os.getpid(), 500, 1, 1000)
    cut = ProducerRing(tmp_path / owned_name("s"))
    writer.rings.attach_ring(cut.path)
    os.truncate(cut.path, 0)
    assert [pid for pid, _ in writer.rings.producers()] == [os.getpid()], "no byte of it is touched"
    writer.close()
    assert writer.rings.producers() == []


def test_a_frame_that_was_to_begin_where_the_log_ends_no_more_is_stored_at_its_end(
    tmp_path: Path,
) -> None:
    """The log lost its end, or the topic was made anew."""
    writer = open_writer(tmp_path)
    writer.append(payload(100, 2), Durability.MEMORY)
    ring = ProducerRing(tmp_path / owned_name("r"))
    ring.try_write(payload(0, 3), Durability.MEMORY)
    ring.publish()
    ShardRing(ring.path).record(1, Ack(AppendStatus.PENDING, 500))
    writer.rings.attach_ring(ring.path)
    assert bodies(writer) == [b"100", b"101", b"0", b"1", b"2"]
    assert ring.ack(1).first_queue_offset == 2
    writer.close()


def test_a_frame_that_was_to_begin_before_the_queue_costs_its_ring_and_not_the_shard(
    tmp_path: Path,
) -> None:
    writer = open_writer(tmp_path)
    writer.append(payload(0, 9), Durability.MEMORY)
    ring = ProducerRing(tmp_path / owned_name("r"))
    ring.try_write(payload(10, 3), Durability.MEMORY)
    ring.publish()
    ShardRing(ring.path).record(1, Ack(AppendStatus.PENDING, -5))
    writer.rings.attach_ring(ring.path)
    assert ring.acknowledged() == 0
    assert not ring.path.exists()
    assert writer.statistics().rings == 0
    assert writer.append(payload(9, 1), Durability.MEMORY).status is AppendStatus.OK
    writer.close()


def test_a_frame_of_which_a_part_is_stored_is_never_said_to_be_refused(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.append(payload(0, 3), Durability.MEMORY)
    ring = ProducerRing(tmp_path / owned_name("r"))
    ring.try_write(payload(0, 10), Durability.MEMORY)
    ring.publish()
    ShardRing(ring.path).record(1, Ack(AppendStatus.PENDING, 0))
    writer.appends.writable = False
    writer.rings.attach_ring(ring.path)
    assert ring.ack(1).status is AppendStatus.FAILED
    writer.close()


def test_a_fenced_writer_leaves_the_rings_to_the_newer_one(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    ring = ProducerRing(tmp_path / owned_name("r"))
    writer.rings.attach_ring(ring.path)
    writer.control.take_epoch()
    ring.try_write(payload(0, 1), Durability.MEMORY)
    ring.publish()
    with pytest.raises(ShardFencedError):
        writer.rings.drain()
    assert ring.acknowledged() == 0
    assert ShardRing(ring.path).outcome(1) is None
    assert bodies(writer) == []
    writer.close()


def identity(count: int, born_ms: int | None = None) -> BatchIdentity:
    """The identity of ``payload(0, count)``."""
    batch = unpack_batch(payload(0, count))
    born = int.from_bytes(batch.records[40:48].tobytes()) if born_ms is None else born_ms
    return BatchIdentity(f"{0:032d}", f"{count - 1:032d}", count, born)


@pytest.mark.proves("producers", "A batch that was stored only in part does not count as stored")
def test_a_batch_of_which_the_log_has_only_the_beginning_is_not_found(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.append(payload(0, 3), Durability.MEMORY)
    found = writer.find_batch(identity(3))
    assert found is not None
    assert (found.status, found.messages) == (AppendStatus.OK, 3)
    assert writer.find_batch(identity(4)) is None
    writer.append(payload(100, 3), Durability.MEMORY)  # another producer's, behind the beginning
    assert writer.find_batch(identity(4)) is None
    writer.append(payload(0, 4), Durability.MEMORY)  # so it comes whole
    found = writer.find_batch(identity(4))
    assert found is not None
    assert (found.first_queue_offset, found.messages) == (6, 4)
    writer.close()


def test_a_frame_whose_records_cannot_be_read_again_does_not_keep_the_shard_from_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(tmp_path)
    writer.append(payload(0, 3), Durability.MEMORY)
    ring = ProducerRing(tmp_path / owned_name("r"))
    ring.try_write(payload(0, 3), Durability.MEMORY)
    ring.publish()
    ShardRing(ring.path).record(1, Ack(AppendStatus.PENDING, 0))
    with monkeypatch.context() as patch:
        patch.setattr(writer.store.reads, "view", damaged)
        writer.rings.attach_ring(ring.path)
    assert ring.ack(1).status is AppendStatus.FAILED
    assert bodies(writer) == [b"0", b"1", b"2"]
    writer.close()


def damaged(_offset: int) -> None:
    raise CorruptRecordError("log", 0, "in the test")

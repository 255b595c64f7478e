"""The fence of a queue that owners write: nothing of a former owner is stored, whatever restarts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketray.base.ack_mode import Durability
from rocketray.base.config import StoreConfig
from rocketray.broker.shards.compaction import Compaction
from rocketray.broker.shards.shard_appends import ShardAppends
from rocketray.broker.shards.shard_writer import ShardWriter
from rocketray.broker.topics.ownership_record import OWNERSHIP_KEY, epoch_of
from rocketray.errors import InvalidMessageError, OwnerFencedError, ShardUnavailableError
from rocketray.groups.ownership_epochs import EPOCH_MAX, NOTED_MAX, OwnershipEpochs
from rocketray.message import SHARDING_KEY, Message
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.runtime.ipc.append_status import refusal, status_of
from rocketray.runtime.ipc.ring import ProducerRing, ShardRing
from rocketray.runtime.processes import owned_name
from rocketray.store.batches.encoded_batch import (
    Owned,
    Packed,
    encode_messages,
    pack_batch,
    packed,
    unpack_batch,
)
from rocketray.store.retention import DiskUse

pytestmark = pytest.mark.proves(
    "groups",
    "What a former owner of a queue changes in a table is refused, wherever its process "
    "was stopped, also after the shard restarts or compacts; the app continues, and each "
    "message counts once",
)

CONFIG = StoreConfig(
    commit_log_segment_bytes=4 * 1024,
    consume_queue_segment_entries=100,
    index_hash_slots=100,
    index_entries=1000,
)
NO_DISK = DiskUse(0, 1)
MEMORY = Durability.MEMORY


def frame(epoch: int, *bodies: bytes, key: str = "k") -> bytes:
    """A packed batch of changes of one key, with an ownership epoch unless that is 0."""
    messages = [Message("C", body, properties={SHARDING_KEY: key}) for body in bodies]
    batch = encode_messages(messages, born_host=("127.0.0.1", 1), clock_ms=lambda: 1)
    return pack_batch(replace(batch, owner_epoch=epoch))


def open_writer(directory: Path) -> ShardWriter:
    return ShardWriter(directory / "shard", "C", 0, CONFIG, clock_ms=lambda: 1000)


def stored(writer: ShardWriter) -> list[bytes | int]:
    """The bodies in the log, and in their places the epochs of its ownership records."""
    found: list[bytes | int] = []
    for one in writer.store.reads.scan():
        epoch = epoch_of(one)
        found.append(bytes(one.body) if epoch is None else epoch)
    return found


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[ShardWriter]:
    writer = open_writer(tmp_path)
    yield writer
    writer.close()


@given(st.integers(1, 2**63 - 1))
def test_an_epoch_comes_out_of_a_frame_as_it_went_in(epoch: int) -> None:
    plain = frame(0, b"1", b"2")
    owned = packed(Owned(Packed(plain), epoch))
    assert owned == frame(epoch, b"1", b"2")
    assert len(owned) == len(plain) + 8
    batch, before = unpack_batch(owned), unpack_batch(plain)
    assert (batch.owner_epoch, before.owner_epoch) == (epoch, 0)
    assert np.array_equal(batch.records, before.records)
    assert batch.without_first(1).owner_epoch == 0


@pytest.mark.parametrize("epoch", [0, -1, -(2**63)])
def test_a_frame_with_an_epoch_that_is_none_is_malformed(epoch: int) -> None:
    with pytest.raises(InvalidMessageError, match="ownership epoch"):
        unpack_batch(packed(Owned(Packed(frame(0, b"1")), epoch)))


def test_nothing_of_an_older_owner_is_stored_and_others_are_not_looked_at(
    writer: ShardWriter,
) -> None:
    assert writer.append(frame(0, b"nobody's"), MEMORY).status is AppendStatus.OK
    assert writer.append(frame(5, b"5"), MEMORY).status is AppendStatus.OK
    assert writer.append(frame(5, b"again 5"), MEMORY).status is AppendStatus.OK
    assert writer.fence(7) == 7
    assert writer.append(frame(6, b"6"), MEMORY).status is AppendStatus.OWNER_FENCED
    assert writer.append(frame(7, b"7"), MEMORY).status is AppendStatus.OK
    assert writer.append(frame(0, b"nobody's"), MEMORY).status is AppendStatus.OK
    assert stored(writer) == [b"nobody's", 5, b"5", b"again 5", 7, b"7", b"nobody's"]
    assert writer.statistics().refused_batches == 1


def test_a_fence_says_who_is_newer_and_is_set_once(writer: ShardWriter) -> None:
    assert writer.fence(7) == 7
    assert writer.fence(7) == 7
    assert writer.fence(3) == 7
    assert stored(writer) == [7]
    assert writer.control.flushed() == writer.store.reads.max_physical_offset


def test_a_fence_that_cannot_be_stored_is_none(writer: ShardWriter) -> None:
    writer.appends.is_disk_full = True
    with pytest.raises(ShardUnavailableError, match="its disk is full; free space"):
        writer.fence(7)
    assert writer.append(frame(7, b"7"), MEMORY).status is AppendStatus.STORE_FULL
    writer.appends.is_disk_full = False
    assert writer.append(frame(6, b"6"), MEMORY).status is AppendStatus.OK
    assert stored(writer) == [6, b"6"]


def test_the_newest_owner_outlives_the_writer(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.fence(5)
    writer.fence(7)
    writer.store.close()  # as a process that is killed
    writer = open_writer(tmp_path)
    assert writer.append(frame(6, b"6"), MEMORY).status is AppendStatus.OWNER_FENCED
    assert writer.append(frame(7, b"7"), MEMORY).status is AppendStatus.OK
    assert stored(writer) == [5, 7, b"7"]
    writer.close()


def test_the_newest_owner_outlives_compaction(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.fence(5)
    writer.fence(7)
    for number in range(200):
        writer.append(frame(7, b"%d" % number + bytes(100)), MEMORY)
    assert Compaction(writer, "C", 0).run(NO_DISK) > 0
    assert [one for one in stored(writer) if isinstance(one, int)] == [7]
    writer.close()
    writer = open_writer(tmp_path)
    assert writer.fence(6) == 7
    writer.close()


@pytest.mark.parametrize("epoch", ["0", str(NOTED_MAX + 1), "9" * 5000])
def test_an_epoch_that_no_counter_gives_stops_no_owner(writer: ShardWriter, epoch: str) -> None:
    forged = Message("C", b"", keys=[OWNERSHIP_KEY], properties={OWNERSHIP_KEY: epoch})
    batch = encode_messages([forged], born_host=("127.0.0.1", 1), clock_ms=lambda: 1)
    writer.append(pack_batch(batch), MEMORY)
    assert writer.fence(1) == 1
    assert writer.append(frame(1, b"1"), MEMORY).status is AppendStatus.OK


def test_a_counter_has_room_behind_the_largest_epoch_that_a_log_may_name() -> None:
    epochs = OwnershipEpochs()
    epochs.pass_by(NOTED_MAX)
    epochs.pass_by(NOTED_MAX + 1)
    assert epochs.next() == NOTED_MAX + 1
    assert OwnershipEpochs(epochs.last).next() <= EPOCH_MAX


def test_what_only_looks_like_an_owner_is_none(writer: ShardWriter) -> None:
    odd = [
        Message("C", b"9", keys=[OWNERSHIP_KEY]),
        Message("C", b"9", properties={OWNERSHIP_KEY: "9"}),
        Message("C", b"9", keys=[OWNERSHIP_KEY], properties={OWNERSHIP_KEY: "²"}),
        Message(
            "C", b"9", keys=[OWNERSHIP_KEY], properties={OWNERSHIP_KEY: "9", SHARDING_KEY: "k"}
        ),
    ]
    batch = encode_messages(odd, born_host=("127.0.0.1", 1), clock_ms=lambda: 1)
    writer.append(pack_batch(batch), MEMORY)
    assert writer.fence(1) == 1


def test_frames_of_a_former_owner_are_refused_in_the_ring(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    rings = [ProducerRing(tmp_path / owned_name(name)) for name in "ab"]
    for ring in rings:
        writer.rings.attach_ring(ring.path)
    for ring, epoch in zip(rings, (5, 6), strict=True):
        ring.try_write(frame(0, b"plain"), MEMORY)
        ring.try_write(frame(epoch, b"%d" % epoch), MEMORY)
        ring.publish()
        writer.rings.drain()
    old, new = rings
    old.try_write(frame(5, b"too late"), MEMORY)
    old.publish()
    writer.rings.drain()
    assert old.ack(3).status is AppendStatus.OWNER_FENCED
    assert old.ack(2).first_queue_offset == 2, "behind the record of its owner"
    assert new.ack(2).status is AppendStatus.OK
    assert stored(writer) == [b"plain", 5, b"5", b"plain", 6, b"6"]
    writer.close()


@pytest.mark.parametrize("begun", ["the record", "nothing", "a part"])
def test_a_frame_that_a_dead_process_began_is_completed_whatever_it_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    writer = open_writer(tmp_path)
    ring = ProducerRing(tmp_path / owned_name("r"))
    ring.try_write(frame(5, b"1", b"2", b"3"), MEMORY)
    ring.publish()
    if begun == "the record":  # and its slot says nothing

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(ShardRing, "record", die)
            writer.rings.attach_ring(ring.path)
            with pytest.raises(KeyboardInterrupt):
                writer.rings.drain()
    else:
        writer.fence(5)
        ShardRing(ring.path).record(1, Ack(AppendStatus.PENDING, 1))
        if begun == "a part":
            writer.append(frame(0, b"1", b"2"), MEMORY)
    writer.store.close()
    writer = open_writer(tmp_path)
    writer.rings.attach_ring(ring.path)
    writer.rings.drain()
    assert stored(writer) == [5, b"1", b"2", b"3"]
    assert ring.ack(1).status is AppendStatus.OK
    writer.close()


def test_a_log_that_cannot_be_searched_admits_no_owner(
    writer: ShardWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[object]:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(type(writer.store.reads), "query", fail)
        assert writer.append(frame(7, b"7"), MEMORY).status is AppendStatus.FAILED
        assert isinstance(writer.appends, ShardAppends)
    assert writer.append(frame(7, b"7"), MEMORY).status is AppendStatus.OK


def test_the_refusal_says_what_becomes_of_the_messages() -> None:
    error = refusal(AppendStatus.OWNER_FENCED, "C/0", Path("data"))
    assert isinstance(error, OwnerFencedError)
    assert str(error).startswith("shard C/0: the changes are of a former owner of the queue")
    assert status_of(error) is AppendStatus.OWNER_FENCED

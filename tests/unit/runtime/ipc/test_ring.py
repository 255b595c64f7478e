"""The ring between a producer and a shard, in one process and against a model."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from rocketray import __version__
from rocketray.base.ack_mode import Durability
from rocketray.errors import StoreVersionError
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.runtime.ipc.ring import (
    SLOT_COUNT,
    Frame,
    ProducerRing,
    RingCorruptError,
    RingFacts,
    ShardRing,
)

CAPACITY = 64 * 1024


def make(path: Path) -> tuple[ProducerRing, ShardRing]:
    return ProducerRing(path, CAPACITY), ShardRing(path)


def take(shard: ShardRing) -> list[Frame]:
    """All frames that are published now."""
    shard.look()
    return list(iter(shard.next_frame, None))


def test_frames_of_any_size_come_out_as_they_went_in(tmp_path: Path, rng: random.Random) -> None:
    producer, shard = make(tmp_path / "ring")
    sent: list[bytes] = []
    received: list[bytes] = []
    for _ in range(2000):
        payload = rng.randbytes(rng.randrange(producer.payload_max // 3))
        while (sequence := producer.try_write(payload, Durability.MEMORY)) is None:
            producer.publish()
            for frame in take(shard):
                received.append(frame.payload.tobytes())
                shard.record(frame.sequence, Ack(AppendStatus.OK, frame.sequence, 0, 0, 1))
                shard.acknowledge()
                assert producer.ack(frame.sequence).first_queue_offset == frame.sequence
        sent.append(payload)
        assert sequence == len(sent)
    producer.publish()
    received += [frame.payload.tobytes() for frame in take(shard)]
    assert received == sent


def test_room_that_is_reserved_and_never_committed_is_given_out_again(
    tmp_path: Path, rng: random.Random
) -> None:
    producer, shard = make(tmp_path / "ring")
    sent: list[bytes] = []
    received: list[bytes] = []
    while len(sent) < 500:
        abandoned = producer.try_reserve(rng.randrange(producer.payload_max))
        if abandoned is not None:
            abandoned[:] = bytes(len(abandoned))
        payload = rng.randbytes(rng.randrange(producer.payload_max // 3))
        room = producer.try_reserve(len(payload))
        if room is not None:
            room[:] = payload
            sent.append(payload)
            assert producer.commit(Durability.DISK) == len(sent)
        producer.publish()
        if room is None:
            received += [frame.payload.tobytes() for frame in take(shard)]
            shard.acknowledge()
    received += [frame.payload.tobytes() for frame in take(shard)]
    assert received == sent


def test_nothing_is_seen_before_it_is_published(tmp_path: Path) -> None:
    producer, shard = make(tmp_path / "ring")
    producer.try_write(b"x", Durability.DISK)
    assert take(shard) == []
    producer.publish()
    (frame,) = take(shard)
    assert (frame.payload.tobytes(), frame.durability) == (b"x", Durability.DISK)


def test_unacknowledged_frames_are_bounded_by_the_slots(tmp_path: Path) -> None:
    producer, _ = make(tmp_path / "ring")
    written = sum(producer.try_write(b"", Durability.MEMORY) is not None for _ in range(2000))
    assert written == SLOT_COUNT


def test_a_new_incarnation_goes_on_at_the_first_unacknowledged_frame(tmp_path: Path) -> None:
    producer, shard = make(tmp_path / "ring")
    for payload in (b"one", b"two", b"three"):
        producer.try_write(payload, Durability.MEMORY)
    producer.publish()
    assert shard.look()
    first = shard.next_frame()
    assert first is not None
    shard.record(first.sequence, Ack(AppendStatus.OK, 0, 0, 0, 1))
    shard.acknowledge()
    second = shard.next_frame()
    assert second is not None
    shard.record(second.sequence, Ack(AppendStatus.PENDING, 1))
    successor = ShardRing(tmp_path / "ring")
    assert successor.interrupted()
    assert [frame.payload.tobytes() for frame in take(successor)] == [b"two", b"three"]
    outcome = successor.outcome(second.sequence)
    assert outcome is not None
    assert (outcome.status, outcome.first_queue_offset) == (AppendStatus.PENDING, 1)


def test_what_was_not_acknowledged_can_be_taken_back(tmp_path: Path, rng: random.Random) -> None:
    producer = ProducerRing(tmp_path / "ring", 4096)
    shard = ShardRing(tmp_path / "ring")
    sent: dict[int, bytes] = {}
    for _ in range(300):
        if rng.random() < 0.6:
            payload = rng.randbytes(rng.randint(0, 700))
            sequence = producer.try_write(payload, Durability.MEMORY)
            if sequence is not None:
                sent[sequence] = payload
            producer.publish()
        else:
            shard.look()
            frame = shard.next_frame()
            if frame is not None:
                shard.record(frame.sequence, Ack(AppendStatus.OK))
                shard.acknowledge()
        done = producer.acknowledged()
        assert producer.unacknowledged() == {at: each for at, each in sent.items() if at > done}


def test_room_that_was_not_given_back_is_not_read_again(tmp_path: Path) -> None:
    """A shard died after it acknowledged a frame, and before it moved the tail."""
    producer, shard = make(tmp_path / "ring")
    for payload in (b"one", b"two"):
        producer.try_write(payload, Durability.MEMORY)
    producer.publish()
    first, _ = take(shard)
    shard._acknowledged.publish(first.sequence)
    (left,) = take(ShardRing(tmp_path / "ring"))
    assert (left.sequence, left.payload.tobytes()) == (2, b"two")


def test_a_ring_that_was_closed_is_still_drained(tmp_path: Path) -> None:
    producer, shard = make(tmp_path / "ring")
    producer.try_write(b"x", Durability.MEMORY)
    producer.publish()
    producer.close()
    assert shard.is_closed
    assert not shard.is_drained
    take(shard)
    assert shard.is_drained


@pytest.mark.parametrize("field", range(5))
def test_a_damaged_frame_header_is_found(tmp_path: Path, field: int) -> None:
    producer, shard = make(tmp_path / "ring")
    producer.try_write(b"x" * 100, Durability.MEMORY)
    producer.publish()
    raw = np.memmap(tmp_path / "ring", np.uint32, "r+")
    raw[-CAPACITY // 4 + field] = 0x7FFFFFFF
    with pytest.raises(RingCorruptError):
        take(shard)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ring").write_bytes(bytes(8192))
    with pytest.raises(StoreVersionError):
        ShardRing(tmp_path / "ring")


def test_a_ring_tells_who_opened_it_and_what_was_taken_from_it(tmp_path: Path) -> None:
    producer = ProducerRing(tmp_path / "ring", CAPACITY, opened_ms=7000)
    shard = ShardRing(producer.path)
    assert shard.facts() == RingFacts(7000, __version__, 0, 0)
    for ack, stored_ms in (
        (Ack(AppendStatus.OK, 0, 0, 8000, 1), 8000),
        (Ack(AppendStatus.STORE_FULL), 0),
    ):
        producer.try_write(b"batch", Durability.MEMORY)
        producer.publish()
        [frame] = take(shard)
        shard.record(frame.sequence, ack)
        shard.acknowledge()
        assert shard.facts() == RingFacts(7000, __version__, frame.sequence, stored_ms)


def test_what_the_ring_of_an_earlier_release_does_not_tell_is_unknown(tmp_path: Path) -> None:
    producer, shard = make(tmp_path / "ring")
    with producer.path.open("r+b") as file:
        file.seek(5 * 64)
        file.write(bytes(2 * 64))
    assert shard.facts() == RingFacts(0, "", 0, 0)
    with producer.path.open("r+b") as file:
        file.seek(6 * 64)
        file.write(b"\xff" * 64)
    assert shard.facts().release == "\ufffd" * 64

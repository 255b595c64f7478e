"""The age of the oldest message that is not on disk: never too low, and it grows while a flush hangs."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest
from support.harness.patience import patience

from rocketray.base.ack_mode import Durability
from rocketray.base.config import StoreConfig
from rocketray.broker.shards.shard_writer import ShardWriter
from rocketray.broker.shards.unflushed import Unflushed
from rocketray.message import Message
from rocketray.runtime.ipc.ring import ProducerRing
from rocketray.runtime.processes import owned_name
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.files.mapped_file import MappedFile
from rocketray.store.store_reads import StoreReads

CONFIG = StoreConfig(
    commit_log_segment_bytes=64 * 1024,
    consume_queue_segment_entries=100,
    index_hash_slots=100,
    index_entries=1000,
)


def payload(body: bytes) -> bytes:
    return pack_batch(
        encode_messages([Message("T", body)], born_host=("127.0.0.1", 1), clock_ms=lambda: 1)
    )


@pytest.mark.proves(
    "producers",
    "The age of the oldest message that is not on disk is never shown too low, and grows while a "
    "flush hangs",
)
def test_it_is_at_least_the_age_and_at_most_a_flush_more(rng: Random) -> None:
    """Appends and flushes in any order: two flushes may wait, and one of them runs at a time."""
    log = SimpleNamespace(flushed_offset=0, max_physical_offset=0)
    now_ms, took_ms = 0, 0
    unflushed = Unflushed(cast("StoreReads", log), lambda: now_ms)
    messages: deque[tuple[int, int]] = deque()  # physical offset and time
    waiting: list[int] = []  # the times at which flushes began
    running: tuple[int, int] | None = None  # when it began, and the offset that it will reach
    for _ in range(2000):
        now_ms += rng.choice((0, 1, 10, 500))
        step = rng.randrange(5)
        if step < 2:
            unflushed.before_append()
            messages.append((log.max_physical_offset, now_ms))
            log.max_physical_offset += rng.randrange(100, 1000)
        elif step == 2 and len(waiting) < 2:
            unflushed.before_flush()
            waiting.append(now_ms)
        elif step == 3 and running is None and waiting:
            running = waiting.pop(0), log.max_physical_offset
        elif step == 4 and running is not None:
            took_ms, log.flushed_offset = now_ms - running[0], running[1]
            running = None
        while messages and messages[0][0] < log.flushed_offset:
            messages.popleft()
        if not messages:
            assert unflushed.age_ms() == 0
        else:
            age_ms = now_ms - messages[0][1]
            assert max(1, age_ms) <= unflushed.age_ms() <= max(1, age_ms + took_ms)
        assert len(unflushed._marks) <= 5


@pytest.mark.proves(
    "producers",
    "The age of the oldest message that is not on disk is never shown too low, and grows while a "
    "flush hangs",
)
def test_a_flush_that_hangs_is_seen_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 1000
    writer = ShardWriter(*(tmp_path, "T", 0, CONFIG), clock_ms=lambda: 5, steady_ms=lambda: now_ms)
    ring = ProducerRing(tmp_path / owned_name("r"))
    writer.rings.attach_ring(ring.path)
    assert writer.unflushed_ms() == 0
    writer.append(payload(b"a call"), Durability.MEMORY)
    now_ms += 200
    ring.try_write(payload(b"a frame"), Durability.MEMORY)
    ring.publish()
    assert writer.rings.drain() == 1
    assert writer.unflushed_ms() == 200
    writer.flush()
    assert writer.unflushed_ms() == 0
    now_ms += 3_600_000
    hangs, goes_on = threading.Event(), threading.Event()
    flush = MappedFile.flush

    def hang(file: MappedFile) -> None:
        hangs.set()
        assert goes_on.wait(patience(60))
        flush(file)

    ring.try_write(payload(b"to disk"), Durability.DISK)
    ring.publish()
    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "flush", hang)
        thread = threading.Thread(target=writer.rings.drain)
        thread.start()
        assert hangs.wait(patience(60))
        ages = []
        for age_ms in (1, 30_000, 60_000):
            now_ms = 3_601_200 + age_ms
            ages.append(writer.unflushed_ms())
        goes_on.set()
        thread.join()
    assert ages == [1, 30_000, 60_000]
    assert writer.unflushed_ms() == 0
    writer.close()

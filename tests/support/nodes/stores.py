"""Stores for tests: small files, a clock that the test moves, and the store that RocketMQ wrote."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from support.harness.source_tree import ROOT

from rocketray.base.config import StoreConfig
from rocketray.hashing import index_key_hash, tags_code
from rocketray.message import Message, StoredMessage
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.store_settings import Salvage
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.pull import PullLimits

GOLDEN = ROOT / "tests/data/rocketmq"
GOLDEN_STORE = GOLDEN / "store-v1"
GOLDEN_CONFIG = StoreConfig(
    commit_log_segment_bytes=65_536,
    consume_queue_segment_entries=50,
    consume_queue_ext=True,
    consume_queue_ext_segment_bytes=4096,
    index_hash_slots=100,
    index_entries=400,
)
# maxTransferCountOnMessageInMemory and the byte limits were set so high that only the end of a
# queue file stops a read.
GOLDEN_LIMITS = PullLimits(max_bytes=1 << 28, max_time_ms=inf, max_queue_files=1)
SMALL = StoreConfig(
    commit_log_segment_bytes=4096,
    consume_queue_segment_entries=7,
    index_hash_slots=5,
    index_entries=9,
    store_host=("10.1.2.3", 10_911),
)
NO_CRC = replace(SMALL, append_properties_crc=False)
"""Its records have no CRC of the whole, as those of earlier releases and of RocketMQ."""


class FakeClock:
    """Milliseconds that pass only when told."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def read_jsonl(name: str) -> Iterator[dict[str, Any]]:
    """The lines of one of the golden files."""
    with (GOLDEN / name).open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def open_golden() -> MessageStore:
    """The store that RocketMQ wrote, as it lies."""
    return MessageStore(GOLDEN_STORE, GOLDEN_CONFIG, read_only=True, clock_ms=FakeClock())


def golden_batch(rows: list[dict[str, Any]]) -> EncodedBatch:
    """Records of ``store-v1`` as their producer encoded them: what only a store knows is 0."""
    parts, hashes, records = [], [], []
    for number, row in enumerate(rows):
        offset = row["commitLogOffset"]
        start = offset - offset % GOLDEN_CONFIG.commit_log_segment_bytes
        segment = (GOLDEN_STORE / "commitlog" / f"{start:020d}").read_bytes()
        raw = np.frombuffer(segment, np.uint8)[offset - start :][: row["storeSize"]].copy()
        raw[12:16] = 0  # queue id
        raw[20:36] = 0  # queue offset, physical offset
        raw[56:72] = 0  # store time, store host
        parts.append(raw)
        unique = row["properties"].get("UNIQ_KEY")
        keys = [unique, *(row["keys"] or "").split(" ")]
        found = [index_key_hash(f"{row['topic']}#{key}") for key in keys if key]
        hashes += found
        records += [number] * len(found)
    return EncodedBatch(
        np.concatenate(parts),
        np.array([row["storeSize"] for row in rows], np.int32),
        np.array([tags_code(row["tags"]) for row in rows], np.int64),
        np.array(hashes, np.int32),
        np.array(records, np.int32),
    )


def message(number: int, topic: str = "Trade", size: int = 20) -> Message:
    """A message that its number decides: body, one of three tags or none, two keys, properties."""
    return Message(
        topic,
        f"{number:08d}".encode().ljust(size, b"."),
        tags=(None, "pay", "order", "Aa")[number % 4],
        keys=(f"key-{number}", f"group-{number % 3}"),
        unique_key=f"{topic}-{number:032d}"[-32:],
        properties={"region": ("eu", "us")[number % 2], "amount": str(number)},
    )


def kill(store: MessageStore) -> None:
    """Leave *store* as a SIGKILL would: nothing is flushed and nothing is said."""
    store._closed = True
    store._files.close()
    if store._lock is not None:
        store._lock.release(clean=False)


def read_all(store: MessageStore, topic: str, queue_id: int) -> list[StoredMessage]:
    """Every message of one queue."""
    found: list[StoredMessage] = []
    at = int(store.reads.min_queue_offset(topic, queue_id))
    while at < store.reads.max_queue_offset(topic, queue_id):
        result = store.reads.get_message(topic, queue_id, at, 1000)
        found += result.messages
        at = result.next_queue_offset
    return found


def repair(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> None:
    """Repair a store, as ``rocketray store recover`` does."""
    store = MessageStore(
        directory, salvage=Salvage.ALL, clock_ms=FakeClock(), file_system=file_system
    )
    store.close()


def check_whole(store: MessageStore) -> int:
    """Check that log, queues and index say the same; returns the number of messages."""
    messages = list(store.reads.scan())
    by_queue: dict[tuple[str, int], list[StoredMessage]] = {}
    for one in messages:
        by_queue.setdefault((one.topic, one.queue_id), []).append(one)
    for name in store.reads.queues():
        bounds = store.reads.min_queue_offset(*name), store.reads.max_queue_offset(*name)
        assert name in by_queue or not store.reads.gaps(*name).count(*bounds)
    for (topic, queue_id), expected in by_queue.items():
        first = int(store.reads.min_queue_offset(topic, queue_id))
        end = int(store.reads.max_queue_offset(topic, queue_id))
        ranges = store.reads.gaps(topic, queue_id).outside(first, end)
        offsets = itertools.chain.from_iterable(range(*each) for each in ranges)
        assert [one.queue_offset for one in expected] == list(offsets)
        assert read_all(store, topic, queue_id) == expected
        for one in expected:
            entry = store.reads.queue_entry(topic, queue_id, one.queue_offset)
            assert entry.tags_code == tags_code(one.tags)
    keys: dict[tuple[str, str], list[StoredMessage]] = {}
    for one in messages:
        for key in filter(None, {*one.keys, one.unique_key, one.imported_offset_id}):
            keys.setdefault((one.topic, key), []).append(one)
    for (topic, key), expected in keys.items():
        assert store.reads.query(topic, key, 64) == expected[-64:]
    ids = [(one.unique_key, one.imported_offset_id) for one in messages]
    carried = sum(len(one.keys) for one in messages)
    carried += sum(one_id is not None for pair in ids for one_id in pair)
    # The first index file may have keys of removed messages, too: it stays while it has one of others.
    others = store.config.index_entries if store.reads.min_physical_offset else 1
    assert store.statistics().keys - carried in range(others)
    return len(messages)

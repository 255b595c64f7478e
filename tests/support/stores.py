"""Stores for tests: small files, a clock that the test moves, and the store that RocketMQ wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocketray.config import StoreConfig
from rocketray.store.message_store import MessageStore
from rocketray.store.pull import PullLimits

GOLDEN = Path(__file__).parents[1] / "data" / "rocketmq"
GOLDEN_STORE = GOLDEN / "store-v1"
GOLDEN_CONFIG = StoreConfig(
    commit_log_segment_bytes=65_536,
    consume_queue_segment_entries=50,
    index_hash_slots=100,
    index_entries=400,
)
# maxTransferCountOnMessageInMemory and the byte limits were set so high that only the end of a
# queue file stops a read.
GOLDEN_LIMITS = PullLimits(max_bytes=1 << 28, max_time_ms=None, max_queue_files=1)
SMALL = StoreConfig(
    commit_log_segment_bytes=4096,
    consume_queue_segment_entries=7,
    index_hash_slots=5,
    index_entries=9,
    store_host=("10.1.2.3", 10_911),
)


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

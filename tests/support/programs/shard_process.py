"""A shard's writer in a process of its own, to be killed: drains one ring until then."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rocketray.base.config import StoreConfig
from rocketray.broker.shards.shard_writer import ShardWriter

CONFIG = StoreConfig(
    commit_log_segment_bytes=64 * 1024,
    consume_queue_segment_entries=500,
    index_hash_slots=100,
    index_entries=1000,
)


def open_writer(directory: Path) -> ShardWriter:
    """The writer of a shard with small files."""
    return ShardWriter(directory, "Topic", 0, CONFIG, clock_ms=lambda: time.time_ns() // 1_000_000)


def main() -> None:
    writer = open_writer(Path(sys.argv[1]))
    writer.rings.attach_ring(Path(sys.argv[2]))
    print("up", flush=True)  # noqa: T201 - its purpose
    while True:
        if not writer.rings.drain():
            time.sleep(0.0005)


if __name__ == "__main__":
    main()

"""A node to be killed, with small files: says that it is ready, and runs until then."""

from __future__ import annotations

import signal
import sys

from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions

_SIZES = (
    ("commit_log_segment_bytes", 4 * 1024 * 1024),
    ("consume_queue_segment_entries", 50_000),
    ("index_hash_slots", 20_000),
    ("index_entries", 50_000),
)


def main(data: str) -> None:
    """Start it, and wait."""
    with Node(data, NodeOptions(num_cpus=2, shard_sizes=_SIZES)):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])

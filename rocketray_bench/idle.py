"""What does an idle node cost, and each of its queues?

The node's processes are those that this one started: Ray's own, the coordinator, the filter and the
shards. The cost of a queue is the difference between a node with sixteen and one without any, each
queue with a message in it.
"""

from __future__ import annotations

import os
import time

from .bench_node import bench_node
from .report import BenchOptions, Row
from .resource_use import descendants, own_memory_bytes, processor_s

__all__ = ["run"]

_QUEUES = 16
_SETTLE_S = 5.0
_MIB = 1024 * 1024
_NOTHING = "an idle process costs 0"


def run(options: BenchOptions) -> list[Row]:
    """Measure a node for a minute without a queue, then for a minute with sixteen."""
    seconds = options.amount(60)
    with bench_node() as connection:
        node_share, node_bytes = _idle(seconds)
        connection.topics.create("Idle", _QUEUES)
        with connection.producer() as producer:
            for queue_id in range(_QUEUES):
                producer.send("Idle", b"x", queue_id=queue_id)
        share, used_bytes = _idle(seconds)
    return [
        Row("idle: a node without queues, processor", node_share * 100, "% of a core", _NOTHING),
        Row("idle: a node without queues, memory", node_bytes / _MIB, "MiB", _NOTHING),
        Row(
            "idle: each queue more, processor",
            (share - node_share) * 100 / _QUEUES,
            "% of a core",
            _NOTHING,
        ),
        Row(
            "idle: each queue more, memory",
            (used_bytes - node_bytes) / _MIB / _QUEUES,
            "MiB",
            _NOTHING,
        ),
    ]


def _idle(seconds: int) -> tuple[float, int]:
    """Return the share of a core and the memory that the node's processes use."""
    time.sleep(_SETTLE_S)
    pids = descendants(os.getpid())
    begun, before = time.perf_counter(), sum(map(processor_s, pids))
    time.sleep(seconds)
    used_s = sum(map(processor_s, pids)) - before
    return used_s / (time.perf_counter() - begun), own_memory_bytes(pids)

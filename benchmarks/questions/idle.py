"""What does an idle node cost, and each of its queues?

The cost of a queue is the difference between a node with sixteen and one without any, each queue
with a message in it.
"""

from __future__ import annotations

from rocketray_bench.bench_node import bench_node, idle_use
from rocketray_bench.report import BenchOptions, Row

_QUEUES = 16
_SETTLE_S = 5.0
_MIB = 1024 * 1024
_NOTHING = "an idle process costs 0"


def run(options: BenchOptions) -> list[Row]:
    """Measure a node for a minute without a queue, then for a minute with sixteen."""
    seconds = options.amount(60)
    with bench_node() as connection:
        node_share, node_bytes = idle_use(seconds, _SETTLE_S)
        connection.topics.create("Idle", _QUEUES)
        with connection.producer() as producer:
            for queue_id in range(_QUEUES):
                producer.send("Idle", b"x", queue_id=queue_id)
        share, used_bytes = idle_use(seconds, _SETTLE_S)
    each_share, each_bytes = (share - node_share) / _QUEUES, (used_bytes - node_bytes) / _QUEUES
    return [
        Row("idle: a node without queues, processor", node_share * 100, "% of a core", _NOTHING),
        Row("idle: a node without queues, memory", node_bytes / _MIB, "MiB", _NOTHING),
        Row("idle: each queue more, processor", each_share * 100, "% of a core", _NOTHING),
        Row("idle: each queue more, memory", each_bytes / _MIB, "MiB", _NOTHING),
    ]

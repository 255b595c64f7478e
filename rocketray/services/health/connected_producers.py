"""The processes that send to the queues of a node, from a call to each shard process.

A shard knows a producer by its ring: a process of the shard's machine that has sent to the queue,
and has not closed its producer. What comes by calls has no sender: from producers on other
machines than the queue's, and from Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rocketray.base.names import disk_words
from rocketray.broker.shards.shard_api import QueueProducer
from rocketray.errors import StreamError
from rocketray.messaging.api.node_client import NodeClient, of_disks_there
from rocketray.messaging.api.node_messages import processes_there


@dataclass(frozen=True, slots=True)
class ConnectedProducer:
    """All producers of one process.

    ``program``, ``release``, ``since_ms``: of the process, and when the oldest of its rings was
    opened; "" and 0: unknown. ``queues`` are those that it has a ring to, by topic. ``batches``
    counts what the shards took from these rings, ``stored_ms`` is when the last was stored, 0 if it
    is not known.
    """

    machine: str
    pid: int
    program: str
    release: str
    since_ms: int
    queues: Mapping[str, Sequence[int]]
    batches: int
    stored_ms: int


@dataclass(frozen=True, slots=True)
class ProducerReadings:
    """The processes that send, by machine and process id; and why others may be missing."""

    producers: Sequence[ConnectedProducer]
    unknown: Mapping[str, str]


def read_producers(node: NodeClient, topic: str | None = None) -> ProducerReadings:
    """Ask the shard processes of all topics, or of one.

    Raises:
        TopicNotFoundError: there is no such topic.
    """
    node = of_disks_there(node)
    topics = node.topics.all() if topic is None else {topic: node.topics.get(topic)}
    unknown = {disk_words(disk): "its machine does not answer" for disk in sorted(node.away)}
    found: list[QueueProducer] = []
    for process in processes_there(topics.values(), node.away):
        try:
            found += node.process_calls(process).producers()
        except (StreamError, OSError) as error:
            unknown[f"shard process {process}"] = str(error)
    asked = sorted((each for each in found if each.topic in topics), key=_process)
    producers = [_producer([*rings]) for _, rings in groupby(asked, _process)]
    return ProducerReadings(producers, unknown)


def _process(ring: QueueProducer) -> tuple[str, int]:
    return ring.machine, ring.pid


def _producer(rings: Sequence[QueueProducer]) -> ConnectedProducer:
    first = rings[0]
    queues: dict[str, set[int]] = {}
    for ring in rings:
        queues.setdefault(ring.topic, set()).add(ring.queue_id)
    return ConnectedProducer(
        *(first.machine, first.pid, first.program, first.release),
        min(ring.opened_ms for ring in rings),  # 0 if one is not known: it may be the oldest
        {topic: sorted(queues[topic]) for topic in sorted(queues)},
        sum(ring.batches for ring in rings),
        max(ring.stored_ms for ring in rings),
    )

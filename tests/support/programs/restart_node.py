"""Starts a node twice on one directory: says what the second one found, and what a guest found there.

The guest joins that node from another process. All processes import Ray before rocketray.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import ray
from support.harness.patience import extended, patience

import rocketray as rr
from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.filters.subscription import Subscription
from rocketray.message import Message

ALL = Subscription.tags("*")
ONE_PROCESS = NodeOptions(queues_per_process="shared")


def main(data: str) -> None:
    """Store 100 messages, read 60, stop; start again, let a guest in, and read the rest."""
    assert not ray.is_initialized()
    with Node(data, replace(ONE_PROCESS, ack="disk")) as node, node.connection() as connection:
        connection.topics.ensure("Kept", 1)
        with connection.producer(timeout_s=extended(10)) as producer:
            producer.send_many("Kept", [Message("Kept", b"%d" % n) for n in range(100)])
        with connection.consumer("g", "Kept", ALL) as member:
            (batch,) = member.poll(20.0, 60)
            member.commit("Kept", 0, batch.next_queue_offset)
    with Node(data, ONE_PROCESS) as node, node.connection() as connection:
        connection.topics.ensure("Guests", 1)
        subprocess.run([sys.executable, __file__, data, "guest"], check=True, timeout=patience(100))
        total = connection.shard_statistics("Kept")[0].max_queue_offset
        ack = connection.topics.get("Kept").default_ack
        (group,) = connection.groups.all()
        with connection.consumer("g", "Kept", ALL) as member:
            left = 0
            for _ in range(30):
                left += sum(len(batch) for batch in member.poll(0.5))
                if left == 40:
                    break
    sys.stdout.write(f"{total} messages, offset {group.offsets[0]}, {left} left, ack {ack}\n")


def join(data: str) -> None:
    """Print what a guest sees of the node."""
    assert not ray.is_initialized()
    with rr.Client(data) as client, rr.Producer(data, timeout_s=extended(10)) as producer:
        producer.send("Guests", b"hello", keys=["greeting"])
        (message,) = client.messages.query("Guests", "greeting")
        sys.stdout.write(f"{message.body.decode()} from {message.topic}\n")


if __name__ == "__main__":
    (join if sys.argv[2:] == ["guest"] else main)(sys.argv[1])

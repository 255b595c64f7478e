"""A program that forks beside its node, producer and member: the report of what both processes saw.

Run as ``forking_program.py DATA``, it prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import rocketray as rr
from rocketray.actors.client.connection import Connection
from rocketray.errors import ForkedError


def said(look_up: Callable[[], object]) -> str:
    """Return what a use raises in a fork."""
    try:
        look_up()
    except ForkedError as error:
        return str(error)
    return "nothing"


def main(data: Path) -> None:
    with rr.Node(data) as node, node.connection() as client, rr.Producer(data) as producer:
        client.topics.create("T", 1)
        member = client.consumer("g", "T", rr.Subscription.tags("*"))
        producer.send("T", b"before 0")
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            found = [
                said(lambda: producer.send("T", b"child", timeout_s=4)),
                said(lambda: client.topics),
                said(lambda: member.poll(0.0)),
                said(lambda: node.connection),
                said(lambda: Connection.open(data)),
            ]
            with rr.Producer(data) as own:  # over the node's socket: it needs no Ray
                own.send("T", b"of the fork")
            os.write(writes, json.dumps([os.getpid(), found]).encode())
            sys.exit(5)  # through the blocks, the exit handlers and the destructors
        sent = [producer.send("T", b"parent %d" % number) for number in range(200)]
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        after = producer.send("T", b"after")
        taken: list[bytes] = []
        while len(taken) < 203:
            for batch in member.poll(1.0):
                taken += batch.bodies()
                for message in batch.messages():
                    member.commit("T", 0, message.queue_offset + 1)
        member.close()
        pid, found = json.loads(os.read(reads, 65536))
        told = [each.queue_offset for each in [*sent, after]]
        seen = {
            "pids": [os.getpid(), pid],
            "code": code,
            "found": found,
            "stored": [taken[offset].decode() for offset in told],
            "count": len(taken),
            "of the fork": taken.count(b"of the fork"),
        }
        sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

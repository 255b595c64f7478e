"""A program with a node of its own that loses its Ray: it prints what it hears, and starts another.

Its arguments are the data directory, and which server of its Ray is to die.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rocketray as rr
from rocketray.actors.files.node_lock import node_holder
from rocketray.actors.ray_process.ray_runtime import ray


def main(data: str, server: str) -> None:
    """Print one object."""
    node = rr.Node(data)
    connection, producer, client = node.connection(), rr.Producer(data), rr.Client(data)
    connection.topics.ensure("Trade", 1)
    member = connection.consumer("audit", "Trade", rr.Subscription.tags("*"))
    producer.send("Trade", b"before")
    (process,) = ray._private.worker._global_node.all_processes[server]
    os.kill(process.process.pid, signal.SIGKILL)
    begun = time.monotonic()
    while node_holder(Path(data)) is not None:
        assert time.monotonic() < begun + 60
        time.sleep(0.05)
    given_back_s = time.monotonic() - begun
    begun = time.monotonic()
    said = [
        _error_of(call)
        for call in (
            connection.topics.all,
            lambda: producer.send("Trade", b"after"),
            lambda: client.messages.query("Trade", "key"),
            lambda: client.transactions.overview(10),
            lambda: _poll(member),
            node.connection,
            node.stop,
        )
    ]
    calls_s = time.monotonic() - begun
    with rr.Node(data) as again, again.connection() as its:
        stored = len(its.messages.query_by_time("Trade", 0, 2**62))
    found = {"given back": given_back_s, "calls": calls_s, "said": said, "stored": stored}
    sys.stdout.write(json.dumps(found) + "\n")


def _poll(member: Any) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        member.poll(0.1)


def _error_of(call: Callable[[], Any]) -> str:
    try:
        return f"answered {call()!r}"
    except rr.StreamError as error:
        return f"{type(error).__name__}: {error}"


main(*sys.argv[1:])

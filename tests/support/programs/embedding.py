"""A program with a node of its own that loses its Ray: it prints what it hears, and starts another.

Its arguments are the data directory, and which server of its Ray is to die.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.harness.patience import extended, wait_until

import rocketray as rr
from rocketray.runtime.files.node_lock import node_holder
from rocketray.runtime.ray_process.ray_runtime import ray


def main(data: str, server: str) -> None:
    """Print one object."""
    node = rr.Node(data)
    connection, producer, client = (
        node.connection(),
        rr.Producer(data, timeout_s=extended(10)),
        rr.Client(data),
    )
    connection.topics.ensure("Trade", 1)
    member = connection.consumer("audit", "Trade", rr.Subscription.tags("*"))
    producer.send("Trade", b"before")
    (process,) = ray._private.worker._global_node.all_processes[server]
    os.kill(process.process.pid, signal.SIGKILL)
    wait_until(lambda: node_holder(Path(data)) is None)
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
    with rr.Node(data) as again, again.connection() as its:
        stored = len(its.messages.query_by_time("Trade", 0, 2**62))
    sys.stdout.write(json.dumps({"said": said, "stored": stored}) + "\n")


def _poll(member: Any) -> None:
    while True:
        member.poll(0.1)


def _error_of(call: Callable[[], Any]) -> str:
    try:
        return f"answered {call()!r}"
    except rr.StreamError as error:
        return f"{type(error).__name__}: {error}"


main(*sys.argv[1:])

"""Runs a node, and a guest that joins it from another process; both imported Ray before rocketray."""

from __future__ import annotations

import subprocess
import sys

import ray

import rocketray as rr


def main(data: str, role: str) -> None:
    """Print what the guest sees of the node."""
    assert not ray.is_initialized()
    if role == "guest":
        with rr.Client(data) as client, rr.Producer(data) as producer:
            producer.send("Guests", b"hello", keys=["greeting"])
            (message,) = client.messages.query("Guests", "greeting")
            sys.stdout.write(f"{message.body.decode()} from {message.topic}\n")
        return
    with rr.Node(data) as node, node.connection() as connection:
        connection.topics.ensure("Guests", 1)
        subprocess.run([sys.executable, __file__, data, "guest"], check=True, timeout=100)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

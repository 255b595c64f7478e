"""An app of a cluster on two machines apart, and what became of its messages and its hosts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from support.harness.patience import extended, wait_until

from rocketray.client import Client
from rocketray.errors import StreamError
from rocketray.filters.subscription import Subscription
from rocketray.hosting.host_actors import find_hosts

APP = "parcels"
FILES = {
    "place.py": "import socket\n\n\ndef here():\n    return socket.gethostname()\n",
    "parcels.py": """
import rocketray as rr
from place import here

app = rr.App("parcels")
parcels = app.topic("Parcels", key_type=str, value_type=str, queues=4)
handled = app.topic("Handled", value_type=str, queues=1)
counts = app.Table("counts", default=int)


@app.agent(parcels)
async def count(stream):
    async for event in stream.events():
        counts[event.key] += 1
        await handled.send(value=f"{here()} {event.key} {counts[event.key]}")
""",
}
"""The modules of the app, which counts parcels by their keys in a table."""
_KEYS = [f"key-{number}" for number in range(16)]


def parcels(client: Client) -> dict[str, Any]:
    """Send a parcel of each key to the app; say on which machines they were handled, and the counts.

    Both of its hosts own queues before.
    """
    found = partial(find_hosts, client.cluster, APP)
    wait_until(lambda: all(one.status and one.status.queues for one in found()), found)
    with client.producer(timeout_s=extended(10)) as producer:
        for key in _KEYS:
            producer.send("Parcels", b"a parcel", keys=key, sharding_key=key)
    client.topics.ensure("Handled", 1)  # by the app, with its first message, or before that
    lines = take(client, "clerk", Subscription.tags("*"), len(_KEYS), "Handled")
    said = [line.split() for line in lines]
    return {
        "queues": len({client.messages.query("Parcels", key)[0].queue_id for key in _KEYS}),
        "machines": sorted({machine for machine, _, _ in said}),
        "counts": {key: [int(n) for _, of, n in said if of == key] for key in _KEYS},
    }


def hosts(client: Client, count: int) -> Sequence[tuple[str, str]]:
    """Return the state and the machine of each of *count* hosts of the app, when all run."""

    def running() -> list[tuple[str, str]]:
        found = find_hosts(client.cluster, APP)
        said = [(str(host.state), host.status.machine if host.status else "") for host in found]
        return said if [state for state, _ in said] == ["running"] * count else []

    return wait_until(running, lambda: find_hosts(client.cluster, APP))


def take(
    client: Client, group: str, subscription: Subscription, count: int, topic: str = "Trade"
) -> list[str]:
    """Read *count* messages of a topic as a member of *group*; return their bodies."""
    bodies: list[str] = []
    with client.consumer(group, topic, subscription) as member:

        def are_there() -> bool:
            with suppress(StreamError):  # a queue is unavailable
                for batch in member.poll(1.0):
                    bodies.extend(body.decode() for body in batch.bodies())
                    member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
            return len(bodies) >= count

        wait_until(are_there, lambda: bodies)
    return bodies

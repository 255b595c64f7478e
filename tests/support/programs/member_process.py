"""A group member to be killed: prints what it got, then commits it."""

from __future__ import annotations

import sys

from rocketray.actors.client.connection import Connection
from rocketray.filters.subscription import Subscription


def main(data: str, topic: str, group: str, tags: str) -> None:
    """Read until killed."""
    with Connection.open(data) as connection:
        member = connection.consumer(group, topic, Subscription.tags(tags))
        while True:
            for batch in member.poll(0.5, 200):
                for body in batch.bodies():
                    sys.stdout.write(f"{body.decode()}\n")
                sys.stdout.flush()
                member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)


if __name__ == "__main__":
    main(*sys.argv[1:5])

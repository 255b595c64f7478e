"""A group member to be killed: writes down what it got and when, in whole lines, then commits it."""

from __future__ import annotations

import os
import sys
import time

from rocketray.actors.client import Connection
from rocketray.errors import ShardUnavailableError
from rocketray.filters.subscription import Subscription


def main(data: str, topic: str, group: str, output: str) -> None:
    """Read until killed; a line is time in ns, queue, queue offset and body."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with Connection.open(data) as connection:
        member = connection.consumer(group, topic, Subscription.tags("*"))
        while True:
            try:
                batches = member.poll(0.2, 50)
            except ShardUnavailableError:
                continue
            for batch in batches:
                for message in batch.messages():
                    place = f"{time.monotonic_ns()} {message.queue_id} {message.queue_offset}"
                    os.write(file, f"{place} {message.body.decode()}\n".encode())
                member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)


if __name__ == "__main__":
    main(*sys.argv[1:5])

"""A group member to be killed or stopped: keeps a journal of what it got, then commits it.

On SIGTERM it leaves the group.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from support.journal import Journal

from rocketray.actors.client.connection import Connection
from rocketray.actors.consumers.member import GroupConsumer
from rocketray.errors import ShardUnavailableError
from rocketray.filters.subscription import Subscription

AT_ONCE = 50


def main(data: str, topic: str, group: str, seen: str, *options: str) -> None:
    """Read until told otherwise; *options*: the client's id, tags, and "broadcast" for that."""
    process, tags, mode = options
    is_over = threading.Event()
    journal = Journal(Path(seen), group, f"{process}-{os.getpid()}")
    with Connection.open(data) as connection:
        signal.signal(signal.SIGTERM, lambda *_: is_over.set())  # in place of Ray's
        subscription, is_broadcast = Subscription.tags(tags), mode == "broadcast"
        with connection.consumer(
            group, topic, subscription, client_id=process, broadcast=is_broadcast
        ) as member:
            while not is_over.is_set():
                read(member, journal)


def read(member: GroupConsumer, journal: Journal) -> None:
    """Write down what there is, and commit it."""
    with suppress(ShardUnavailableError):
        for batch in member.poll(0.2, AT_ONCE):
            for message in batch.messages():
                journal.note(message.queue_id, message.queue_offset, int(message.body))
            member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A group member to be killed or stopped: keeps a journal of what it got, then commits it.

On SIGTERM it leaves the group.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from support.harness.patience import AGAIN_S, at_last
from support.models.journal import Journal

from rocketray.client import Client
from rocketray.errors import StreamError
from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers.member import GroupConsumer

AT_ONCE = 50


def main(data: str, topic: str, group: str, seen: str, *options: str) -> None:
    """Read until told otherwise; *options*: the client's id, a filter, and "broadcast" for that.

    The filter is a tag, or SQL92 behind ``sql:``.
    """
    process, wanted, mode = options
    is_over = threading.Event()
    journal = Journal(Path(seen), group, f"{process}-{os.getpid()}")
    journal.begin_stint()
    with at_last(lambda: Client(data)) as connection:
        signal.signal(signal.SIGTERM, lambda *_: is_over.set())  # in place of Ray's
        sql, is_broadcast = wanted.removeprefix("sql:"), mode == "broadcast"
        subscription = Subscription.tags(wanted) if sql == wanted else Subscription.sql(sql)

        def join() -> GroupConsumer:
            return connection.consumer(
                group, topic, subscription, client_id=process, broadcast=is_broadcast
            )

        with at_last(join) as member:
            member.on_revoke = lambda _: journal.begin_stint()
            while not is_over.is_set():
                read(member, journal)


def read(member: GroupConsumer, journal: Journal) -> None:
    """Write down what there is, and commit it."""
    try:
        batches = member.poll(0.2, AT_ONCE)
    except StreamError as error:
        sys.stderr.write(f"a member reads nothing: {error}\n")
        time.sleep(AGAIN_S)
        return
    for batch in batches:
        for message in batch.messages():
            journal.note(message.queue_id, message.queue_offset, int(message.body))
        member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)


if __name__ == "__main__":
    main(*sys.argv[1:])

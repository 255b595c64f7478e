"""A process that writes a store until it is killed, and says on its output what it was promised.

Each line: topic, queue id, first queue offset, first number, count. The messages are those of
``stores.message``, so that the reader can make them again.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

from support.stores import SMALL, message

from rocketray.store.message_store import MessageStore


def main() -> None:
    directory, start, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    store = MessageStore(directory, SMALL, clock_ms=lambda: time.time_ns() // 1_000_000)
    number = start
    for turn in itertools.count(seed):
        topic, queue_id = ("Trade", "Audit")[turn % 2], turn // 2 % 2
        count = 1 + turn * 7 % 13
        batch = [message(number + i, topic, 8 + turn % 100) for i in range(count)]
        first = store.put(batch, queue_id)[0].queue_offset
        print(topic, queue_id, first, number, count, flush=True)  # noqa: T201 - its purpose
        number += count
        if turn % 11 == 0:
            store.flush()
        if turn % 5 == 0:
            store.prepare_next()


if __name__ == "__main__":
    main()

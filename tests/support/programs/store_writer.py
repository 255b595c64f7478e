"""A process that writes stores until it is killed, and says on its output what it was promised.

It is a server, because starting Python costs more than the rest: each line of its input, a
directory, a first number and a seed, makes it fork a child that writes. The child prints its
process id, then a line for each promise: topic, queue id, first queue offset, first number, count,
and how far the log is on disk. When it was killed the server prints "end".

The messages are those of ``stores.message``, so that the reader can make them again.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

from support.nodes.stores import SMALL, message

from rocketray.store.message_store import MessageStore


def write(directory: Path, start: int, seed: int) -> None:
    print(os.getpid(), flush=True)  # noqa: T201 - its purpose
    store = MessageStore(directory, SMALL, clock_ms=lambda: time.time_ns() // 1_000_000)
    number = start
    for turn in itertools.count(seed):
        topic, queue_id = ("Trade", "Audit")[turn % 2], turn // 2 % 2
        count = 1 + turn * 7 % 13
        batch = [message(number + i, topic, 8 + turn % 100) for i in range(count)]
        first = store.put(batch, queue_id)[0].queue_offset
        print(topic, queue_id, first, number, count, flush=True)  # noqa: T201 - the same
        number += count
        if turn % 11 == 0:
            store.flush()
        if turn % 5 == 0:
            store.prepare_next()


def main() -> None:
    with MessageStore(Path(sys.argv[1]), SMALL, clock_ms=lambda: 0) as store:
        store.put([message(0)], 0)  # what is compiled now no child compiles
    for line in sys.stdin:
        directory, start, seed = line.rsplit(maxsplit=2)
        child = os.fork()
        if child == 0:
            write(Path(directory), int(start), int(seed))
        os.waitpid(child, 0)
        print("end", flush=True)  # noqa: T201 - the same


if __name__ == "__main__":
    main()

"""A producer to be killed: sends numbered messages and prints each number once acknowledged."""

from __future__ import annotations

import sys
import time
from collections import deque

from rocketray.actors.client.connection import Connection
from rocketray.messaging.producers.batch import SendResult
from rocketray.messaging.producers.send_future import SendFuture

WINDOW = 500


def main(data: str, topic: str, first: int, count: int, pause_ms: int = 0) -> None:
    """Send *count* messages with the bodies *first*, *first* + 1, …; a pause after each thousand."""
    waiting: deque[tuple[int, SendFuture[SendResult]]] = deque()
    with Connection.open(data) as connection, connection.producer(timeout_s=60.0) as producer:
        for number in range(first, first + count):
            if pause_ms and number % 1000 == 0:
                time.sleep(pause_ms / 1000)
            tag = "even" if number % 2 == 0 else "odd"
            waiting.append((number, producer.send_async(topic, b"%d" % number, tags=tag)))
            while len(waiting) > (WINDOW if number < first + count - 1 else 0):
                done, send = waiting.popleft()
                send.result()
                sys.stdout.write(f"{done}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))

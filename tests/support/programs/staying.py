"""A program that stays while its Ray is lost and comes back: it sends, reads, and notes both.

Its arguments are the place of its node, as JSON, a topic, the file of its notes, and its role:
``near`` uses the shared memory of its machine, ``far`` works as on another machine, and ``app`` reads
with an app. A note is a line: what happened, the number of the message, and the time.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from pathlib import Path
from typing import Any

import rocketray as rr
from rocketray.actors.client.ray_transport import RayTransport
from rocketray.errors import ShardUnavailableError

_SEND_TIMEOUT_S = 2.0
_PAUSE_S = 0.1


class Notes:
    """The lines of one program; for any thread."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()

    def write(self, what: str, number: int) -> None:
        """Add a line."""
        with self._lock:
            self._file.write(f"{what} {number} {time.time()}\n")


def main(place: dict[str, Any], topic: str, notes: Notes, role: str) -> None:
    """Run until it is killed."""
    if role == "far":
        RayTransport.is_local = lambda *_: False  # type: ignore[method-assign]
    if role == "app":
        run_app(place, topic, notes)
        return
    with rr.Client(**place) as client, rr.Producer(**place, timeout_s=_SEND_TIMEOUT_S) as producer:
        client.topics.ensure(topic, 1, queues_per_process="shared")
        threading.Thread(target=keep_reading, args=(client, topic, notes), daemon=True).start()
        number = 0
        while True:
            try:
                producer.send(topic, b"%d" % number)
            except ShardUnavailableError:
                notes.write("unsure", number)
            else:
                notes.write("sent", number)
            number += 1
            time.sleep(_PAUSE_S)


def keep_reading(client: rr.Client, topic: str, notes: Notes) -> None:
    """Be one member until the process ends."""
    with client.consumer("readers", topic, rr.Subscription.tags("*"), start="earliest") as member:
        while True:
            for batch in member.poll(1.0):
                for body in batch.bodies():
                    notes.write("got", int(body))
                member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)


def run_app(place: dict[str, Any], topic: str, notes: Notes) -> None:
    """Read with one agent."""
    app = rr.App("staying", **place)

    @app.agent(app.topic(topic, value_type=bytes), name="reader")
    async def read(bodies: Any) -> None:
        async for body in bodies:
            notes.write("got", int(body))

    app.main()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    main(json.loads(sys.argv[1]), sys.argv[2], Notes(Path(sys.argv[3])), sys.argv[4])

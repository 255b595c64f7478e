"""The counts of an agent, in a file of its own, so that no message ever counts twice.

Delivery is at least once: after a crash some messages are redelivered. So the tally stores, with
its counts, its position in each queue, and skips messages before it. It is saved before the agent
asks for more messages, so before the group's offset advances, and no message is left out either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson
import pyarrow as pa

from rocketray.base.whole_file import replace_file
from rocketray.runtime.clock import system_clock_ms


@dataclass(slots=True)
class Delays:
    """The flights to one destination. The sum is in minutes, of those whose delay is known."""

    flights: int = 0
    known: int = 0
    sum_minutes: int = 0

    @property
    def mean_minutes(self) -> float | None:
        """The mean delay; None when none is known."""
        return self.sum_minutes / self.known if self.known else None

    def add(self, minutes: int | None) -> None:
        """Count one flight."""
        self.flights += 1
        if minutes is not None:
            self.known += 1
            self.sum_minutes += minutes


@dataclass(slots=True)
class Tally:
    """Counts of one agent. ``next_offsets`` is the next queue offset to count, by queue."""

    matched: int = 0
    last_ms: int = 0
    next_offsets: dict[str, int] = field(default_factory=dict)
    delays: dict[str, Delays] = field(default_factory=dict)

    def take(self, queue_id: int, queue_offset: int) -> bool:
        """Count a message; return False when it was counted before."""
        queue = str(queue_id)
        if queue_offset < self.next_offsets.get(queue, 0):
            return False
        self.next_offsets[queue] = queue_offset + 1
        self.matched += 1
        return True

    def add_delay(self, destination: str, minutes: int | None) -> None:
        """Count a flight to *destination*; None: its delay is not known."""
        self.delays.setdefault(destination, Delays()).add(minutes)

    def fresh_bodies(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Count the messages of *batch*; yield the bodies of those that were not counted before."""
        names = ("queueId", "queueOffset", "body")
        for queue_id, offset, body in zip(
            *(batch[name].to_pylist() for name in names), strict=True
        ):
            if self.take(queue_id, offset):
                yield body


def load_tally(path: Path) -> Tally:
    """Return the tally in *path*; an empty one when there is no such file."""
    try:
        value = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return Tally()
    delays = {dest: Delays(**numbers) for dest, numbers in value.pop("delays").items()}
    return Tally(**value, delays=delays)


def save_tally(tally: Tally, path: Path) -> None:
    """Replace *path* atomically; a reader finds a whole tally, also if this process has ended."""
    tally.last_ms = system_clock_ms()
    # Without a sync: the demo survives the end of its processes, and not a power failure.
    replace_file(path, orjson.dumps(asdict(tally)), sync=False)

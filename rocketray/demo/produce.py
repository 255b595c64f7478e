"""Sending the rows: Arrow tables through one producer, and after a crash only what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rocketray.actors.client import Connection
from rocketray.actors.layout import shard_directory
from rocketray.store.reader import QueueReader

from .data import TOPIC, message_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Produced", "produce", "queue_ends"]

_CHUNK_ROWS = 16_384  # one batch of 4096 rows for each of the four queues


@dataclass(frozen=True, slots=True)
class Produced:
    """How many messages were sent by this process, and how long that took."""

    count: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Messages per second; 0 when there was nothing to send."""
        return self.count / self.seconds if self.count else 0.0


def queue_ends(connection: Connection) -> list[int]:
    """The next queue offset of each queue of the topic."""
    return [shard.max_queue_offset for shard in connection.shard_statistics(TOPIC)]


def produce(connection: Connection, frame: pd.DataFrame, show: Callable[[str], None]) -> Produced:
    """Send the rows of *frame* that the topic does not have; on return all are acknowledged."""
    stored = _stored_bodies(connection)
    count, begun = 0, time.perf_counter()
    with connection.producer() as producer:
        for start in range(0, len(frame), _CHUNK_ROWS):
            table = message_table(frame.iloc[start : start + _CHUNK_ROWS])
            table = _missing(table, stored) if stored else table
            if table.num_rows:
                count += producer.send_many(
                    TOPIC, table, property_columns=table.column_names[3:]
                ).count
            show(f"sent {count:,} messages")
    return Produced(count, time.perf_counter() - begun)


def _missing(table: pa.Table, stored: set[bytes]) -> pa.Table:
    return table.filter(pa.array([body not in stored for body in table["body"].to_pylist()]))


def _stored_bodies(connection: Connection) -> set[bytes]:
    """The bodies in the topic; no two rows have the same."""
    bodies: set[bytes] = set()
    for queue_id, end in enumerate(queue_ends(connection)):
        if end:
            directory = shard_directory(connection.data, TOPIC, queue_id)
            reader = QueueReader(directory, TOPIC, queue_id)
            bodies.update(reader.bodies(reader.entries(0, end)))
            reader.close()
    return bodies

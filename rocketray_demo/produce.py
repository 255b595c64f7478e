"""Sending the rows: Arrow tables through one producer, and after a crash only the missing ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rocketray.actors.client.connected_client import ConnectedClient
from rocketray.runtime.files.paths import shard_directory
from rocketray.store.reading.reader import QueueReader

from .data import PROPERTIES, TOPIC, message_table

if TYPE_CHECKING:
    import pandas as pd

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


def queue_ends(connection: ConnectedClient) -> list[int]:
    """Return the next queue offset of each queue of the topic."""
    return [shard.max_queue_offset for shard in connection.shard_statistics(TOPIC)]


def prepare(frame: pd.DataFrame) -> list[pa.Table]:
    """Return the rows of *frame* as messages, in chunks; in a thread while the rest starts."""
    starts = range(0, len(frame), _CHUNK_ROWS)
    return [message_table(frame.iloc[start : start + _CHUNK_ROWS]) for start in starts]


def produce(
    connection: ConnectedClient, tables: Sequence[pa.Table], show: Callable[[str], None]
) -> Produced:
    """Send the messages that the topic does not have; on return all are acknowledged."""
    missing = _missing(tables, _stored_bodies(connection))
    count, begun = 0, time.perf_counter()
    with connection.producer() as producer:
        for table in missing:
            count += len(producer.send_many(TOPIC, table, property_columns=PROPERTIES))
            show(f"sent {count:,} messages")
    return Produced(count, time.perf_counter() - begun)


def _missing(tables: Sequence[pa.Table], stored: set[bytes]) -> list[pa.Table]:
    if not stored:
        return list(tables)
    masks = [[body not in stored for body in table["body"].to_pylist()] for table in tables]
    return [
        table.filter(pa.array(mask)) for table, mask in zip(tables, masks, strict=True) if any(mask)
    ]


def _stored_bodies(connection: ConnectedClient) -> set[bytes]:
    """Return the bodies in the topic; no two rows have the same."""
    bodies: set[bytes] = set()
    for queue_id, end in enumerate(queue_ends(connection)):
        if end:
            directory = shard_directory(connection.data, TOPIC, queue_id)
            reader = QueueReader(directory, TOPIC, queue_id)
            bodies.update(reader.bodies(reader.entries(0, end)))
            reader.close()
    return bodies

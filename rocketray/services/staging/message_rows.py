"""Rows of Arrow batches as packed batches of messages, each for one queue.

Columns: those of ``MeasuredTable`` (body, tags, keys, properties), and

    topic          the topic of the row, if all are not for one
    queueId        its queue; if null
    shardingKey    the key whose hash chooses the queue, as a producer's; if null, a batch of rows
                   goes to each queue in turn
    deliverAt      the time of its delivery: until then it waits, as a producer's delayed message

The rows of a task for one queue keep their order.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.base.delay import DELAY_MAX_MS, TIMER_PRECISION_MS, TIMER_QUEUE_ID
from rocketray.base.marks import REAL_QUEUE_ID, REAL_TOPIC, TIMER_DELIVER_MS, TIMER_OUT_MS
from rocketray.base.message_time import LOOK_LIKE_SECONDS
from rocketray.base.names import check_topic
from rocketray.base.system_topics import TIMER_TOPIC, check_open_topic
from rocketray.errors import InvalidMessageError
from rocketray.kernels.hashing import hash_spans
from rocketray.message import SHARDING_KEY
from rocketray.messaging.producers.parts import cut_table
from rocketray.store.batches.encoded_batch import packed
from rocketray.store.batches.encoded_table import MeasuredTable
from rocketray.store.batches.taken_on import keyed_column
from rocketray.store.batches.text_columns import text_column
from rocketray.store.formats.unique_id import UniqueIdGenerator

MESSAGE_COLUMNS = ("body", "tags", "keys", "properties")
_HOST = "127.0.0.1"  # in unique keys, whose random number tells tasks apart
_Int64s = npt.NDArray[np.int64]


class RowFrame(NamedTuple):
    """The packed batch of some rows, and the queue that they are for."""

    topic: str
    queue_id: int
    content: memoryview
    messages: int


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows for one queue, or if that is -1 for any: with the properties of their columns."""

    table: Any
    queue_id: int
    property_columns: tuple[str, ...]
    is_waiting: bool


class MessageRows:
    """Makes messages of rows; for one task."""

    def __init__(
        self,
        queues_of: Callable[[str], int],
        topic: str | None = None,
        *,
        first_queue: int = 0,
        clock_ms: Callable[[], int],
    ) -> None:
        """Take *queues_of*, which returns the number of queues of a topic, or raises.

        *topic* is that of all rows; without it they have the column. The first batch without a
        queue goes to *first_queue*.
        """
        self._queues_of = queues_of
        self._topic = topic
        self._turn = first_queue
        self._clock_ms = clock_ms
        self._ids = UniqueIdGenerator(
            _HOST, os.getpid(), int(uuid.uuid4().fields[0]), clock_ms=clock_ms
        )

    def frames(self, batch: pa.RecordBatch) -> Iterator[RowFrame]:
        """Yield the rows of *batch* as messages.

        Raises:
            InvalidMessageError, MessageTooLargeError: a row is no message of its topic.
            ConfigError: a column is missing, or has a type that does not fit.
            TopicNotFoundError: as *queues_of*.
        """
        for topic, rows in self._by_topic(batch):
            check_open_topic(check_topic(topic))
            queues = self._queues_of(topic)
            for some in self._by_queue(topic, rows, queues):
                for table in cut_table(some.table):
                    queue_id = some.queue_id
                    if queue_id < 0:
                        queue_id = self._next_queue(queues)
                    place = (TIMER_TOPIC, TIMER_QUEUE_ID) if some.is_waiting else (topic, queue_id)
                    yield self._packed(*place, table, some.property_columns)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            yield self._topic, batch
            return
        names = batch.column("topic").dictionary_encode()
        if names.null_count:
            row = int(np.flatnonzero(names.is_null().to_numpy(zero_copy_only=False))[0])
            raise InvalidMessageError(
                f"row {row}: the topic is null; fill it, or name one with the option topic"
            )
        numbers = names.indices.to_numpy()
        for number, name in enumerate(names.dictionary.to_pylist()):
            yield name, _chosen(batch, np.flatnonzero(numbers == number))

    def _by_queue(self, topic: str, batch: pa.RecordBatch, queues: int) -> Iterator[_Rows]:
        """Yield the rows by queue, those that wait for their time apart from the others."""
        names, now_ms = batch.schema.names, self._clock_ms()
        content = batch.select([name for name in MESSAGE_COLUMNS if name in names])
        properties: tuple[str, ...] = ()
        if "shardingKey" in names and batch.column("shardingKey").null_count < len(batch):
            content = _keyed(content, batch.column("shardingKey"))
            properties = (SHARDING_KEY,)
        chosen = _chosen_queues(batch, queues)
        due_ms = _due_times(batch, now_ms)
        if chosen is None and due_ms is None:
            yield _Rows(content, -1, properties, is_waiting=False)
            return
        chosen = np.full(len(batch), -1, np.int64) if chosen is None else chosen
        due_ms = np.zeros(len(batch), np.int64) if due_ms is None else due_ms
        for is_waiting in (False, True):
            rows = np.flatnonzero((due_ms > 0) == is_waiting)
            for queue_id in np.unique(chosen[rows]).tolist():
                those = rows[chosen[rows] == queue_id]
                table, columns = _chosen(content, those), properties
                if is_waiting:
                    real = self._next_queue(queues) if queue_id < 0 else queue_id
                    table, columns = _waiting(table, columns, topic, real, due_ms[those])
                yield _Rows(table, queue_id, columns, is_waiting)

    def _packed(self, topic: str, queue_id: int, table: Any, columns: tuple[str, ...]) -> RowFrame:
        count = len(table)
        measured = MeasuredTable(
            topic,
            table,
            property_columns=columns,
            born_host=(_HOST, 0),
            born_timestamp_ms=self._clock_ms(),
            unique_ids=self._ids.ids_from(self._ids.take_numbers(count), count),
        )
        return RowFrame(topic, queue_id, memoryview(packed(measured)), count)

    def _next_queue(self, queues: int) -> int:
        self._turn += 1
        return (self._turn - 1) % queues


def _chosen(batch: pa.RecordBatch, rows: npt.NDArray[Any]) -> pa.RecordBatch:
    return batch if len(rows) == len(batch) else batch.take(pa.array(rows))


def _keyed(content: pa.RecordBatch, sharding_keys: Any) -> pa.RecordBatch:
    """Return the rows with the sharding keys, and without those that they were read with."""
    number = content.schema.get_field_index("properties")
    if number >= 0 and pa.types.is_map(content.schema.types[number]):
        kept = keyed_column(content.column(number), sharding_keys)
        content = content.set_column(number, "properties", kept)
    return content.append_column(SHARDING_KEY, sharding_keys)


def _chosen_queues(batch: pa.RecordBatch, queues: int) -> _Int64s | None:
    """Return the queue of each row, -1 for any; None if no row has one."""
    names, chosen = batch.schema.names, None
    if "shardingKey" in names:
        keys = text_column("shardingKey", batch.column("shardingKey"))
        hashes = np.empty(len(batch), np.int32)
        hash_spans(*keys.arrays(), 0, hashes)
        chosen = np.where(keys.sizes >= 0, hashes.astype(np.int64) % queues, -1)
    if "queueId" in names:
        given = batch.column("queueId").cast(pa.int64()).fill_null(-1).to_numpy()
        is_null = batch.column("queueId").is_null().to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(~is_null & ((given < 0) | (given >= queues)))
        if len(bad):
            raise InvalidMessageError(
                f"row {bad[0]}: queueId is {given[bad[0]]}, and the topic has queues 0 to "
                f"{queues - 1}; leave it null to have one chosen"
            )
        chosen = np.where(is_null, -1 if chosen is None else chosen, given)
    return None if chosen is None or (chosen < 0).all() else chosen


def _due_times(batch: pa.RecordBatch, now_ms: int) -> _Int64s | None:
    """Return when each row is due, in ms since 1970, 0 for at once; None if all are."""
    if "deliverAt" not in batch.schema.names:
        return None
    times = batch.column("deliverAt").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    due_ms = -(-times.fill_null(0).to_numpy() // 1000)  # rounded up: never too early
    late = np.flatnonzero(due_ms - now_ms > DELAY_MAX_MS)
    if len(late):
        raise InvalidMessageError(
            f"row {late[0]}: deliverAt is more than {DELAY_MAX_MS // 86_400_000} days ahead; keep "
            "a message that is due later in a table until then"
        )
    is_second = (due_ms >= LOOK_LIKE_SECONDS.start) & (due_ms < LOOK_LIKE_SECONDS.stop)
    if is_second.any():
        row = int(is_second.argmax())
        raise InvalidMessageError(
            f"row {row}: deliverAt is in the years 1970 to 1973 and looks like {due_ms[row]} seconds; "
            "make the timestamp of seconds, as timestamp_seconds() does"
        )
    due_ms = np.where(due_ms <= now_ms, 0, due_ms)
    return due_ms if due_ms.any() else None


def _waiting(
    table: Any, columns: tuple[str, ...], topic: str, queue_id: int, due_ms: _Int64s
) -> tuple[Any, tuple[str, ...]]:
    """Return rows in the form in which delayed messages wait (delay.py)."""
    # RocketMQ rounds down to its precision, and a multiple of that to the one before.
    ticks = (due_ms - 1) // TIMER_PRECISION_MS * TIMER_PRECISION_MS
    added = {
        TIMER_DELIVER_MS: pa.array(due_ms).cast(pa.string()),
        TIMER_OUT_MS: pa.array(ticks).cast(pa.string()),
        REAL_TOPIC: pa.repeat(topic, len(table)),
        REAL_QUEUE_ID: pa.repeat(str(queue_id), len(table)),
    }
    for name, values in added.items():
        table = table.append_column(name, values)
    return table, (*columns, *added)

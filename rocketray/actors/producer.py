"""Producers: collect messages into batches, hand them to the shards, and tell when they are stored.

A message goes at once when none went for a while (``lane.collecting_s``); one that comes sooner is
collected, and goes with the first that comes later, when ``BATCH_MAX`` are there, when somebody
waits for one of them, or after ``LINGER_S``.

Invariants
  1. A result is given out after the shard acknowledged the batch, and names what was reached.
  2. Memory is bounded: a lane holds one batch that is not yet handed over, and the ring; then
     ``send`` blocks, and raises :class:`ShardUnavailableError` after ``timeout_s``.
  3. Messages of one thread to one queue are stored in the order they were sent.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Self

import pyarrow as pa

from rocketray.errors import ConfigError, InvalidMessageError, StoreError, StreamError
from rocketray.hashing import java_hash_code
from rocketray.message import SHARDING_KEY, ForwardedMessage, Message
from rocketray.names import check_topic
from rocketray.store.compression import COMPRESS_OVER_BYTES, Compression, CompressionKind
from rocketray.store.encoded_batch import RecordOptions, encode_table, pack_batch
from rocketray.store.message_columns import RecordForm
from rocketray.store.message_id import UniqueIdGenerator

from .batch import AckMode, Batch, BatchResult, SendResult, SendResults, durability_of
from .catalog import TopicConfig
from .clock import system_clock_ms
from .lane import Lane, Shards, collecting_s, unavailable
from .pending_send import PendingSend

__all__ = ["AckMode", "PendingSend", "Producer", "SendResult", "SendResults"]

BATCH_MAX = 1024
TABLE_BATCH_ROWS = 4096
LINGER_S = 0.002
_ROOM_WAIT_S = 0.01


class Producer:
    """Sends messages to the topics of a cluster; safe to use from several threads."""

    def __init__(
        self,
        shards: Shards,
        *,
        ack: AckMode = "memory",
        timeout_s: float = 10.0,
        born_host: tuple[str, int] = ("127.0.0.1", 0),
        compression: CompressionKind | None = None,
        compress_over: int = COMPRESS_OVER_BYTES,
    ) -> None:
        """With *compression*, bodies of *compress_over* bytes and more are stored compressed."""
        self._shards = shards
        self._default_ack: AckMode = ack
        self._timeout_s = timeout_s
        self._born_host = born_host
        self._options = RecordOptions(compression and Compression(compression, compress_over))
        self._ids = UniqueIdGenerator(
            born_host[0], os.getpid(), int(uuid.uuid4().fields[0]), clock_ms=system_clock_ms
        )
        self._topics: dict[str, TopicConfig] = {}
        self._forms: dict[str, RecordForm] = {}
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._turn = itertools.count()
        self._lock = threading.RLock()
        self._collecting = threading.Event()
        self._closed = threading.Event()
        self._linger = threading.Thread(target=self._flush_lingering, daemon=True, name="linger")
        self._linger.start()

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        ack: AckMode | None = None,
    ) -> SendResult:
        """Store one message and return where; blocks until the *ack* is reached.

        Messages with one ``sharding_key`` go to one queue, in order; others to each in turn.
        """
        with self._lock:
            lane, batch = self._collect(topic, queue_id, sharding_key, ack)
            index = batch.columns.add(body, tags, keys, properties)
            self._hand_over(lane)
        lane.wait(batch, self._timeout_s)
        self.settle(lane, batch, 0)
        return batch.result(index)

    def send_async(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        ack: AckMode | None = None,
    ) -> PendingSend:
        """Send one message and return at once; ask the result for where it was stored."""
        with self._lock:
            lane, batch = self._collect(topic, queue_id, sharding_key, ack)
            index = batch.columns.add(body, tags, keys, properties)
            self._hand_over_in_time(lane, index)
        return PendingSend(self.settle, lane, batch, index)

    def send_message_async(
        self,
        message: Message,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        ack: AckMode | None = None,
    ) -> PendingSend:
        """As :meth:`send_async`, for a message that is already made."""
        with self._lock:
            lane, batch = self._collect(message.topic, queue_id, sharding_key, ack)
            index = batch.columns.add_message(message)
            self._hand_over_in_time(lane, index)
        return PendingSend(self.settle, lane, batch, index)

    def send_messages(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        queue_id: int | None = None,
        ack: AckMode | None = None,
    ) -> SendResults:
        """Store messages of one topic in batches; the results are in the messages' order.

        Without *queue_id*, messages with the property ``__SHARDINGKEY`` go to the queue of that
        key, and of the others each batch to the next queue in turn.
        """
        durability = durability_of(ack or self._default_ack)
        strangers = [message for message in messages if message.topic != topic]
        if strangers:
            raise InvalidMessageError(
                f"a message for topic {strangers[0].topic!r} was sent to topic {topic!r}"
            )
        placed: list[tuple[Lane, Batch, Sequence[int]]] = []
        for start in range(0, len(messages), BATCH_MAX):
            numbers = range(start, min(start + BATCH_MAX, len(messages)))
            for chosen, part in self._by_queue(topic, messages, numbers, queue_id):
                with self._lock:
                    lane = self._lane(topic, chosen, None)
                    self._hand_over(lane)  # what was sent before goes first
                    lane.collecting = batch = Batch(lane, lane.form, durability)
                    try:
                        batch.columns.extend([messages[number] for number in part])
                    except StreamError as error:
                        lane.collecting, batch.failure = None, error
                    self._hand_over(lane)
                placed.append((lane, batch, part))
        for lane, batch, _ in placed:
            self.settle(lane, batch, None)
            batch.check()
        return SendResults([(batch, part) for _, batch, part in placed], len(messages))

    def _by_queue(
        self, topic: str, messages: Sequence[Message], numbers: range, queue_id: int | None
    ) -> list[tuple[int, Sequence[int]]]:
        """The numbers of the messages that go to each queue."""
        if queue_id is not None:
            return [(queue_id, numbers)]
        queues = self._topic(topic).queues
        turn = next(self._turn) % queues
        given = [messages[number].properties for number in numbers]
        if not any(given):
            return [(turn, numbers)]
        chosen: dict[int, list[int]] = {}
        for number, properties in zip(numbers, given, strict=True):
            key = properties.get(SHARDING_KEY)
            queue = turn if key is None else java_hash_code(key) % queues
            chosen.setdefault(queue, []).append(number)
        return list(chosen.items())

    def send_many(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch,
        *,
        property_columns: Sequence[str] = (),
        ack: AckMode | None = None,
    ) -> BatchResult:
        """Store the rows of an Arrow table, in batches over the topic's queues in turn.

        Columns: ``body`` (binary or string), and if there are ``tags``, ``keys`` (text, or a list
        of texts), ``properties`` (a map). *property_columns* become properties, absent where null.
        """
        durability = durability_of(ack or self._default_ack)
        counts: dict[int, int] = {}
        placed: list[tuple[Lane, Batch]] = []
        for start in range(0, table.num_rows, TABLE_BATCH_ROWS):
            rows = table.slice(start, TABLE_BATCH_ROWS)
            encoded = encode_table(
                topic,
                rows,
                property_columns=property_columns,
                born_host=self._born_host,
                born_timestamp_ms=system_clock_ms(),
                unique_ids=self._ids.next_ids(rows.num_rows),
                options=self._options,
            )
            with self._lock:
                lane = self._lane(topic, None, None)
                self._hand_over(lane)
                batch = Batch(lane, lane.form, durability)
                self._write(lane, batch, pack_batch(encoded))
            placed.append((lane, batch))
            counts[lane.queue_id] = counts.get(lane.queue_id, 0) + rows.num_rows
        for lane, batch in placed:
            self.settle(lane, batch, None)
            batch.check()
        return BatchResult(table.num_rows, counts)

    def forward(
        self,
        topic: str,
        queue_id: int,
        messages: Sequence[ForwardedMessage],
        *,
        ack: AckMode | None = None,
    ) -> SendResults:
        """Store messages again, as one batch: all of them are stored, or none."""
        with self._lock:
            lane = self._lane(topic, queue_id, None)
            self._hand_over(lane)
            batch = Batch(lane, lane.form, durability_of(ack or self._default_ack))
            self._write(lane, batch, batch.pack_forwarded(messages))
        self.settle(lane, batch, None)
        batch.check()
        return SendResults([(batch, range(len(messages)))], len(messages))

    def choose_queue(
        self, topic: str, queue_id: int | None = None, sharding_key: str | None = None
    ) -> int:
        """The queue that a message goes to: the one that is named, the key's, or the next in turn.

        Raises:
            TopicNotFoundError, ConfigError: there is no such topic, or it has no such queue.
        """
        config = self._topic(topic)
        if queue_id is None:
            turn = next(self._turn) if sharding_key is None else java_hash_code(sharding_key)
            return turn % config.queues
        if not 0 <= queue_id < config.queues:
            raise ConfigError(
                f"topic {topic!r} has the queues 0 to {config.queues - 1}, not {queue_id}"
            )
        return queue_id

    def new_unique_key(self) -> str:
        """An id that no other message has."""
        return bytes(self._ids.next_ids(1)).decode()

    def flush(self) -> None:
        """Hand over and wait for everything that was sent; results tell what was refused."""
        with self._lock:
            lanes = list(self._lanes.values())
            for lane in lanes:
                self._hand_over(lane)
            waiting = [(lane, lane.in_flight[-1]) for lane in lanes if lane.in_flight]
        for lane, batch in waiting:
            self.settle(lane, batch, None)

    def close(self) -> None:
        """Flush, and give the rings back."""
        if self._closed.is_set():
            return
        self.flush()
        self._closed.set()
        self._collecting.set()
        self._linger.join()
        for lane in self._lanes.values():
            lane.close()

    def __enter__(self) -> Self:
        """The producer itself; closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def settle(self, lane: Lane, batch: Batch, timeout_s: float | None) -> None:
        """Wait until the shard said what became of a batch."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while True:
            with self._lock:
                if batch is lane.collecting:
                    self._hand_over(lane)
                lane.harvest()
                if batch.settled:
                    return
            left = deadline - time.monotonic()
            if left <= 0:
                raise unavailable(lane)
            lane.wait(batch, left)

    def _collect(
        self, topic: str, queue_id: int | None, sharding_key: str | None, ack: AckMode | None
    ) -> tuple[Lane, Batch]:
        """The batch that a message goes into; called with the lock held."""
        durability = durability_of(ack or self._default_ack)
        lane = self._lane(topic, queue_id, sharding_key)
        batch = lane.collecting
        if batch is not None and batch.durability is not durability:
            self._hand_over(lane)
            batch = None
        if batch is None:
            batch = lane.collecting = Batch(lane, lane.form, durability)
        return lane, batch

    def _hand_over_in_time(self, lane: Lane, index: int) -> None:
        """Hand over what was collected, if it is time; *index* is the newest message's number."""
        begun = time.monotonic()
        if index + 1 >= BATCH_MAX or begun >= lane.next_hand_over:
            self._hand_over(lane)
            ended = time.monotonic()
            lane.next_hand_over = ended + collecting_s(ended - begun)
        elif not self._collecting.is_set():
            self._collecting.set()

    def _topic(self, name: str) -> TopicConfig:
        config = self._topics.get(name)
        if config is None:
            config = self._topics[name] = self._shards.topic(check_topic(name))
        return config

    def _lane(self, topic: str, queue_id: int | None, sharding_key: str | None) -> Lane:
        if self._closed.is_set():
            raise StoreError("the producer is closed; make a new one")
        queue_id = self.choose_queue(topic, queue_id, sharding_key)
        lane = self._lanes.get((topic, queue_id))
        if lane is None:
            lane = Lane(self._shards, self._topic(topic), queue_id, self._form(topic))
            self._lanes[topic, queue_id] = lane
        return lane

    def _form(self, topic: str) -> RecordForm:
        form = self._forms.get(topic)
        if form is None:
            form = self._forms[topic] = RecordForm(
                topic,
                born_host=self._born_host,
                id_prefix=self._ids.prefix,
                compression=self._options.compression,
            )
        return form

    def _hand_over(self, lane: Lane) -> None:
        """Pack what was collected and write it to the ring; called with the lock held."""
        batch = lane.collecting
        if batch is None or not batch.columns:
            return
        lane.collecting = None
        try:
            payload = batch.pack(self._ids.take(len(batch.columns)), system_clock_ms())
            self._write(lane, batch, payload.data)
        except StreamError as error:  # whoever asks for a result of the batch gets it
            batch.failure = error

    def _write(self, lane: Lane, batch: Batch, payload: bytes | memoryview) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not lane.try_send(memoryview(payload), batch):
            if time.monotonic() >= deadline:
                raise unavailable(lane)
            lane.wait_for_room(_ROOM_WAIT_S)

    def _flush_lingering(self) -> None:
        while not self._closed.is_set():
            self._collecting.wait()
            time.sleep(LINGER_S)
            self._collecting.clear()
            with self._lock:
                for lane in list(self._lanes.values()):
                    self._hand_over(lane)

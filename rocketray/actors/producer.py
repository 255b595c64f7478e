"""Producers: encode batches, hand them to the shards, and tell when they are stored.

On the shard's node a batch goes through a ring in shared memory; from elsewhere, and when it is
too large for the ring, through a call. Either way it is a batch: what is sent while an earlier
batch is under way is collected, and goes when that one is acknowledged, when ``BATCH_MAX`` are
there, when somebody waits for one of them, or after ``LINGER_S``.

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
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, Self

import pyarrow as pa

from rocketray.errors import (
    ConfigError,
    InvalidMessageError,
    ShardFencedError,
    ShardUnavailableError,
    StoreError,
    StoreFullError,
    StreamError,
)
from rocketray.hashing import java_hash_code
from rocketray.message import Message
from rocketray.store.encoded_batch import EncodedBatch, encode_messages, encode_table, pack_batch
from rocketray.store.message_id import UniqueIdGenerator, encode_offset_id

from .catalog import TopicConfig
from .clock import system_clock_ms
from .layout import control_path, producer_rings_directory
from .ring import Ack, AppendStatus, Durability, ProducerRing, ring_path
from .watermark import ControlPage, Line

__all__ = [
    "SHARDING_KEY",
    "AckMode",
    "BatchResult",
    "PendingSend",
    "Producer",
    "SendResult",
    "ShardGate",
    "Shards",
]

AckMode = Literal["memory", "disk"]
BATCH_MAX = 1024
TABLE_BATCH_ROWS = 4096
LINGER_S = 0.002
_DURABILITY = {"memory": Durability.MEMORY, "disk": Durability.DISK}
_ROOM_WAIT_S = 0.01
SHARDING_KEY = "__SHARDINGKEY"  # RocketMQ's property of messages that are ordered by a key


class ShardGate(Protocol):
    """The calls of one shard that a producer needs."""

    def attach(self, path: str) -> None:
        """Let the shard read a ring."""

    def append(self, payload: bytes, durability: int) -> Ack:
        """Store a batch and say what became of it."""


class Shards(Protocol):
    """The way from a producer to the shards."""

    @property
    def data(self) -> Path:
        """The node's data directory."""

    def topic(self, name: str) -> TopicConfig:
        """A topic; raises :class:`TopicNotFoundError`."""

    def gate(self, topic: str, queue_id: int) -> ShardGate:
        """The shard's calls."""

    def is_local(self, topic: str, queue_id: int) -> bool:
        """Whether the shard's memory can be reached from this process."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """One stored message. ``message_id`` is the unique key that the producer gave it."""

    message_id: str
    offset_message_id: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A stored table: how many messages went to each queue."""

    count: int
    queues: Mapping[int, int]


class _Batch:
    """Messages that travel together, and what became of them."""

    __slots__ = ("ack", "durability", "failure", "ids", "lane", "messages", "sequence", "starts")

    def __init__(self, lane: _Lane, durability: Durability) -> None:
        self.lane = lane
        self.durability = durability
        self.messages: list[Message] = []
        self.ids: list[str] = []
        self.starts: list[int] = []  # of each record, in bytes from the first
        self.sequence = 0  # 0: not handed over
        self.ack: Ack | None = None
        self.failure: Exception | None = None

    @property
    def settled(self) -> bool:
        return self.ack is not None or self.failure is not None

    def check(self) -> Ack:
        """The outcome; raises what kept the batch from being stored."""
        if self.failure is not None:
            raise self.failure
        assert self.ack is not None
        _check(self.ack, self.lane.name)
        return self.ack

    def result(self, index: int) -> SendResult:
        ack = self.check()
        physical_offset = ack.first_physical_offset + self.starts[index]
        return SendResult(
            self.ids[index],
            encode_offset_id(self.lane.store_host, physical_offset),
            self.lane.queue_id,
            ack.first_queue_offset + index,
        )


class PendingSend:
    """A message that was sent and is not yet known to be stored."""

    __slots__ = ("_batch", "_index", "_producer")

    def __init__(self, producer: Producer, batch: _Batch, index: int) -> None:
        self._producer = producer
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether :meth:`result` would return at once."""
        return self._batch.settled

    def result(self, timeout_s: float | None = None) -> SendResult:
        """Wait until the message is stored.

        Raises:
            ShardUnavailableError: it is not yet known; the message may still be stored later.
            StreamError: the shard refused it, and nothing was stored.
        """
        if not self._batch.settled:
            self._producer.settle(self._batch, timeout_s)
        return self._batch.result(self._index)


class _Lane:
    """The way from this producer to one queue."""

    def __init__(self, shards: Shards, topic: TopicConfig, queue_id: int) -> None:
        self.name = f"{topic.name}/{queue_id}"
        self.topic = topic.name
        self.queue_id = queue_id
        self.store_host = topic.store_hosts[queue_id]
        self.gate = shards.gate(topic.name, queue_id)
        self.in_flight: deque[_Batch] = deque()
        self.collecting: _Batch | None = None
        self._doorbell: Line | None = None
        self.ring: ProducerRing | None = None
        if shards.is_local(topic.name, queue_id):
            self._open_ring(shards.data)

    def _open_ring(self, data: Path) -> None:
        directory = producer_rings_directory(data, self.topic, self.queue_id)
        self.ring = ProducerRing(ring_path(directory, uuid.uuid4().hex))
        self._doorbell = ControlPage(control_path(data, self.topic, self.queue_id)).doorbell
        self.gate.attach(str(self.ring.path))

    def try_send(self, payload: bytes, batch: _Batch) -> bool:
        """Hand a batch over; False while the ring has no room."""
        if self.ring is None or len(payload) > self.ring.payload_max:
            return self._send_by_call(payload, batch)
        self.harvest()
        sequence = self.ring.try_write(payload, batch.durability)
        if sequence is None:
            return False
        batch.sequence = sequence
        self.in_flight.append(batch)
        self.ring.publish()
        assert self._doorbell is not None
        self._doorbell.ring()
        return True

    def _send_by_call(self, payload: bytes, batch: _Batch) -> bool:
        """The order of a queue holds: what is in the ring goes first."""
        self.harvest()
        if self.in_flight:
            return False
        batch.ack = self.gate.append(payload, int(batch.durability))
        return True

    def harvest(self) -> None:
        """Give acknowledged batches their outcome, before their slots are used again."""
        if self.ring is None or not self.in_flight:
            return
        acknowledged = self.ring.acknowledged()
        while self.in_flight and self.in_flight[0].sequence <= acknowledged:
            batch = self.in_flight.popleft()
            batch.ack = self.ring.ack(batch.sequence)

    def wait(self, batch: _Batch, timeout_s: float) -> None:
        """Sleep until the batch is acknowledged or the time is over; holds no lock."""
        if self.ring is not None and batch.sequence:
            self.ring.wait_acknowledged(batch.sequence, timeout_s)

    def close(self) -> None:
        if self.ring is not None:
            self.ring.close()


class Producer:
    """Sends messages to the topics of a cluster; safe to use from several threads."""

    def __init__(
        self,
        shards: Shards,
        *,
        ack: AckMode = "memory",
        timeout_s: float = 10.0,
        born_host: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self._shards = shards
        self._default_ack: AckMode = ack
        self._timeout_s = timeout_s
        self._born_host = born_host
        self._ids = UniqueIdGenerator(
            born_host[0], os.getpid(), int(uuid.uuid4().fields[0]), clock_ms=system_clock_ms
        )
        self._topics: dict[str, TopicConfig] = {}
        self._lanes: dict[tuple[str, int], _Lane] = {}
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
        message = Message(topic, body, tags, keys, properties or {})
        return self.send_message_async(message, queue_id, sharding_key, ack).result()

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
        message = Message(topic, body, tags, keys, properties or {})
        return self.send_message_async(message, queue_id, sharding_key, ack)

    def send_message_async(
        self,
        message: Message,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        ack: AckMode | None = None,
        *,
        collect: bool = False,
    ) -> PendingSend:
        """As :meth:`send_async`, for a message that is already made.

        With *collect* more of the batch follows at once, so it is not handed over yet.
        """
        if message.unique_key is None:
            message = message.with_unique_key(self._ids.next_id())
        durability = _durability(ack or self._default_ack)
        with self._lock:
            lane = self._lane(message.topic, queue_id, sharding_key)
            batch = lane.collecting
            if batch is not None and batch.durability is not durability:
                self._hand_over(lane)
                batch = None
            if batch is None:
                batch = lane.collecting = _Batch(lane, durability)
            batch.messages.append(message)
            pending = PendingSend(self, batch, len(batch.messages) - 1)
            if not collect:
                lane.harvest()
            if len(batch.messages) >= BATCH_MAX or not (collect or lane.in_flight):
                self._hand_over(lane)
            elif not self._collecting.is_set():
                self._collecting.set()
            return pending

    def send_messages(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        queue_id: int | None = None,
        ack: AckMode | None = None,
    ) -> list[SendResult]:
        """Store messages of one topic in batches; the results are in the messages' order.

        Without *queue_id*, messages with the property ``__SHARDINGKEY`` go to the queue of that
        key, and of the others each batch to the next queue in turn.
        """
        pending: list[PendingSend] = []
        for start in range(0, len(messages), BATCH_MAX):
            turn = next(self._turn)
            for message in messages[start : start + BATCH_MAX]:
                if message.topic != topic:
                    raise InvalidMessageError(
                        f"a message for topic {message.topic!r} was sent to topic {topic!r}"
                    )
                key = message.properties.get(SHARDING_KEY)
                chosen = queue_id
                if chosen is None and key is None:
                    chosen = turn % self._topic(topic).queues
                pending.append(self.send_message_async(message, chosen, key, ack, collect=True))
        return [send.result() for send in pending]

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
        durability = _durability(ack or self._default_ack)
        counts: dict[int, int] = {}
        batches = []
        for start in range(0, table.num_rows, TABLE_BATCH_ROWS):
            rows = table.slice(start, TABLE_BATCH_ROWS)
            encoded = encode_table(
                topic,
                rows,
                property_columns=property_columns,
                born_host=self._born_host,
                born_timestamp_ms=system_clock_ms(),
                unique_ids=self._ids.next_ids(rows.num_rows),
            )
            with self._lock:
                lane = self._lane(topic, None, None)
                self._hand_over(lane)
                batch = _Batch(lane, durability)
                self._write(lane, batch, encoded)
            batches.append(batch)
            counts[lane.queue_id] = counts.get(lane.queue_id, 0) + rows.num_rows
        for batch in batches:
            self.settle(batch, None)
            batch.check()
        return BatchResult(table.num_rows, counts)

    def flush(self) -> None:
        """Hand over and wait for everything that was sent; results tell what was refused."""
        with self._lock:
            lanes = list(self._lanes.values())
            for lane in lanes:
                self._hand_over(lane)
            waiting = [lane.in_flight[-1] for lane in lanes if lane.in_flight]
        for batch in waiting:
            self.settle(batch, None)

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

    def settle(self, batch: _Batch, timeout_s: float | None) -> None:
        """Wait until the shard said what became of a batch."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while True:
            with self._lock:
                if batch is batch.lane.collecting:
                    self._hand_over(batch.lane)
                batch.lane.harvest()
                if batch.settled:
                    return
            left = deadline - time.monotonic()
            if left <= 0:
                raise _unavailable(batch.lane)
            batch.lane.wait(batch, left)

    def _topic(self, name: str) -> TopicConfig:
        config = self._topics.get(name)
        if config is None:
            config = self._topics[name] = self._shards.topic(name)
        return config

    def _lane(self, topic: str, queue_id: int | None, sharding_key: str | None) -> _Lane:
        if self._closed.is_set():
            raise StoreError("the producer is closed; make a new one")
        config = self._topic(topic)
        if queue_id is None:
            turn = next(self._turn) if sharding_key is None else java_hash_code(sharding_key)
            queue_id = turn % config.queues
        elif not 0 <= queue_id < config.queues:
            raise ConfigError(
                f"topic {topic!r} has the queues 0 to {config.queues - 1}, not {queue_id}"
            )
        lane = self._lanes.get((topic, queue_id))
        if lane is None:
            lane = self._lanes[topic, queue_id] = _Lane(self._shards, config, queue_id)
        return lane

    def _hand_over(self, lane: _Lane) -> None:
        """Encode what was collected and write it to the ring; called with the lock held."""
        batch = lane.collecting
        if batch is None:
            return
        lane.collecting = None
        batch.ids = [message.unique_key or "" for message in batch.messages]
        try:
            encoded = encode_messages(
                batch.messages, born_host=self._born_host, clock_ms=system_clock_ms
            )
            self._write(lane, batch, encoded)
        except StreamError as error:  # whoever asks for a result of the batch gets it
            batch.failure = error
        batch.messages = []

    def _write(self, lane: _Lane, batch: _Batch, encoded: EncodedBatch) -> None:
        batch.starts = [0, *itertools.accumulate(encoded.sizes.tolist())]
        payload = pack_batch(encoded)
        deadline = time.monotonic() + self._timeout_s
        while not lane.try_send(payload, batch):
            if time.monotonic() >= deadline:
                raise _unavailable(lane)
            lane.wait(lane.in_flight[0], _ROOM_WAIT_S)

    def _flush_lingering(self) -> None:
        while not self._closed.is_set():
            self._collecting.wait()
            time.sleep(LINGER_S)
            self._collecting.clear()
            with self._lock:
                for lane in list(self._lanes.values()):
                    self._hand_over(lane)


def _durability(ack: str) -> Durability:
    try:
        return _DURABILITY[ack]
    except KeyError:
        raise ConfigError(f"ack {ack!r} is not 'memory' or 'disk'") from None


def _unavailable(lane: _Lane) -> ShardUnavailableError:
    return ShardUnavailableError(lane.name, 1000, "it did not acknowledge in time")


def _check(ack: Ack, shard: str) -> None:
    """Raise what the shard refused the batch for."""
    match ack.status:
        case AppendStatus.OK:
            return
        case AppendStatus.STORE_FULL:
            raise StoreFullError(f"shard {shard}: no room on the disk; nothing was stored")
        case AppendStatus.FENCED:
            raise ShardFencedError(f"shard {shard}: a newer process owns it; send again")
        case AppendStatus.NOT_WRITABLE:
            raise ConfigError(
                f"shard {shard}: the topic does not take messages; change it with: "
                "rocketray topics alter TOPIC --perm 6"
            )
        case AppendStatus.MESSAGE_ILLEGAL:
            raise InvalidMessageError(f"shard {shard} refused the batch as malformed")
        case _:
            raise ShardUnavailableError(shard, 1000, "it could not store the batch; see its log")

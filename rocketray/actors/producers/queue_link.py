"""The way from one producer to one queue: batches, and what the shard said of them.

On the shard's node a batch goes through a ring in shared memory; from elsewhere, and when it is
too large for the ring, through a call. Used with its lock held, but for :meth:`Lane.wait`.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from rocketray.actors.files.paths import control_path, host_doorbell_path, producer_rings_directory
from rocketray.actors.ipc.control_page import ControlPage, Doorbell, Line
from rocketray.actors.ipc.ring import SLOT_COUNT, Ack, ProducerRing
from rocketray.actors.runtime.processes import owned_name
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.message import ForwardedMessage
from rocketray.names import is_closed_topic
from rocketray.store.batches.encoded_batch import MeasuredTable, pack_table, packed_bytes
from rocketray.store.batches.message_columns import RecordForm
from rocketray.store.formats.message_id import encode_offset_id

from .batch import Batch

__all__ = ["Lane", "ShardGate", "Shards", "collecting_s", "no_room", "unacknowledged"]


_LOG = logging.getLogger(__name__)
_REPEATS_MAX = 2  # as RocketMQ's retryTimesWhenSendFailed
_HARVEST_AT = SLOT_COUNT // 2
_COLLECT_MIN_S = 0.0001  # a hand-over takes 20 µs, or ten times that where the shard has to wake up
_COLLECT_MAX_S = 0.0005


class ShardGate(Protocol):
    """The calls of one shard that a producer needs."""

    def attach(self, path: str) -> None:
        """Let the shard read a ring."""

    def append(self, payload: bytes, durability: int, *, attempt: int = 0) -> Ack:
        """Store a batch and say what became of it."""


class Shards(Protocol):
    """The way from a producer to the shards."""

    @property
    def data(self) -> Path:
        """The node's data directory."""

    def topic(self, name: str) -> TopicConfig:
        """A topic; raises :class:`TopicNotFoundError`."""

    def create_topic(self, topic: str, queues: int = 1) -> object:
        """Make a topic unless it is there."""

    def recall(self, handle: str) -> bool:
        """Let a delayed message never be delivered; False when that is too late."""

    def gate(self, topic: str, queue_id: int) -> ShardGate:
        """The shard's calls."""

    def is_local(self, topic: str, queue_id: int) -> bool:
        """Whether the shard's memory can be reached from this process."""


class Lane:
    """The way from this producer to one queue."""

    def __init__(self, shards: Shards, topic: TopicConfig, queue_id: int, form: RecordForm) -> None:
        self.name = f"{topic.name}/{queue_id}"
        self.data = shards.data
        self.topic = topic.name
        self.is_closed_topic = is_closed_topic(topic.name)
        """Programs may not send here; the node's own parts do."""
        self.queue_id = queue_id
        self.lock = threading.RLock()
        self.store_host = topic.store_hosts[queue_id]
        """Which shard it is: a topic that is made again has others."""
        host_id = encode_offset_id(self.store_host, 0)
        self.id_prefix = host_id[: -len(f"{0:016X}")]  # the offset follows
        self.gate = shards.gate(topic.name, queue_id)
        self.in_flight: deque[Batch] = deque()
        self.lost = 0
        """One-way messages that were not stored."""
        self.collecting: Batch | None = None
        self.forwarding: tuple[list[ForwardedMessage], Batch] | None = None
        """Messages that are stored again, until the outcome of their batch is known."""
        self.form = form
        self.next_hand_over = 0.0
        """When, by the monotonic clock, what is collected goes with the next message."""
        self._closed: StreamError | None = None
        self._doorbell: Line | Doorbell | None = None
        self.ring: ProducerRing | None = None
        if shards.is_local(topic.name, queue_id):
            self._open_ring(self.data, is_hosted=topic.hosted)

    def _open_ring(self, data: Path, *, is_hosted: bool) -> None:
        directory = producer_rings_directory(data, self.topic, self.queue_id)
        self.ring = ProducerRing(directory / owned_name(uuid.uuid4().hex))
        try:
            self.gate.attach(str(self.ring.path))  # a shard that stays closed says why
            if is_hosted:
                self._doorbell = Doorbell(host_doorbell_path(data))
            else:
                self._doorbell = ControlPage(control_path(data, self.topic, self.queue_id)).doorbell
        except BaseException:
            self.ring.close()  # the shard may read it all the same, later
            self.ring.unlink()
            raise

    def try_send(self, payload: memoryview, batch: Batch) -> bool:
        """Hand a batch over; False while the ring has no room."""
        if self.ring is None or len(payload) > self.ring.payload_max:
            return self._send_by_call(payload.tobytes, batch)
        if not self._has_slot():
            return False
        sequence = self.ring.try_write(payload, batch.durability)
        if sequence is None:
            return False
        self._sent(self.ring, batch, sequence)
        return True

    def try_send_table(self, table: MeasuredTable, batch: Batch) -> bool:
        """The same with the batch of a table, which is written where the shard reads it."""
        size = packed_bytes(table)
        if self.ring is None or size > self.ring.payload_max:
            return self._send_by_call(partial(_packed, table), batch)
        room = self.ring.try_reserve(size) if self._has_slot() else None
        if room is None:
            return False
        pack_table(table, np.frombuffer(room, np.uint8))
        self._sent(self.ring, batch, self.ring.commit(batch.durability))
        return True

    def _has_slot(self) -> bool:
        """Whether the outcome of a further batch would not be written over that of the oldest."""
        if len(self.in_flight) >= _HARVEST_AT:
            self.harvest()
        return len(self.in_flight) < SLOT_COUNT

    def _sent(self, ring: ProducerRing, batch: Batch, sequence: int) -> None:
        """The ring holds the batch: let the shard see it."""
        batch.sequence = sequence
        self.in_flight.append(batch)
        ring.publish()
        assert self._doorbell is not None
        self._doorbell.ring()

    def _send_by_call(self, pack: Callable[[], bytes], batch: Batch) -> bool:
        """The order of a queue holds: what is in the ring goes first."""
        self.harvest()
        if self.in_flight:
            return False
        if batch.has_new_ids:
            batch.ack = self._append(pack(), batch)
        else:
            batch.ack = self.gate.append(pack(), int(batch.durability))
        self.settled(batch)
        return True

    def _append(self, payload: bytes, batch: Batch) -> Ack:
        """Call the shard, and again if it does not say what became of that: it stores it once."""
        durability = int(batch.durability)
        for attempt in range(1, 1 + _REPEATS_MAX):
            try:
                return self.gate.append(payload, durability, attempt=attempt)
            except ShardUnavailableError as error:
                _LOG.warning("%s: sending a batch again: %s", self.name, error)
                time.sleep(error.retry_after_ms / 1000)
        batch.unsure = payload
        ack = self.gate.append(payload, durability, attempt=1 + _REPEATS_MAX)
        batch.unsure = None
        return ack

    def ask_again(self, batch: Batch) -> None:
        """Call the shard with a batch of which no call said what became: it stores it once."""
        assert batch.unsure is not None
        durability = int(batch.durability)
        batch.ack = self.gate.append(batch.unsure, durability, attempt=2 + _REPEATS_MAX)
        batch.unsure = batch.failure = None

    def harvest(self) -> None:
        """Give acknowledged batches their outcome, before their slots are used again."""
        if self.ring is None or not self.in_flight:
            return
        acknowledged = self.ring.acknowledged()
        while self.in_flight and self.in_flight[0].sequence <= acknowledged:
            batch = self.in_flight.popleft()
            batch.ack = self.ring.ack(batch.sequence)
            self.settled(batch)

    def settled(self, batch: Batch) -> None:
        """Say what became of messages that nobody asks for: count those that were not stored."""
        if batch.one_way:
            try:
                batch.check()
            except Exception as error:  # noqa: BLE001  # a disk that is full there is an OSError here
                self.lost += batch.one_way
                _LOG.error("%d one-way messages are not stored: %s", batch.one_way, error)

    def wait(self, batch: Batch, timeout_s: float) -> None:
        """Sleep until the batch is acknowledged or the time is over; holds no lock."""
        if self.ring is not None and batch.sequence:
            self.ring.wait_acknowledged(batch.sequence, timeout_s)

    def wait_for_room(self, timeout_s: float) -> None:
        """Sleep until the ring may have room again, or the time is over."""
        self.harvest()
        if self.in_flight:
            self.wait(self.in_flight[0], timeout_s)
        # Otherwise all is acknowledged, and the shard is just about to give the room back.

    @property
    def has_collected(self) -> bool:
        """Whether messages wait to be handed over; a batch whose first one was refused has none."""
        batch = self.collecting
        return batch is not None and len(batch.columns) > 0

    def check_open(self) -> None:
        """Raise the error that says why nothing more can be sent here, if there is one."""
        if self._closed is not None:
            raise self._closed

    def close(self, reason: StreamError, *, is_gone: bool = False) -> None:
        """Take nothing more. What the shard has not acknowledged has failed if it *is_gone*."""
        self._closed = reason
        self.harvest()
        failed = [] if self.collecting is None else [self.collecting]
        self.collecting = None
        if is_gone:
            failed += self.in_flight
            self.in_flight.clear()
        for batch in failed:
            batch.failure = reason
            self.settled(batch)
        if self.ring is not None:
            self.ring.close()


def _packed(table: MeasuredTable) -> bytes:
    payload = np.empty(packed_bytes(table), np.uint8)
    pack_table(table, payload)
    return payload.tobytes()


def collecting_s(hand_over_s: float) -> float:
    """How long to collect messages after a hand-over that took that long.

    Handing over takes no more than a fifth of a busy producer's time then, and a message that is
    alone for half a millisecond never waits for others.
    """
    return min(max(_COLLECT_MIN_S, 4 * hand_over_s), _COLLECT_MAX_S)


def unacknowledged(lane: Lane) -> ShardUnavailableError:
    """The error of a batch that the shard has, and of which it said nothing in time."""
    reason = "it did not acknowledge in time, and may still store what was sent"
    return ShardUnavailableError(lane.name, 1000, reason)


def no_room(lane: Lane) -> ShardUnavailableError:
    """The error of a batch that could not be handed over."""
    reason = "it takes no messages now; nothing of this batch was sent"
    return ShardUnavailableError(lane.name, 1000, reason)

"""The way from one producer to one queue: batches, and what the shard said of them.

On the shard's node a batch goes through a ring in shared memory; from elsewhere, and when it is
too large for the ring, through a call. Used by one thread at a time, but for :meth:`Lane.wait`.
"""

from __future__ import annotations

import itertools
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rocketray.errors import (
    ConfigError,
    InvalidMessageError,
    ShardFencedError,
    ShardUnavailableError,
    StoreFullError,
)
from rocketray.message import Message
from rocketray.store.encoded_batch import EncodedBatch, pack_batch
from rocketray.store.message_id import encode_offset_id

from .catalog import TopicConfig
from .layout import control_path, producer_rings_directory
from .processes import owned_name
from .ring import Ack, AppendStatus, Durability, ProducerRing
from .watermark import ControlPage, Line

__all__ = ["Batch", "BatchResult", "Lane", "SendResult", "ShardGate", "Shards", "unavailable"]


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


class Batch:
    """Messages that travel together, and what became of them."""

    __slots__ = ("ack", "durability", "failure", "ids", "lane", "messages", "sequence", "starts")

    def __init__(self, lane: Lane, durability: Durability) -> None:
        self.lane = lane
        self.durability = durability
        self.messages: list[Message] = []
        self.ids: list[str] = []
        self.starts: list[int] = []  # of each record, in bytes from the first
        self.sequence = 0  # 0: not handed over
        self.ack: Ack | None = None
        self.failure: Exception | None = None

    def encode(self, encoded: EncodedBatch) -> bytes:
        """Remember where the records will stand; return the batch as it travels."""
        self.starts = [0, *itertools.accumulate(encoded.sizes.tolist())]
        return pack_batch(encoded)

    @property
    def settled(self) -> bool:
        """Whether it is known what became of the batch."""
        return self.ack is not None or self.failure is not None

    def check(self) -> Ack:
        """The outcome; raises what kept the batch from being stored."""
        if self.failure is not None:
            raise self.failure
        assert self.ack is not None
        _check(self.ack, self.lane.name)
        return self.ack

    def result(self, index: int) -> SendResult:
        """Where the batch's message of that number was stored; raises as :meth:`check`."""
        return self._result(self.check(), index)

    def results(self) -> list[SendResult]:
        """Where all messages of the batch were stored; raises as :meth:`check`."""
        ack = self.check()
        return [self._result(ack, index) for index in range(len(self.ids))]

    def _result(self, ack: Ack, index: int) -> SendResult:
        physical_offset = ack.first_physical_offset + self.starts[index]
        return SendResult(
            self.ids[index],
            f"{self.lane.id_prefix}{physical_offset:016X}",
            self.lane.queue_id,
            ack.first_queue_offset + index,
        )


class Lane:
    """The way from this producer to one queue."""

    def __init__(self, shards: Shards, topic: TopicConfig, queue_id: int) -> None:
        self.name = f"{topic.name}/{queue_id}"
        self.topic = topic.name
        self.queue_id = queue_id
        host_id = encode_offset_id(topic.store_hosts[queue_id], 0)
        self.id_prefix = host_id[: -len(f"{0:016X}")]  # the offset follows
        self.gate = shards.gate(topic.name, queue_id)
        self.in_flight: deque[Batch] = deque()
        self.collecting: Batch | None = None
        self._doorbell: Line | None = None
        self.ring: ProducerRing | None = None
        if shards.is_local(topic.name, queue_id):
            self._open_ring(shards.data)

    def _open_ring(self, data: Path) -> None:
        directory = producer_rings_directory(data, self.topic, self.queue_id)
        self.ring = ProducerRing(directory / owned_name(uuid.uuid4().hex))
        self._doorbell = ControlPage(control_path(data, self.topic, self.queue_id)).doorbell
        self.gate.attach(str(self.ring.path))

    def try_send(self, payload: bytes, batch: Batch) -> bool:
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

    def _send_by_call(self, payload: bytes, batch: Batch) -> bool:
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

    def wait(self, batch: Batch, timeout_s: float) -> None:
        """Sleep until the batch is acknowledged or the time is over; holds no lock."""
        if self.ring is not None and batch.sequence:
            self.ring.wait_acknowledged(batch.sequence, timeout_s)

    def close(self) -> None:
        """Tell the shard that nothing more comes."""
        if self.ring is not None:
            self.ring.close()


def unavailable(lane: Lane) -> ShardUnavailableError:
    """The error of a shard that did not answer."""
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

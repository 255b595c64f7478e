"""The link from one producer to one queue (a link): batches, and their outcomes.

On the shard's node a batch is sent through a ring in shared memory; from elsewhere, and if it is
too large for the ring, by a call. Used with its lock held, except for :meth:`QueueLink.wait`.
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

import numpy as np

from rocketray.actors.api.node_client import NodeClient
from rocketray.actors.files.paths import process_doorbell_path, producer_rings_directory
from rocketray.actors.ipc.process_doorbell import ProcessDoorbell, QueueBell
from rocketray.actors.ipc.ring import SLOT_COUNT, Ack, ProducerRing
from rocketray.actors.runtime.processes import owned_name
from rocketray.actors.shards.shard_api import call_ends_ms
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.message import ForwardedMessage
from rocketray.names import is_closed_topic
from rocketray.store.batches.encoded_batch import MeasuredTable, pack_table, packed_bytes
from rocketray.store.batches.message_columns import RecordForm
from rocketray.store.formats.message_id import encode_offset_id

from .batch import Batch

__all__ = ["QueueLink", "collecting_s", "packed", "unacknowledged"]


_LOG = logging.getLogger(__name__)
_REPEATS_MAX = 2  # as RocketMQ's retryTimesWhenSendFailed
_HARVEST_AT = SLOT_COUNT // 2
_COLLECT_MIN_S = 0.0001  # sending takes 20 µs, or ten times that if the shard has to wake up
_COLLECT_MAX_S = 0.0005


class QueueLink:
    """The link from this producer to one queue."""

    def __init__(
        self, node: NodeClient, topic: TopicConfig, queue_id: int, form: RecordForm
    ) -> None:
        self.name = f"{topic.name}/{queue_id}"
        self.data = node.data
        self.topic = topic.name
        self.is_closed_topic = is_closed_topic(topic.name)
        """Whether programs may not send here, only the node's own parts."""
        self.queue_id = queue_id
        self.lock = threading.RLock()
        self.store_host = topic.store_hosts[queue_id]
        """Identity of the shard: a recreated topic has other store hosts."""
        self.id_prefix = encode_offset_id(self.store_host, 0)[:-16]
        """Of offset message ids: the 16 digits of a physical offset follow."""
        self.shard = node.shard_calls(topic, queue_id)
        self.in_flight: deque[Batch] = deque()
        self.lost = 0
        """Number of one-way messages that were not stored."""
        self.collecting: Batch | None = None
        self.forwarding: tuple[list[ForwardedMessage], Batch] | None = None
        """Messages that are stored again, until the outcome of their batch is known."""
        self.form = form
        self.next_hand_over = 0.0
        """Monotonic time from which on the next message sends the collected ones."""
        self._closed: StreamError | None = None
        self._doorbell: QueueBell | None = None
        self.ring: ProducerRing | None = None
        if node.is_local():
            self._open_ring(self.data, topic.process_of(queue_id))

    def _open_ring(self, data: Path, process: str) -> None:
        directory = producer_rings_directory(data, self.topic, self.queue_id)
        self.ring = ProducerRing(directory / owned_name(uuid.uuid4().hex))
        try:
            self.shard.attach(str(self.ring.path))  # a shard that stays closed reports why
            doorbell = ProcessDoorbell(process_doorbell_path(data, process))
            self._doorbell = doorbell.bell(self.topic, self.queue_id)
        except BaseException:
            self.ring.close()  # the shard may still read it later
            self.ring.unlink()
            raise

    def try_send(self, payload: memoryview, batch: Batch) -> bool:
        """Send a batch; False while the ring has no room."""
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
        """Send the batch of a table, packed in place in the ring; False while there is no room."""
        size = packed_bytes(table)
        if self.ring is None or size > self.ring.payload_max:
            return self._send_by_call(partial(packed, table), batch)
        room = self.ring.try_reserve(size) if self._has_slot() else None
        if room is None:
            return False
        pack_table(table, np.frombuffer(room, np.uint8))
        self._sent(self.ring, batch, self.ring.commit(batch.durability))
        return True

    def has_room(self, size: int) -> bool:
        """Return whether the ring takes a batch of that size at once."""
        if self.ring is None or size > self.ring.payload_max or not self._has_slot():
            return False
        return self.ring.try_reserve(size) is not None

    def _has_slot(self) -> bool:
        """Return whether another batch has a slot that no outcome in use would lose."""
        if len(self.in_flight) >= _HARVEST_AT:
            self.harvest()
        return len(self.in_flight) < SLOT_COUNT

    def _sent(self, ring: ProducerRing, batch: Batch, sequence: int) -> None:
        """Publish the batch in the ring to the shard."""
        batch.sequence = sequence
        self.in_flight.append(batch)
        ring.publish()
        assert self._doorbell is not None
        self._doorbell.ring()

    def _send_by_call(self, pack: Callable[[], bytes], batch: Batch) -> bool:
        """Send by a call, once the ring is empty: this keeps the order of the queue."""
        self.harvest()
        if self.in_flight:
            return False
        if batch.has_new_ids:
            batch.ack = self._append(pack(), batch)
        else:
            batch.ack = self._call(pack(), batch)
        self.settled(batch)
        return True

    def _append(self, payload: bytes, batch: Batch) -> Ack:
        """Call the shard, and again if the outcome is unknown: it stores the batch once."""
        for attempt in range(1, 1 + _REPEATS_MAX):
            try:
                return self._call(payload, batch, attempt)
            except ShardUnavailableError as error:
                _LOG.warning("%s: sending a batch again: %s", self.name, error)
                time.sleep(error.retry_after_ms / 1000)
        batch.unsure = payload
        ack = self._call(payload, batch, 1 + _REPEATS_MAX)
        batch.unsure = None
        return ack

    def _call(self, payload: bytes, batch: Batch, attempt: int = 0) -> Ack:
        return self.shard.append(
            payload, int(batch.durability), attempt=attempt, not_after_ms=call_ends_ms()
        )

    def ask_again(self, batch: Batch) -> None:
        """Call the shard with a batch whose outcome no call returned: it stores the batch once."""
        assert batch.unsure is not None
        batch.ack = self._call(batch.unsure, batch, 2 + _REPEATS_MAX)
        batch.unsure = batch.failure = None
        batch.is_told = False

    def harvest(self) -> None:
        """Give acknowledged batches their outcome, before their slots are reused."""
        if self.ring is None or not self.in_flight:
            return
        acknowledged = self.ring.acknowledged()
        while self.in_flight and self.in_flight[0].sequence <= acknowledged:
            batch = self.in_flight.popleft()
            batch.ack = self.ring.ack(batch.sequence)
            self.settled(batch)

    def look(self, batch: Batch) -> bool:
        """Return whether a batch's outcome is known by now; never waits, for any thread."""
        if not batch.settled and self.lock.acquire(blocking=False):
            try:
                self.harvest()
            finally:
                self.lock.release()
        return batch.settled

    def settled(self, batch: Batch) -> None:
        """Count the one-way messages of a batch with a known outcome that were not stored."""
        if batch.one_way:
            try:
                batch.check()
            except Exception as error:  # noqa: BLE001  # a full disk raises an OSError here
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
        # Otherwise all is acknowledged, and the shard is about to free the room.

    @property
    def has_collected(self) -> bool:
        """Whether messages wait to be sent; a batch whose first message was refused has none."""
        batch = self.collecting
        return batch is not None and len(batch.columns) > 0

    def check_open(self) -> None:
        """Raise the error for which nothing more can be sent here, if there is one."""
        if self._closed is not None:
            raise self._closed

    def close(self, reason: StreamError, *, is_gone: bool = False) -> None:
        """Refuse all later sends. Unacknowledged batches have failed if the shard *is_gone*."""
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


def packed(table: MeasuredTable) -> bytes:
    """Return the batch of a table, for a call."""
    payload = np.empty(packed_bytes(table), np.uint8)
    pack_table(table, payload)
    return payload.tobytes()


def collecting_s(hand_over_s: float) -> float:
    """Return how long to collect messages after sending a batch took that long.

    So sending takes at most a fifth of a busy producer's time, and a message that comes half a
    millisecond after the one before never waits for others.
    """
    return min(max(_COLLECT_MIN_S, 4 * hand_over_s), _COLLECT_MAX_S)


def unacknowledged(link: QueueLink) -> ShardUnavailableError:
    """Return the error for a batch that the shard has, and did not acknowledge in time."""
    reason = "it did not acknowledge in time, and may still store what was sent"
    return ShardUnavailableError(link.name, 1000, reason)

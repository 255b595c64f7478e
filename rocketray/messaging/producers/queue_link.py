"""The link from one producer to one queue: the way of its batches, and of their outcomes.

On the shard's machine a batch is sent through a ring in shared memory (ring_sender.py); from
another Ray node, and if it is too large for the ring, by a call (call_sender.py). A link changes
between the two only while nothing is in flight: this keeps the order of the queue. When the queue
moves to another disk, or its node is started again, :meth:`QueueLink.follow` sends what is in
flight again, in order, to its new place. Used with its lock held, except for
:meth:`QueueLink.wait`, :meth:`QueueLink.is_moving` and :meth:`QueueLink.follow`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from rocketray.base.ack_mode import durability_of
from rocketray.base.system_topics import is_closed_topic
from rocketray.broker.shards.shard_api import ShardApi
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import ShardMovedError, ShardUnavailableError, StreamError
from rocketray.message import ForwardedMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.files.node_lock import node_holder
from rocketray.runtime.ipc.ring import RING_BYTES, SLOT_COUNT
from rocketray.runtime.one_process import OfOneProcess
from rocketray.store.batches.encoded_batch import Packed, Packing
from rocketray.store.batches.message_columns import RecordForm
from rocketray.store.formats.message_id import encode_offset_id

from .batch import Batch
from .call_sender import CallSender
from .ring_sender import RingSender

_LOG = logging.getLogger(__name__)
# An outcome is lost once SLOT_COUNT later batches were written. A producer that never asks for its
# results reads them so, from half of that on, and not with each batch.
_HARVEST_AT = SLOT_COUNT // 2
_COLLECT_MIN_S = 0.0001  # sending takes 20 µs, or ten times that if the shard has to wake up
_COLLECT_MAX_S = 0.0005
# For all that is sent again, with the link's lock held: as long as a send waits by default.
_FOLLOW_S = 10.0
_ROOM_S = 0.01  # between two tries; an acknowledgement ends it sooner


class _Place(NamedTuple):
    """Where a queue is by now, and the ring to it if that is on this machine."""

    disk: str
    data: Path
    ring: RingSender | None


class BatchSender(Protocol):
    """A way of batches to the shard: each gets a number, and later an outcome, in order."""

    @property
    def is_busy(self) -> bool:
        """Whether a batch that is not full is better sent after those in flight."""

    def has_room(self, size: int) -> bool:
        """Return whether a batch of that size can be written at once."""

    def try_write(self, packing: Packing, batch: Batch) -> bool:
        """Pack a batch, and give it its number; False while there is no room."""

    def publish(self) -> None:
        """Begin to send what was written."""

    def harvest(self, in_flight: deque[Batch]) -> Iterator[Batch]:
        """Take the batches whose outcome is known off *in_flight*, and give it to them."""

    def wait(self, sequence: int, timeout_s: float) -> None:
        """Sleep until the batch of that number has an outcome; 0: until others may be sent."""


class QueueLink(OfOneProcess, what="producer"):
    """The link from this producer to one queue."""

    def __init__(
        self,
        node: NodeClient,
        topic: TopicConfig,
        queue_id: int,
        form: RecordForm,
        *,
        on_idle: Callable[[QueueLink], object],
        on_unavailable: Callable[[QueueLink, ShardUnavailableError], object],
        on_full: Callable[[QueueLink], object] = lambda _: None,
        ring_bytes: int = RING_BYTES,
    ) -> None:
        """Take *on_idle* and *on_unavailable*, which :class:`CallSender` calls.

        *on_full* is called when the shard has refused a batch because its disk is full. Batches
        larger than half of *ring_bytes* are sent by calls.
        """
        self.name = f"{topic.name}/{queue_id}"
        self.disk = topic.disk_of(queue_id)
        place = node.at(self.disk)
        self.data = place.data
        self.topic = topic.name
        self.is_for_all = not is_closed_topic(topic.name)
        """Whether it is open, and not only to the node's own parts."""
        self.durability = durability_of(topic.default_ack)
        """When a message counts as stored if its sender does not say."""
        self.queue_id = queue_id
        self.lock = threading.RLock()  # ``try_add`` of the batcher holds it for ``try_hand_over``
        self.store_host = topic.store_hosts[queue_id]
        """Identity of the shard: a recreated topic has other store hosts."""
        self.id_prefix = encode_offset_id(self.store_host, 0)[:-16]
        """Of offset message ids: the 16 digits of a physical offset follow."""
        self.in_flight: deque[Batch] = deque()
        self.lost = 0
        """Number of one-way messages that were not stored."""
        self.collecting: Batch | None = None
        self.forwarding: tuple[list[ForwardedMessage], Batch] | None = None
        """Messages that are stored again, until the outcome of their batch is known."""
        self.form = form
        self.next_hand_over = 0.0
        """Monotonic time from which on the next message sends the collected ones."""
        self._on_full = on_full
        self._closed: StreamError | None = None
        shard = node.shard_calls(topic, queue_id)
        self._calls = CallSender(
            *(self.name, shard, node.in_background),
            on_idle=lambda: on_idle(self),
            on_unavailable=lambda error: on_unavailable(self, error),
        )
        self.is_here = place.is_local()
        self._clock_ms = node.clock_ms
        self._ring_bytes = ring_bytes
        self._on_unavailable = on_unavailable
        self._place: _Place | None = None
        self._ring = self._new_ring(self.data, topic, shard) if self.is_here else None
        self._sender: BatchSender = self._ring or self._calls

    def _new_ring(self, data: Path, topic: TopicConfig, shard: ShardApi) -> RingSender:
        return RingSender(
            *(data, topic, self.queue_id, shard, self._ring_bytes),
            opened_ms=self._clock_ms(),
            on_moving=self._note_moving,
        )

    def _note_moving(self) -> None:
        """Tell of a move as a call would that is answered so."""
        self._on_unavailable(
            self, ShardMovedError(f"shard {self.name}", "it moves to another disk", 0)
        )

    def is_moving(self) -> bool:
        """Return whether batches wait in a ring whose queue is handed over to another disk."""
        ring = self._ring
        return ring is not None and self._sender is ring and ring.is_moving()

    def is_left_behind(self, topic: TopicConfig) -> bool:
        """Return whether the queue moved to another disk, or its node was started again."""
        has_moved = self.disk != topic.disk_of(self.queue_id)
        return has_moved or (self._ring is not None and self._ring.is_left_behind())

    def follow(self, node: NodeClient, topic: TopicConfig) -> None:
        """Send to where the queue is now, from what its shard has not stored before on.

        A queue that moved stored what it acknowledged. One whose node ended may have stored more,
        so what is not acknowledged goes by calls, which say that it was sent before.

        Raises:
            ShardUnavailableError: its disk does not answer, or has not opened it yet; nothing has
                changed, and the next call tries again.
        """
        place = node.at(topic.disk_of(self.queue_id))
        shard = node.shard_calls(topic, self.queue_id)
        ring = None
        if place.is_local():  # before the lock: having the shard attach it is a call
            ring = self._new_ring(place.data, topic, shard)
        # Not before the ring, which a shard that is not open yet refuses: calls would lead there
        # while ``disk`` does not, and the next move of the queue would not be seen.
        self._calls.redirect(shard)
        # A sender that waits for room holds the lock, and goes there by itself.
        self._place = _Place(topic.disk_of(self.queue_id), place.data, ring)
        with self.lock:
            self._switch_place()

    def _switch_place(self) -> None:
        """Lead to the place that was found for the queue, if there is one."""
        place, self._place = self._place, None
        if place is None:
            return
        ring = place.ring
        if self._closed is not None:
            if ring is not None:
                ring.close()
            return
        has_moved = self.disk != place.disk
        self.disk, self.data = place.disk, place.data
        self.is_here = ring is not None
        before, self._ring = self._ring, ring
        if before is not None:
            # Else calls are in flight, and are repeated where the queue is now.
            if self._sender is before:
                self.harvest()
                payloads = before.unacknowledged()
                if not has_moved:  # and only a call can say that a batch is a repetition
                    self._mark_repeated(payloads)
                self._sender = ring if ring is not None and has_moved else self._calls
                self._send_again(payloads)
            before.leave()

    def _mark_repeated(self, payloads: Mapping[int, bytes]) -> None:
        """Have the batches in flight sent as repetitions; those that cannot be have failed."""
        waiting = [*self.in_flight]
        self.in_flight.clear()
        for batch in waiting:
            if batch.has_new_ids and batch.sequence in payloads:
                batch.is_repeated = True
                self.in_flight.append(batch)
            else:
                reason = "its node ended before it acknowledged, and may have stored what was sent"
                batch.failure = ShardUnavailableError(f"shard {self.name}", reason)
                self.settled(batch)

    def _send_again(self, payloads: Mapping[int, bytes]) -> None:
        """Send the batches in flight, which had these payloads by sequence, once more."""
        waiting = [*self.in_flight]
        self.in_flight.clear()
        end_s = time.monotonic() + _FOLLOW_S
        for batch in waiting:
            payload = payloads[batch.sequence]
            while not self._sender.try_write(Packed(payload), batch):
                self._sender.publish()
                if time.monotonic() >= end_s:
                    batch.is_unsent = True
                    reason = "its queue was opened again, and does not answer there"
                    batch.failure = ShardUnavailableError(f"shard {self.name}", reason)
                    self.settled(batch)
                    break
                self.wait_for_room(_ROOM_S)
            else:
                self.in_flight.append(batch)
        self._sender.publish()

    def try_send(self, packing: Packing, batch: Batch) -> bool:
        """Send a batch; False while there is no room."""
        sender = self._sender_of(packing.packed_bytes)
        if sender is None or not sender.try_write(packing, batch):
            return False
        self.in_flight.append(batch)
        sender.publish()
        return True

    def has_room(self, size: int) -> bool:
        sender = self._sender_of(size)
        return sender is not None and sender.has_room(size)

    def _sender_of(self, size: int) -> BatchSender | None:
        """Return the sender of a batch of that size; None while it has to wait for others.

        At most SLOT_COUNT are in flight: another one would take the slot of an outcome in use.
        """
        if len(self.in_flight) >= _HARVEST_AT:
            self.harvest()
            if len(self.in_flight) >= SLOT_COUNT:
                return None
        ring = self._ring
        sender: BatchSender = self._calls if ring is None or size > ring.payload_max else ring
        if sender is not self._sender:
            self.harvest()
            if self.in_flight:
                return None
            self._sender = sender
        return sender

    @property
    def is_busy(self) -> bool:
        return self._sender.is_busy

    def ask_again(self, batch: Batch) -> None:
        """Call the shard with a batch whose outcome no call returned: it stores the batch once."""
        self._calls.ask_again(batch)

    def harvest(self) -> None:
        """Give the batches their outcome that have one by now."""
        for batch in self._sender.harvest(self.in_flight):
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
        """Note a full disk, and count the one-way messages of the batch that were not stored."""
        if batch.met_full_disk:
            self._on_full(self)
        if batch.one_way:
            try:
                batch.check()
            except Exception as error:  # noqa: BLE001  # a full disk raises an OSError here
                self.lost += batch.one_way
                _LOG.error("%d one-way messages are not stored: %s", batch.one_way, error)

    def wait(self, batch: Batch, timeout_s: float) -> None:
        """Sleep until the batch has an outcome or may be sent, or time is over; holds no lock.

        It may return sooner: the batch was sent again meanwhile (:meth:`follow`), with another
        number. One that waits for the wrong number looks again when *timeout_s* are over.
        """
        sender = self._sender
        if not batch.settled:
            sender.wait(batch.sequence, timeout_s)

    def wait_for_room(self, timeout_s: float) -> None:
        """Sleep until there may be room again, or the time is over.

        The lock is held meanwhile, so a place to which the queue has moved is used from here.
        """
        self._switch_place()
        self.harvest()
        if self.in_flight:
            self.wait(self.in_flight[0], timeout_s)
        # Otherwise all has an outcome, and the room is about to be freed.

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
        self.is_for_all = False
        if is_gone:
            self._calls.drop()
        self.harvest()
        failed = [] if self.collecting is None else [self.collecting]
        self.collecting = None
        if is_gone:
            failed += self.in_flight
            self.in_flight.clear()
        for batch in failed:
            batch.failure = reason
            self.settled(batch)
        if self._ring is not None:
            self._ring.close()


def collecting_s(hand_over_s: float) -> float:
    """Return how long to collect messages after sending a batch took that long.

    So sending takes at most a fifth of a busy producer's time, and a message that comes half a
    millisecond after the one before never waits for others.
    """
    return min(max(_COLLECT_MIN_S, 4 * hand_over_s), _COLLECT_MAX_S)


def unacknowledged(link: QueueLink) -> ShardUnavailableError:
    """Return the error for a batch that the shard has, and did not acknowledge in time."""
    reason = "it did not acknowledge in time, and may still store what was sent"
    if link.is_here and node_holder(link.data) is None:
        reason += (
            f": no node runs on {link.data}; start it with: rocketray start --data {link.data}"
        )
    return ShardUnavailableError(f"shard {link.name}", reason)

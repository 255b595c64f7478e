"""Sends of batches through a ring in shared memory, to a shard on this machine."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from rocketray.broker.shards.shard_api import ShardApi
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.topic_files import handed_over_file
from rocketray.runtime.files.paths import process_doorbell_path, producer_rings_directory
from rocketray.runtime.files.runtime_lock import RuntimeMark
from rocketray.runtime.ipc.process_doorbell import ProcessDoorbell
from rocketray.runtime.ipc.ring import ProducerRing
from rocketray.runtime.processes import owned_name
from rocketray.store.batches.encoded_batch import Packing

from .batch import Batch

# Between two looks of those that wait at a ring whether its queue is handed over to another disk. A
# look is a system call of 2 µs, and none is made for a batch that is acknowledged sooner.
_LOOK_S = 0.05


class RingSender:
    """The ring of one link: a :class:`~.queue_link.BatchSender`."""

    is_busy = False
    """A ring takes batches while the shard stores others."""

    def __init__(
        self,
        data: Path,
        topic: TopicConfig,
        queue_id: int,
        shard: ShardApi,
        capacity: int,
        *,
        opened_ms: int = 0,
        on_moving: Callable[[], object] = lambda: None,
    ) -> None:
        """Create the ring, with room for *capacity* bytes, and have the shard read it.

        A shard that stays closed reports why. *opened_ms* is the time, which the ring tells.
        *on_moving* is called by those that wait at the ring while its queue moves to another disk.
        """
        self._on_moving = on_moving
        self._handed_over = handed_over_file(data, topic.name, queue_id)
        self._look_at_s = 0.0
        self._is_left = False
        self._mark = RuntimeMark(data)
        directory = producer_rings_directory(data, topic.name, queue_id)
        path = directory / owned_name(uuid.uuid4().hex)
        self._ring = ProducerRing(path, capacity, opened_ms=opened_ms)
        self.payload_max = self._ring.payload_max
        """Size limit of a batch, in bytes."""
        try:
            shard.attach_ring(str(self._ring.path))
            doorbell = ProcessDoorbell(process_doorbell_path(data, topic.process_of(queue_id)))
            self._doorbell = doorbell.bell(topic.name, queue_id)
        except BaseException:
            self._ring.close()  # the shard may still read it later
            self._ring.unlink()
            raise

    def has_room(self, size: int) -> bool:
        return self._ring.try_reserve(size) is not None

    def try_write(self, packing: Packing, batch: Batch) -> bool:
        """Pack a batch into the ring, unpublished; False while there is no room."""
        room = self._ring.try_reserve(packing.packed_bytes)
        if room is None:
            return False
        packing.pack_into(np.frombuffer(room, np.uint8))
        batch.sequence = self._ring.commit(batch.durability)
        return True

    def publish(self) -> None:
        """Let the shard see what was written, and wake it."""
        self._ring.publish()
        self._doorbell.ring()

    def harvest(self, in_flight: deque[Batch]) -> Iterator[Batch]:
        """Take the acknowledged batches off *in_flight*, before their slots are reused."""
        if not in_flight:
            return
        acknowledged = self._ring.acknowledged()
        while in_flight and in_flight[0].sequence <= acknowledged:
            batch = in_flight.popleft()
            batch.ack = self._ring.ack(batch.sequence)
            yield batch

    def wait(self, sequence: int, timeout_s: float) -> None:
        """Sleep until that batch is acknowledged, the ring is left, or time is over; not for 0."""
        if sequence:
            self._ring.wait_acknowledged(sequence, timeout_s, self._gives_up)

    def _gives_up(self) -> bool:
        """Return whether the ring was left; look from time to time whether its queue moves."""
        if not self._is_left and (now_s := time.monotonic()) >= self._look_at_s:
            self._look_at_s = now_s + _LOOK_S
            if self.is_moving():
                self._on_moving()
        return self._is_left

    def is_moving(self) -> bool:
        """Return whether the queue is handed over to another disk, or was."""
        return self._handed_over.exists()

    def is_left_behind(self) -> bool:
        """Return whether no shard reads the ring.

        It was one of an earlier start of the node; or of an earlier stay of a queue that was moved
        away and back, whose old files were removed.
        """
        is_removed = self._mark.is_current() and not self._ring.path.exists()
        return is_removed or self._mark.is_left_behind()

    def unacknowledged(self) -> dict[int, bytes]:
        """Return what the shard has not stored, by sequence: it has left the ring."""
        return self._ring.unacknowledged()

    def leave(self) -> None:
        """Release the ring, which no shard reads any more, and wake those that wait at it."""
        self._is_left = True
        self.close()
        self._ring.wake()

    def close(self) -> None:
        """Release the ring; the shard stores what is in it."""
        self._ring.close()

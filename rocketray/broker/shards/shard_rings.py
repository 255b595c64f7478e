"""The rings of a shard's producers, whose batches its writer stores.

Each call holds the lock of the :class:`~rocketray.broker.shards.shard_writer.ShardWriter`, which
has the invariants.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from rocketray.errors import CorruptRecordError, InvalidMessageError, OffsetOutOfRangeError
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.runtime.ipc.ring import Frame, RingCorruptError, RingFacts, ShardRing
from rocketray.runtime.processes import is_alive, owner_pid
from rocketray.store.batches.encoded_batch import unpack_batch

from .shard_appends import ShardAppends

_LOG = logging.getLogger(__name__)
_UNKNOWN = Ack(AppendStatus.FAILED)


class ShardRings:
    """The attached rings of one shard."""

    def __init__(self, appends: ShardAppends, lock: threading.Lock) -> None:
        self._appends = appends
        self._lock = lock
        self._rings: list[ShardRing] = []

    def __len__(self) -> int:
        return len(self._rings)

    def attach_ring(self, path: Path) -> None:
        """Begin to read a producer's ring; idempotent.

        A frame that was interrupted by a crash is completed now: how much of it is in the log is
        known only as long as nothing else was appended.

        Raises:
            StoreVersionError: it is not a ring, or not complete yet.
            ShardUnavailableError: the shard was closed.
        """
        with self._lock:
            self._appends.check_open()
            if all(ring.path != path for ring in self._rings):
                ring = ShardRing(path)
                self._rings.append(ring)
                if ring.interrupted():
                    self._drain([ring])

    def drain(self) -> int:
        """Store the batches in the rings, and acknowledge them; return the number of batches.

        Raises:
            ShardFencedError: a newer process owns the shard; the rings are left to it.
            StoreError: data cannot be brought to disk; nothing is acknowledged.
        """
        with self._lock:
            return self._drain(list(self._rings))

    def forget_closed(self) -> None:
        """Remove the rings whose producers closed them or died, once they are drained."""
        with self._lock:
            for ring in list(self._rings):
                if not ring.is_whole:
                    continue  # the next pass drops it
                is_over = ring.is_closed or not is_alive(owner_pid(ring.path))
                if is_over and ring.is_drained:
                    self._rings.remove(ring)
                    ring.unlink()

    def producers(self) -> list[tuple[int, RingFacts]]:
        """Return the process id and the ring's facts of each producer that lives."""
        with self._lock:
            living = [ring for ring in self._rings if ring.is_whole and not ring.is_closed]
            found = [(owner_pid(ring.path), ring.facts()) for ring in living]
        return [(pid, facts) for pid, facts in found if is_alive(pid)]

    def let_go(self) -> None:
        """Leave all rings to the next writer; called while the lock is held."""
        self._rings = []

    def _drain(self, rings: Sequence[ShardRing]) -> int:
        taken, to_disk = 0, False
        stored = []
        try:
            for ring in rings:
                count, some_to_disk = self._take_frames(ring)
                if count:
                    stored.append(ring)
                    taken += count
                    to_disk |= some_to_disk
            if taken:
                self._appends.publish_appended(to_disk=to_disk)
        except BaseException:  # the process may continue, and must not acknowledge them next time
            for ring in rings:
                if ring.is_whole:
                    ring.rewind()
            raise
        for ring in stored:
            if not to_disk or ring.is_whole:  # else the next pass drops it: a sync takes long
                ring.acknowledge()
        return taken

    def _take_frames(self, ring: ShardRing) -> tuple[int, bool]:
        """Store a ring's frames; return their number, and whether any is to be on disk."""
        count, to_disk = 0, False
        try:
            has_frames = ring.look()
            while has_frames:
                stored, some_to_disk = self._appends.store_ordinary(ring)
                count += stored
                to_disk |= some_to_disk
                self._appends.check_epoch()  # else the ring is a newer one's
                frame = ring.next_frame()
                if frame is None:
                    break  # everything published before the look is taken
                self._take_frame(ring, frame)
                count += 1
                to_disk |= frame.durability.needs_sync
        except RingCorruptError:
            _LOG.exception("shard %s drops a ring", self._appends.name)
            self._rings.remove(ring)
            ring.unlink()
        return count, to_disk

    def _take_frame(self, ring: ShardRing, frame: Frame) -> None:
        """Append one frame, or the part of it that an earlier incarnation did not append.

        Raises:
            RingCorruptError: the frame was to begin before the queue does.
        """
        before = ring.outcome(frame.sequence)
        if before is not None and before.status is not AppendStatus.PENDING:
            return  # an earlier incarnation stored it, and died before it acknowledged it
        try:
            batch = unpack_batch(bytes(frame.payload))  # which its producer cannot change
        except InvalidMessageError as error:
            self._appends.refuse(error)
            ring.record(frame.sequence, Ack(AppendStatus.MESSAGE_ILLEGAL))
            return
        if before is None and batch.owner_epoch:  # what this stores is no part of the frame
            status = self._appends.admit(batch.owner_epoch)
            if status is not AppendStatus.OK:
                ring.record(frame.sequence, Ack(status))
                return
        end = self._appends.next_queue_offset()
        # The slot is in the producer's file, so its offset counts only within the queue.
        first = end if before is None else min(before.first_queue_offset, end)
        if first < self._appends.min_queue_offset():
            raise RingCorruptError(
                f"{ring.path}: a frame begins at offset {first}, which was removed"
            )
        stored = min(end - first, len(batch.sizes))
        ring.record(frame.sequence, Ack(AppendStatus.PENDING, first))
        ack = self._appends.append(batch.without_first(stored) if stored else batch)
        if stored:  # every other status means that nothing was stored
            is_whole = ack.status is AppendStatus.OK
            try:
                count = len(batch.sizes)
                ack = self._appends.whole_ack(first, count) if is_whole else _UNKNOWN
            except (CorruptRecordError, OffsetOutOfRangeError) as error:
                self._appends.refuse(error)
                ack = _UNKNOWN
        ring.record(frame.sequence, ack)

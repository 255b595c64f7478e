"""Appends of a shard's writer to its store: one batch, or a ring's ordinary frames in one call.

Plain Python beneath :class:`~rocketray.broker.shards.shard_writer.ShardWriter`, which holds its
lock around each call.

Invariants
  1. Nothing is stored by an incarnation older than the newest (the epoch), for an owner older than
     the newest (ownership_fence.py), in a topic that is not writable, or on a disk that is too
     full; every refusal has a status.
"""

from __future__ import annotations

import logging

from rocketray.errors import InvalidMessageError, OwnerFencedError, ShardUnavailableError
from rocketray.kernels.drain import StoreCursor, drain_frames
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.runtime.ipc.append_status import status_of
from rocketray.runtime.ipc.control_page import ControlPage
from rocketray.runtime.ipc.ring import ShardRing
from rocketray.store.append_window import AppendWindow
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.formats.sys_flag import PREPARED
from rocketray.store.message_store import MessageStore

from .ownership_fence import OwnershipFence
from .unflushed import Unflushed

_LOG = logging.getLogger(__name__)


class ShardAppends:
    """Appends to the store of one ``(topic, queueId)``, and their counters."""

    def __init__(
        self,
        store: MessageStore,
        control: ControlPage,
        topic: str,
        queue_id: int,
        unflushed: Unflushed,
        *,
        fence: OwnershipFence,
    ) -> None:
        """Begin a new epoch."""
        self._unflushed = unflushed
        self.fence = fence
        """The newest owner whose batches are stored."""
        self._store = store
        self._control = control
        self._topic = topic
        self._queue_id = queue_id
        self.epoch = control.take_epoch()
        self._epoch_line = control.epoch.address
        self.writable = True
        self.is_disk_full = False
        self.is_closed = False
        self.batches = self.messages = self.refused = 0

    @property
    def name(self) -> str:
        """The topic and the queue id, as messages name them."""
        return f"{self._topic}/{self._queue_id}"

    def min_queue_offset(self) -> int:
        return self._store.reads.min_queue_offset(self._topic, self._queue_id)

    def next_queue_offset(self) -> int:
        return self._store.reads.max_queue_offset(self._topic, self._queue_id)

    def check_open(self) -> None:
        """Raise :class:`ShardUnavailableError` if the writer was closed."""
        if self.is_closed:
            raise self.unavailable("it was closed; the next call opens it again")

    def unavailable(self, reason: str) -> ShardUnavailableError:
        """Return the error of a call that stored nothing and may be repeated."""
        return ShardUnavailableError(f"shard {self.name}", reason)

    def check_epoch(self) -> None:
        """Raise :class:`ShardFencedError` if a newer process owns the shard."""
        self._control.check_epoch(self.epoch)

    def append(self, batch: EncodedBatch) -> Ack:
        """Store a batch, all or none of it, and return its outcome."""
        if len(batch.sizes) == 0:
            return Ack(AppendStatus.OK)
        status = self._status_before(batch)
        if status is not AppendStatus.OK:
            return Ack(status)
        try:
            self.check_epoch()
            self._unflushed.before_append()
            result = self._store.append(self._topic, self._queue_id, batch)
        except Exception as error:  # noqa: BLE001 - every failure has a status
            self.refuse(error)
            return Ack(status_of(error))
        self.batches += 1
        self.messages += result.count
        return Ack(
            AppendStatus.OK,
            result.first_queue_offset,
            result.first_physical_offset,
            result.store_timestamp_ms,
            result.count,
        )

    def _status_before(self, batch: EncodedBatch) -> AppendStatus:
        """Return OK if the batch may be stored, else why not."""
        if not self.writable:
            return AppendStatus.NOT_WRITABLE
        if self.is_disk_full:
            self.refused += 1
            return AppendStatus.STORE_FULL
        if batch.transaction & PREPARED:  # it could not be committed here
            reason = "a prepared message was sent; send it without the prepared flag"
            self.refuse(InvalidMessageError(reason))
            return AppendStatus.MESSAGE_ILLEGAL
        return self.admit(batch.owner_epoch) if batch.owner_epoch else AppendStatus.OK

    def admit(self, owner_epoch: int) -> AppendStatus:
        """Return OK if batches of that ownership epoch are stored, else why they are not.

        The record of an owner that is newer than all before is stored first.
        """
        try:
            newest = self.fence.newest()
        except Exception as error:  # noqa: BLE001 - every failure has a status
            self.refuse(error)
            return status_of(error)
        if owner_epoch < newest:
            self.refuse(OwnerFencedError(self.name))
            return AppendStatus.OWNER_FENCED
        if owner_epoch > newest:
            ack = self.append(self.fence.record(owner_epoch))
            if ack.status is not AppendStatus.OK:
                return ack.status
            self.fence.stored(owner_epoch)
        return AppendStatus.OK

    def store_ordinary(self, ring: ShardRing) -> tuple[int, bool]:
        """Store frames up to the first one that needs a closer check.

        Return their number, and whether any of them is to be on disk.
        """
        # What the kernel does not check; Python then takes frame by frame, and refuses each.
        if not self.writable or self.is_disk_full or not self._store.is_sound:
            return 0, False
        self._unflushed.before_append()
        to_disk = False

        def write(window: AppendWindow, store_timestamp_ms: int) -> int:
            nonlocal to_disk
            cursor = window.cursor
            count = drain_frames(
                ring.data,
                ring.slots,
                ring.cursor,
                window.log,
                window.queue_entries,
                window.index,
                cursor,
                window.store_host,
                window.hash_slots,
                window.max_entries,
                self._queue_id,
                store_timestamp_ms,
                self._epoch_line,
                self.epoch,
                self.fence.admitted,
            )
            to_disk = bool(cursor[StoreCursor.TO_DISK])
            self.batches += count
            self.messages += int(cursor[StoreCursor.MESSAGES])
            return count

        return self._store.append_through_window(self._topic, self._queue_id, write), to_disk

    def whole_ack(self, first_queue_offset: int, count: int) -> Ack:
        """Return the outcome of a batch of which a part was found in the log after a crash."""
        entry = self._store.reads.queue_entry(self._topic, self._queue_id, first_queue_offset)
        message = self._store.reads.view(entry.physical_offset)
        return Ack(
            AppendStatus.OK,
            first_queue_offset,
            message.physical_offset,
            message.store_timestamp_ms,
            count,
        )

    def publish_appended(self, *, to_disk: bool) -> None:
        """Publish what was appended, after it is on disk if *to_disk*."""
        if self.is_closed:
            return  # the page is the next one's
        if to_disk:  # before the watermark (shard_writer.py, invariant 2)
            self.flush()
        self._control.publish_visible(self.next_queue_offset())

    def flush(self, *, everything: bool = False) -> None:
        """Bring all messages to disk, the rest too if it is due; needs no lock."""
        self._unflushed.before_flush()
        self._control.publish_flushed(self._store.flush(everything=everything))

    def refuse(self, error: Exception) -> None:
        """Count and log a batch that is not stored."""
        self.refused += 1
        _LOG.warning("shard %s refused a batch: %s", self.name, error)

"""The fence of a queue that owners write: batches of a former owner are not stored.

A batch may carry the ownership epoch of its sender (groups/ownership_epochs.py). The newest epoch
of the queue is that of the last ownership record in its log. Batches without an epoch are not
looked at, and a queue that gets no others is never searched.

Invariants
  1. Nothing of an epoch older than the newest is stored.
  2. The newest epoch outlives the process: its record is stored before anything else of its owner,
     and is on disk before :meth:`ShardWriter.fence` returns.
"""

from __future__ import annotations

from collections.abc import Callable

from rocketray.broker.topics.ownership_record import OWNERSHIP_KEY, epoch_of, ownership_record
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.batches.encoded_batch import encode_messages
from rocketray.store.store_reads import StoreReads

_RECORDS_MAX = 100  # the last one is the newest; others are messages that only have its key
_NO_HOST = "127.0.0.1", 0  # the shard itself sends the record


class OwnershipFence:
    """The newest ownership epoch of one queue; its writer's lock is held around each call."""

    def __init__(self, reads: StoreReads, topic: str, clock_ms: Callable[[], int]) -> None:
        self._reads = reads
        self._topic = topic
        self._clock_ms = clock_ms
        self._newest: int | None = None  # unknown until it is asked for

    @property
    def admitted(self) -> int:
        """The newest epoch, if it was asked for already; 0 otherwise."""
        return self._newest or 0

    def newest(self) -> int:
        """Return the newest epoch, 0 if the queue never had an owner.

        Raises:
            StoreError: the log cannot be read.
        """
        if self._newest is None:
            found = self._reads.query(self._topic, OWNERSHIP_KEY, _RECORDS_MAX)
            self._newest = max((epoch_of(one) or 0 for one in found), default=0)
        return self._newest

    def record(self, epoch: int) -> EncodedBatch:
        """Return the record of a new owner, to store; :meth:`stored` follows."""
        record = ownership_record(self._topic, epoch)
        return encode_messages([record], born_host=_NO_HOST, clock_ms=self._clock_ms)

    def stored(self, epoch: int) -> None:
        """Note that the record of *epoch* is in the log."""
        self._newest = epoch

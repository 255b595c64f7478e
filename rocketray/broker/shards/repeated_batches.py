"""Deduplication of batches that are sent by a call, and may be sent again: each is stored once.

A producer that does not learn the outcome of its call sends the batch again. The batch may then be
in the log, or still in transit. It is identified by its unique keys, and by when it was packed, to
within some days: a process that runs for more than a month creates a key again. It is found among
the last 10,000 batches by the outcomes kept here, and, if the call says that it is a repetition, by
the shard's key index. The index also serves after the shard was closed and
opened again. An earlier call that is still in transit then is stored only while its sender waits
for it (``not_after_ms``), so not beside its repetition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from rocketray.base.property_string import decode_properties
from rocketray.kernels.layout import BORN_TIMESTAMP
from rocketray.message import UNIQUE_KEY
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.store.batches.batch_form import EncodedBatch

_REMEMBERED = 10_000  # older ones are found by the key index, with a read of the log
_SAME_KEYS_MS = 10 * 24 * 3_600_000  # a key is created again after a month at the earliest


class BatchIdentity(NamedTuple):
    """What no two batches have in common, unless one repeats the other."""

    first_key: str
    last_key: str
    messages: int
    born_ms: int
    """The born timestamp of the first message; a list that is packed again gets a later one."""

    def is_of(self, born_ms: int) -> bool:
        """Return whether a message with the same keys can be of this batch."""
        return abs(self.born_ms - born_ms) < _SAME_KEYS_MS


class RepeatedBatches:
    """The outcomes of the last batches; for one thread at a time."""

    def __init__(self, find: Callable[[BatchIdentity], Ack | None]) -> None:
        """Take *find*, which searches the log."""
        self._find = find
        self._acks: OrderedDict[str, tuple[BatchIdentity, Ack]] = OrderedDict()

    def once(self, batch: EncodedBatch, append: Callable[[], Ack], *, is_repeat: bool) -> Ack:
        """Return the outcome of *batch*: an earlier one, or that of *append*."""
        identity = _identity(batch)
        if identity is None:
            return append()
        known = self._acks.get(identity.first_key)
        before = known[1] if known and identity.is_of(known[0].born_ms) else None
        if before is None and is_repeat:
            before = self._find(identity)
        ack = before or append()
        if ack.status is AppendStatus.OK:
            self._acks[identity.first_key] = identity, ack
            if len(self._acks) > _REMEMBERED:
                self._acks.popitem(last=False)
        return ack


def _identity(batch: EncodedBatch) -> BatchIdentity | None:
    """Return the identity of a batch; None if its first message has no unique key."""
    first_key = _unique_key(batch, 0) if len(batch) else None
    if first_key is None:
        return None
    born = batch.records[BORN_TIMESTAMP : BORN_TIMESTAMP + 8].tobytes()
    return BatchIdentity(first_key, _unique_key(batch, -1) or "", len(batch), int.from_bytes(born))


def _unique_key(batch: EncodedBatch, row: int) -> str | None:
    """Return the unique key of one message; raises if the records do not match their sizes."""
    starts, sizes = batch.property_spans()
    start = int(starts[row])
    text = batch.records[start : start + int(sizes[row])].tobytes()
    return decode_properties(text).get(UNIQUE_KEY)

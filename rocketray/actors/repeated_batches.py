"""Batches that came by a call, and may come again: each is stored once.

A producer that does not hear what became of its call sends the batch again. The batch may then be
in the log, or on its way still. It is known by the unique key of its first message, which no other
batch has: among the last 10,000 batches by what is remembered here, and where it says itself that
it comes again, by the shard's key index: also after a restart of the shard, which ends all calls
that were on their way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from rocketray.message import UNIQUE_KEY, decode_properties
from rocketray.store.encoded_batch import EncodedBatch

from .ring import Ack, AppendStatus

__all__ = ["RepeatedBatches", "first_unique_key"]

_REMEMBERED = 10_000


class RepeatedBatches:
    """What became of the last batches; for one thread at a time."""

    def __init__(self, find: Callable[[str, int], Ack | None]) -> None:
        """*find* looks for a batch in the log, by its first unique key and its count."""
        self._find = find
        self._acks: OrderedDict[str, Ack] = OrderedDict()

    def once(self, batch: EncodedBatch, append: Callable[[], Ack], *, is_repeat: bool) -> Ack:
        """The outcome of *batch*: what it was before, or what *append* says."""
        key = first_unique_key(batch)
        if key is None:
            return append()
        before = self._acks.get(key)
        if before is None and is_repeat:
            before = self._find(key, len(batch))
        ack = before or append()
        if ack.status is AppendStatus.OK:
            self._acks[key] = ack
            if len(self._acks) > _REMEMBERED:
                self._acks.popitem(last=False)
        return ack


def first_unique_key(batch: EncodedBatch) -> str | None:
    """The unique key of the batch's first message.

    Raises:
        CorruptRecordError: the records are not what their sizes say.
    """
    if not len(batch):
        return None
    starts, sizes = batch.property_spans()
    start = int(starts[0])
    text = batch.records[start : start + int(sizes[0])].tobytes()
    return decode_properties(text).get(UNIQUE_KEY)

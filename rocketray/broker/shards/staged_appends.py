"""Appends of staged batches: each is stored once, however often and by whomever it is asked for.

Each batch has unique keys that no other has. Its messages are appended in one piece, so what a
process that died has stored of it are its first messages, one behind the other; what was stored
later are the next ones. Each such run is found by the key of its first message, in the index, which
has all that was appended before the call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence

from rocketray.base.property_string import decode_properties
from rocketray.errors import CorruptRecordError, OffsetOutOfRangeError
from rocketray.message import UNIQUE_KEY
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.store_reads import StoreReads

from .shard_appends import ShardAppends

_REMEMBERED = 10_000  # of which a repeated call is noticed without *in_doubt*
_SAME_KEYS_MAX = 10_000  # messages may have the key as a business key


class StagedAppends:
    """Appends to one shard; its writer's lock is held around each call."""

    def __init__(self, appends: ShardAppends, reads: StoreReads, topic: str, queue_id: int) -> None:
        self._appends = appends
        self._reads = reads
        self._place = topic, queue_id
        self._stored: OrderedDict[str, None] = OrderedDict()  # the first keys of the last batches

    def append(self, batches: Sequence[EncodedBatch], *, in_doubt: bool) -> Ack:
        """Store *batches* in their order, and return the first outcome that is not OK, else OK.

        A batch is looked for if it is *in_doubt*, or this process has stored it: then the call
        that is answered now is an old one.
        """
        for batch in batches:
            if not len(batch):
                continue
            key_at = _keys_of(batch)
            first_key = key_at(0)
            may_be_stored = in_doubt or first_key in self._stored
            stored = self._stored_of(len(batch), key_at) if may_be_stored else 0
            if stored < len(batch):
                ack = self._appends.append(batch.without_first(stored) if stored else batch)
                if ack.status is not AppendStatus.OK:
                    return ack
            self._stored[first_key] = None
            if len(self._stored) > _REMEMBERED:
                self._stored.popitem(last=False)
        return Ack(AppendStatus.OK)

    def _stored_of(self, count: int, key_at: Callable[[int], str]) -> int:
        """Return how many of the first messages of a batch are stored."""
        stored = 0
        while stored < count and (run := self._run_from(stored, count, key_at)):
            stored += run
        return stored

    def _run_from(self, row: int, count: int, key_at: Callable[[int], str]) -> int:
        """Return how many messages from *row* on are stored, one behind the other."""
        longest = 0
        for found in self._reads.query(self._place[0], key_at(row), _SAME_KEYS_MAX):
            if found.unique_key == key_at(row):  # else it is a business key of another message
                first = found.queue_offset - row

                def differs(at: int, first: int = first) -> int:
                    return int(self._key_at(first + at) != key_at(at))

                # What is stored of a run are its first messages: its end is found by halves.
                longest = max(longest, bisect_left(range(row, count), 1, key=differs))
        return longest

    def _key_at(self, queue_offset: int) -> str | None:
        try:
            entry = self._reads.queue_entry(*self._place, queue_offset)
            return self._reads.view(entry.physical_offset).unique_key
        except (OffsetOutOfRangeError, CorruptRecordError):
            return None


def _keys_of(batch: EncodedBatch) -> Callable[[int], str]:
    """Return the unique key of a message of *batch* by its row."""
    starts, sizes = batch.property_spans()

    def key_at(row: int) -> str:
        start = int(starts[row])
        text = batch.records[start : start + int(sizes[row])].tobytes()
        return decode_properties(text).get(UNIQUE_KEY, "")

    return key_at

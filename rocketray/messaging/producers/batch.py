"""A producer's batch: the messages that are sent together, and the outcome of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, overload

import numpy as np
import numpy.typing as npt

from rocketray.base.ack_mode import Durability
from rocketray.base.recall import RecallHandle
from rocketray.base.system_topics import WAITING_QUEUES
from rocketray.kernels.pack import ID_DIGITS
from rocketray.message import UNIQUE_KEY, ForwardedMessage
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.runtime.ipc.append_status import refusal
from rocketray.store.batches.encoded_batch import Owned, Packed, Packing, pack_batch
from rocketray.store.batches.forward import encode_forwarded
from rocketray.store.batches.message_columns import MessageColumns, RecordForm, RowsPacking


class SendResult(NamedTuple):
    """One stored message. ``message_id`` is its unique key, or the offset id if it has none.

    For a delayed message, queue and offset are those of the queue where it waits, and
    ``recall_handle`` is the handle to recall it.
    """

    message_id: str
    offset_message_id: str
    queue_id: int
    queue_offset: int
    recall_handle: str | None = None


_NEW = tuple.__new__  # twice as fast as the constructor
_DIGITS = 16  # of a physical offset in an offset id


class Destination(Protocol):
    """The queue that a batch is sent to, as far as the batch needs it."""

    name: str
    """Topic and queue, for messages."""
    data: Path
    """The node's data directory, for messages."""
    queue_id: int
    id_prefix: str
    """Prefix of the queue's offset ids, before the physical offset."""
    is_here: bool


@dataclass(slots=True, eq=False)
class Batch:
    """Messages that are sent together, and their outcome."""

    link: Destination
    form: RecordForm
    durability: Durability
    columns: MessageColumns = field(init=False)
    """The messages, until they are packed."""
    first_id: int = 0
    """Number of the first unique key that the producer created for it."""
    sequence: int = 0
    """Its number among the batches that its link sent the same way; 0 before it is sent."""
    ack: Ack | None = None
    failure: Exception | None = None
    unsure: bytes | None = None
    """The batch as it was sent, if a call left its outcome unknown."""
    is_repeated: bool = False
    """Whether a shard that ended may have stored it: a call says so, and it is stored once."""
    is_unsent: bool = False
    """Whether no shard has it: there was no room in time, or the one before it was not stored."""
    is_told: bool = False
    """Whether a caller got the error, so that the next one asks again."""
    after: Batch | None = None
    """The batch of its list before it, for the same queue: it is not sent if that is not stored."""
    handling: object = None
    """How its last message is sent: for another one that is sent so, nothing has to be checked."""
    one_way: int = 0
    """Number of one-way messages, whose results are never read."""
    owner_epoch: int = 0
    """The ownership epoch that it carries; 0 for none."""
    _own_ids: Mapping[int, str] | None = None
    _sizes: npt.NDArray[np.int32] | None = None
    _digits: tuple[str, str] | None = None
    _first_queue_offset: int = -1

    def __post_init__(self) -> None:
        self.columns = MessageColumns(self.form)

    def pack(self, first_id: int, now_ms: int) -> RowsPacking:
        """Return the batch to send; keeps what the results need, and releases the messages."""
        columns, count = self.columns, len(self.columns)
        packing = columns.pack(first_id, now_ms)
        self.first_id, self._own_ids = first_id, columns.own_ids
        del self.columns  # those who keep results keep no messages
        if count > 1:  # a single record begins where the batch does
            self._sizes = packing.sizes()
        return packing

    def pack_forwarded(self, messages: Sequence[ForwardedMessage]) -> Packed:
        """Return the batch of *messages* to send; they bring their ids."""
        encoded = encode_forwarded(messages)
        self._own_ids = {
            number: message.properties.get(UNIQUE_KEY, "")
            for number, message in enumerate(messages)
        }
        self._sizes = encoded.sizes
        return Packed(pack_batch(encoded))

    def owned(self, packing: Packing) -> Packing:
        return Owned(packing, self.owner_epoch) if self.owner_epoch else packing

    def measured(self, sizes: npt.NDArray[np.int32], first_id: int) -> None:
        """Keep what the results need: the sizes of its records, and their first id."""
        self.first_id, self._sizes = first_id, sizes

    @property
    def has_new_ids(self) -> bool:
        """Whether the producer created all of its unique keys, so no other message has them."""
        return not self._own_ids

    @property
    def settled(self) -> bool:
        return self.ack is not None or self.failure is not None

    @property
    def has_failed(self) -> bool:
        """Whether :meth:`check` would raise with the outcome known by now."""
        is_refused = self.ack is not None and self.ack.status is not AppendStatus.OK
        return self.failure is not None or is_refused

    @property
    def met_full_disk(self) -> bool:
        """Whether it was refused because its disk is full."""
        return self.ack is not None and self.ack.status is AppendStatus.STORE_FULL

    @property
    def may_be_repeated(self) -> bool:
        """Whether a shard failed to store it, and stores it once if it is sent again."""
        return self.has_new_ids and self.ack is not None and self.ack.status is AppendStatus.FAILED

    def check(self) -> Ack:
        """Return the outcome; raise the error that kept the batch from being stored."""
        failure = self.failure  # read once: another caller may ask the shard again meanwhile
        if failure is not None:
            self.is_told = True
            raise failure
        ack = self.ack
        assert ack is not None
        if ack.status is not AppendStatus.OK:
            self.is_told = True
            link = self.link
            raise refusal(ack.status, link.name, link.data, is_here=link.is_here)
        return ack

    def result(self, index: int) -> SendResult:
        """Return where the batch's message of that number was stored; raises as :meth:`check`."""
        offsets, numbers = self._digits or self._find_digits()
        link, form, start = self.link, self.form, _DIGITS * index
        end = start + _DIGITS
        offset_id = f"{link.id_prefix}{offsets[start:end]}"
        if self._own_ids and (own_id := self._own_ids.get(index)) is not None:
            message_id = own_id or offset_id
        else:
            message_id = f"{form.id_prefix}{numbers[end - ID_DIGITS : end]}"
        queue_id, queue_offset, handle = link.queue_id, self._first_queue_offset + index, None
        if form.topic in WAITING_QUEUES:
            handle = str(RecallHandle(form.topic, queue_id, queue_offset, message_id))
        return _NEW(SendResult, (message_id, offset_id, queue_id, queue_offset, handle))

    def _find_digits(self) -> tuple[str, str]:
        """Return, in hex digits, where each record begins, and the numbers of their unique keys.

        All at once: they take a third of the time of one at a time.
        """
        ack = self.check()
        self._first_queue_offset = ack.first_queue_offset
        first_offset, first_id, sizes = ack.first_physical_offset, self.first_id, self._sizes
        if sizes is None:
            found = f"{first_offset:0{_DIGITS}X}", f"{first_id:0{_DIGITS}X}"
        else:
            starts = np.cumsum(sizes, dtype=np.int64) - sizes
            found = _in_hex(first_offset + starts), _in_hex(first_id + np.arange(len(sizes)))
        self._digits = found
        return found


def _in_hex(numbers: npt.NDArray[np.int64]) -> str:
    return numbers.astype(">i8").tobytes().hex().upper()


class SendResults(Sequence[SendResult]):
    """The results of stored messages in their order; each is created when it is read."""

    __slots__ = ("_count", "_found", "_placed")

    def __init__(self, placed: Sequence[tuple[Batch, Sequence[int]]]) -> None:
        """Take *placed*: for each batch, the numbers of its messages."""
        self._placed = placed
        self._count = sum(len(numbers) for _, numbers in placed)
        self._found: list[tuple[Batch, int]] = []

    def __len__(self) -> int:
        return self._count

    @property
    def queues(self) -> Mapping[int, int]:
        """The number of messages that each queue got."""
        counts = Counter[int]()
        for batch, numbers in self._placed:
            counts[batch.link.queue_id] += len(numbers)
        return dict(counts)

    @overload
    def __getitem__(self, index: int) -> SendResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[SendResult]: ...

    def __getitem__(self, index: int | slice) -> SendResult | list[SendResult]:
        if isinstance(index, int) and len(self._placed) == 1:  # a batch has its messages in order
            return self._placed[0][0].result(range(self._count)[index])
        found = self._find()[index]
        if isinstance(found, list):
            return [batch.result(at) for batch, at in found]
        return found[0].result(found[1])

    def __iter__(self) -> Iterator[SendResult]:
        return (batch.result(at) for batch, at in self._find())

    def _find(self) -> list[tuple[Batch, int]]:
        """Return each message's batch and its number in it."""
        if not self._found:
            by_number = {
                number: (batch, at)
                for batch, numbers in self._placed
                for at, number in enumerate(numbers)
            }
            self._found = [by_number[number] for number in range(self._count)]
        return self._found

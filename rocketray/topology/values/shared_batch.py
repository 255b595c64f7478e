"""A consumed batch that several deliveries share, and its decoded forms.

A record that was damaged on disk affects its own message only. If a batch cannot be decoded as a
whole, its messages are decoded one by one, and reading a damaged one raises.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, SupportsIndex

from faust.types.tuples import TP

from rocketray.base.names import RETRY_PREFIX
from rocketray.broker.retries.retry_records import queue_of, topic_of
from rocketray.errors import CorruptRecordError, MessageTooLargeError
from rocketray.message import StoredMessage

from .wire import KEY_PROPERTIES, message_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from rocketray.broker.topics.consumed_batch import ConsumedBatch

DAMAGE = (CorruptRecordError, MessageTooLargeError)
"""The errors of a damaged message; the second, when it inflates beyond the size limit."""
ARROW_COLUMNS = (
    "topic",
    "queueId",
    "queueOffset",
    "body",
    "tags",
    "keys",
    "properties",
    "bornTimestamp",
    "storeTimestamp",
    "msgId",
)
"""The columns that a handler of whole batches gets by default."""


class SharedBatch:
    """A consumed batch whose forms are decoded once, however many deliveries share it."""

    def __init__(self, batch: ConsumedBatch) -> None:
        self.batch = batch
        self.tp = TP(batch.topic, batch.queue_id)
        self.is_retry = batch.topic.startswith(RETRY_PREFIX)
        """Whether its messages are retries, which belong to the topic they were first sent to."""
        # Only the last columns: the deliveries of one agent ask for the same ones.
        self._arrow: tuple[tuple[str, ...], pa.RecordBatch | list[Any]] | None = None

    def __len__(self) -> int:
        return len(self.batch)

    @cached_property
    def bodies(self) -> list[bytes]:
        """The body of each message; reading that of a damaged one raises one of ``DAMAGE``."""
        return self._decoded(lambda batch: batch.bodies())

    @cached_property
    def messages(self) -> list[StoredMessage]:
        """Each message, decoded; reading a damaged one raises one of ``DAMAGE``."""
        return self._decoded(lambda batch: batch.messages())

    @cached_property
    def keys(self) -> list[bytes | None]:
        """The key of each message, in Faust's sense; that of a damaged one raises as ``bodies``."""
        return self._decoded(
            lambda batch: [*map(message_key, *batch.property_texts(KEY_PROPERTIES))]
        )

    @cached_property
    def property_strings(self) -> list[bytes]:
        """All properties of each message, as stored; those of a damaged one raise as ``bodies``."""
        return self._decoded(lambda batch: batch.property_strings())

    def check(self, index: int) -> None:
        """Raise the error of the message at *index* if it is damaged."""
        single = self._singles[index]
        single.bodies()
        single.messages()

    def topic_of(self, index: int) -> str:
        """Return the topic that the message at *index* was sent to."""
        return topic_of(self.messages[index]) if self.is_retry else self.batch.topic

    def queue_of(self, index: int) -> int:
        """Return the queue of that topic from which the message at *index* first came."""
        return queue_of(self.messages[index]) if self.is_retry else self.batch.queue_id

    def to_arrow(self, columns: tuple[str, ...], begin: int, end: int) -> pa.RecordBatch:
        """Return the named columns, a row each, of the messages from *begin* up to *end*.

        The rows end before a damaged message; where that is the first, its error is raised.
        """
        if self._arrow is None or self._arrow[0] != columns:
            try:
                self._arrow = columns, self._columns_of(self.batch, columns)
            except DAMAGE:
                self._arrow = columns, self._each(lambda one: self._columns_of(one, columns))
        made = self._arrow[1]
        if not isinstance(made, list):
            return made.slice(begin, end - begin)
        good = list(takewhile(lambda row: not isinstance(row, DAMAGE), made[begin:end]))
        if not good:
            raise made[begin]
        import pyarrow as pa  # noqa: PLC0415  # most apps do not use it

        return pa.Table.from_batches(good).combine_chunks().to_batches()[0]

    def next_queue_offset(self, index: int) -> int:
        """Return the offset to commit when the messages before *index* are finished."""
        if index < len(self.batch):
            return int(self.batch.queue_offsets[index])
        return self.batch.next_queue_offset

    @cached_property
    def _singles(self) -> Sequence[ConsumedBatch]:
        return self.batch.pieces(1)

    def _decoded(self, decode: Callable[[ConsumedBatch], list[Any]]) -> list[Any]:
        try:
            return decode(self.batch)
        except DAMAGE:
            return _Partly(self._each(lambda single: decode(single)[0]))

    def _each(self, decode: Callable[[ConsumedBatch], Any]) -> list[Any]:
        """Decode each message alone; return its value, or its error."""
        found: list[Any] = []
        for single in self._singles:
            try:
                found.append(decode(single))
            except DAMAGE as error:
                found.append(error)
        return found

    def _columns_of(self, batch: ConsumedBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
        made = batch.to_arrow(columns)
        if self.is_retry:
            # Imports Arrow, which only handlers of whole batches need.
            from rocketray.broker.retries.first_topics import with_first_topics  # noqa: PLC0415

            made = with_first_topics(made, batch.messages())
        return made


class _Partly(list[Any]):
    """Values, with errors in place of damaged ones; reading one of these raises it."""

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        found = super().__getitem__(index)
        for one in found if isinstance(index, slice) else (found,):
            if isinstance(one, DAMAGE):
                raise one.with_traceback(None)
        return found

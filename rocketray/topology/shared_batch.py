"""A consumed batch that several deliveries share, and its decoded forms."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from faust.types.tuples import TP

from rocketray.actors.send_back import queue_of, topic_of
from rocketray.message import StoredMessage
from rocketray.names import RETRY_PREFIX

if TYPE_CHECKING:
    import pyarrow as pa

    from .connection import ConsumedBatch

__all__ = ["SharedBatch"]


class SharedBatch:
    """A consumed batch whose decoded forms are made once, however many deliveries share it."""

    def __init__(self, batch: ConsumedBatch) -> None:
        self.batch = batch
        self.tp = TP(batch.topic, batch.queue_id)
        self.is_retry = batch.topic.startswith(RETRY_PREFIX)
        """Its messages come again, and belong to the topic that they came from."""
        self._arrow: tuple[tuple[str, ...], pa.RecordBatch] | None = None

    def __len__(self) -> int:
        return len(self.batch)

    @cached_property
    def bodies(self) -> list[bytes]:
        """The body of each message."""
        return self.batch.bodies()

    @cached_property
    def messages(self) -> list[StoredMessage]:
        """Each message, decoded."""
        return self.batch.messages()

    def topic_of(self, index: int) -> str:
        """The topic that the message at *index* was sent to."""
        return topic_of(self.messages[index]) if self.is_retry else self.batch.topic

    def queue_of(self, index: int) -> int:
        """The queue of that topic that the message at *index* came from first."""
        return queue_of(self.messages[index]) if self.is_retry else self.batch.queue_id

    def to_arrow(self, columns: tuple[str, ...]) -> pa.RecordBatch:
        """The named columns of all messages, a row each."""
        if self._arrow is None or self._arrow[0] != columns:
            batch = self.batch.to_arrow(columns)
            if self.is_retry:
                from rocketray.actors.first_topics import with_first_topics  # noqa: PLC0415  # imports PyArrow

                batch = with_first_topics(batch, self.messages)
            self._arrow = columns, batch
        return self._arrow[1]

    def next_queue_offset(self, index: int) -> int:
        """Where the queue goes on when the messages before *index* are finished."""
        if index < len(self.batch):
            return int(self.batch.queue_offsets[index])
        return self.batch.next_queue_offset

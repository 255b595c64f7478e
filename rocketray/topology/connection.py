"""The interface of a node to an app: members of groups, a producer, and topics.

These protocols are all that the data path of an app knows of the cluster. ``rocketray.actors``
implements them over Ray and shared memory; the tests implement them over a ``MessageStore`` in the
same process. Every method may block, so an app calls them from threads of its own. The one
exception is ``GroupConsumer.commit``, which is local and cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from rocketray.actors.consumers.member import GroupConsumer
    from rocketray.actors.groups.assignment import Strategy
    from rocketray.actors.groups.groups_api import GroupsApi, SessionsApi
    from rocketray.actors.groups.heartbeat import AppInstance
    from rocketray.actors.producers.producer_options import AckMode
    from rocketray.actors.topics.topics import Topics
    from rocketray.delay import Delay
    from rocketray.filters.subscription import Subscription
    from rocketray.message import ForwardedMessage, Message, StoredMessage

__all__ = [
    "AppNode",
    "ConsumedBatch",
    "Forwarder",
    "Producer",
    "QueueTail",
    "SendFuture",
    "SendResult",
]


class ConsumedBatch(Protocol):
    """Messages of one queue that match the subscription, in queue order.

    ``next_queue_offset`` is the offset to commit once all of them are finished. It lies beyond the
    entries after the last match that the filter rejected, so an empty batch may still advance it.
    """

    @property
    def topic(self) -> str:
        """The topic of all messages."""
        ...

    @property
    def queue_id(self) -> int:
        """The queue of all messages."""
        ...

    @property
    def next_queue_offset(self) -> int:
        """The queue offset at which reading resumes after this batch."""
        ...

    @property
    def queue_offsets(self) -> npt.NDArray[np.int64]:
        """The offset of each message: int64[n], growing, with gaps for rejected messages."""
        ...

    @property
    def size_bytes(self) -> int:
        """The size of all records, in bytes as stored."""
        ...

    def __len__(self) -> int: ...

    def pieces(self, max_bytes: int) -> Sequence[ConsumedBatch]:
        """Split the batch into parts of *max_bytes* of records, or of one message.

        The last part carries ``next_queue_offset`` of the whole batch.
        """
        ...

    def bodies(self) -> list[bytes]:
        """Return the body of each message."""
        ...

    def messages(self) -> list[StoredMessage]:
        """Return each message, decoded."""
        ...

    def to_arrow(self, columns: Sequence[str]) -> pa.RecordBatch:
        """Return the named columns, one row a message."""
        ...


class SendResult(Protocol):
    """The position of one stored message."""

    @property
    def message_id(self) -> str:
        """The unique key that the producer gave the message."""
        ...

    @property
    def queue_id(self) -> int:
        """The queue that stores the message."""
        ...

    @property
    def queue_offset(self) -> int:
        """The message's position in that queue."""
        ...

    @property
    def recall_handle(self) -> str | None:
        """The handle that recalls the message; None unless the message is delayed."""
        ...


class SendFuture(Protocol):
    """Messages in flight from a producer to shards."""

    def result(self) -> Sequence[SendResult]:
        """Wait until all are stored, and return their places in the same order.

        Raises ``ShardUnavailableError`` while a message is not stored, or its outcome is unknown;
        call again then.
        """
        ...


class Producer(Protocol):
    """A sender of batches; any thread may call it."""

    def begin_many(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        delays: Sequence[Delay] = ...,
        queue_id: int | None = ...,
    ) -> SendFuture:
        """Send *messages*, all to one topic; *delays* delays each of them.

        Without *queue_id*, messages with the property ``__SHARDINGKEY`` go to the queue of that
        key, so that one key keeps its order; the producer chooses the queue of the others.
        """
        ...

    def close(self) -> None:
        """Send what is buffered and release the producer's resources."""
        ...


class QueueTail(Protocol):
    """A reader of one queue without a group; see ``rocketray.actors.topics.queue_tail``."""

    def minimum(self) -> int:
        """Return the first queue offset that is still stored."""
        ...

    def end(self) -> int:
        """Return the queue offset after the last message."""
        ...

    def read(self, start: int, max_count: int) -> list[StoredMessage]:
        """Return messages from *start*; raise ``OffsetOutOfRangeError`` if they were deleted."""
        ...

    def close(self) -> None:
        """Release the reader's resources."""
        ...


class Forwarder(Producer, Protocol):
    """A producer that also stores messages again, unchanged."""

    def forward(
        self, topic: str, queue_id: int, messages: Sequence[ForwardedMessage]
    ) -> Sequence[SendResult]:
        """Store messages again, as one batch: either all of them are stored, or none."""
        ...


class AppNode(Protocol):
    """A node as an app sees it."""

    @property
    def data(self) -> Path:
        """The node's data directory; every process may read its files."""
        ...

    def consumer(
        self,
        group: str,
        topic: str,
        subscription: Subscription,
        *,
        start: Literal["earliest", "latest"] | int = ...,
        strategy: Strategy = ...,
        together: AppInstance | None = ...,
        client_id: str | None = ...,
        broadcast: bool = ...,
    ) -> GroupConsumer:
        """Join *group* as a new member.

        *start* applies where the group has no offset yet; a number is a store time in milliseconds.

        *strategy* divides the queues among the group's members. All members with the same
        *together* read the same queue numbers of their topics instead (co-partitioning). In
        *broadcast* mode each member receives every message, and keeps its offsets under its
        *client_id*.
        """
        ...

    def clock_ms(self) -> int:
        """Return the node's clock, in milliseconds since 1970."""
        ...

    def producer(self, *, ack: AckMode = ...) -> Forwarder:
        """Return a producer for any topic; *ack* says whether stored means in memory or on disk."""
        ...

    @property
    def topics(self) -> Topics:
        """The node's topics."""
        ...

    @property
    def groups(self) -> GroupsApi:
        """The calls about consumer groups."""
        ...

    @property
    def sessions(self) -> SessionsApi:
        """The calls of group members."""
        ...

    def queue_tail(self, topic: str, queue_id: int) -> QueueTail:
        """Return a reader of one queue, which may not exist yet."""
        ...

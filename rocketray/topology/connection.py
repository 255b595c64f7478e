"""What a topology needs of a node: members of groups, a producer, and topics.

These protocols are all that the data path of an app knows of the cluster. ``rocketray.actors``
implements them over Ray and shared memory; the tests implement them over a ``MessageStore`` in
the same process. Every method may block, so an app calls them from threads of its own, with the
one exception of ``GroupConsumer.commit``, which is local and cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from rocketray.actors.groups.assignment import Strategy
    from rocketray.actors.groups.failing import FailingMessage
    from rocketray.actors.groups.heartbeat import AppInstance, Heartbeat, HeartbeatReply
    from rocketray.actors.producers.batch import AckMode
    from rocketray.delay import Delay
    from rocketray.filters.subscription import Subscription
    from rocketray.message import ForwardedMessage, Message, StoredMessage
    from rocketray.store.retention import RetentionPolicy

    from .routes import GroupOnTopic

__all__ = [
    "Connection",
    "ConsumedBatch",
    "Forwarder",
    "GroupConsumer",
    "PendingMessages",
    "Producer",
    "QueueTail",
    "SendResult",
]


class ConsumedBatch(Protocol):
    """Messages of one queue that match the subscription, in queue order.

    ``next_queue_offset`` is what to commit once all of them are finished: it lies beyond the
    entries after the last match that the filter left out. A batch may be empty and still move it.
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
        """Where the queue goes on after this batch."""
        ...

    @property
    def queue_offsets(self) -> npt.NDArray[np.int64]:
        """The offset of each message: int64[n], growing, with holes where the filter said no."""
        ...

    @property
    def size_bytes(self) -> int:
        """The bytes of all records, as they are stored."""
        ...

    def __len__(self) -> int: ...

    def pieces(self, max_bytes: int) -> Sequence[ConsumedBatch]:
        """The batch in parts of *max_bytes* of records, or of one message; the last moves it on."""
        ...

    def bodies(self) -> list[bytes]:
        """The body of each message."""
        ...

    def messages(self) -> list[StoredMessage]:
        """Each message, decoded."""
        ...

    def to_arrow(self, columns: Sequence[str]) -> pa.RecordBatch:
        """The named columns, one row a message."""
        ...


class GroupConsumer(Protocol):
    """One member of one group on one topic. One thread polls; commits may come from another."""

    on_revoke: Callable[[frozenset[tuple[str, int]]], None] | None
    """Called by ``poll`` or ``close`` with the queues that are taken away, before they are gone."""

    @property
    def is_leased(self) -> bool:
        """False while others may own the member's queues: then nothing may be handed out."""
        ...

    @property
    def has_to_settle(self) -> bool:
        """A poll must come even without room for messages: queues change hands, or it raises."""
        ...

    def poll(
        self, timeout_s: float, max_messages: int = ..., skip: Container[int] = ...
    ) -> Sequence[ConsumedBatch]:
        """Wait up to *timeout_s* for messages; empty when there are none.

        Nothing comes from the queues in *skip*. Call ``wake`` when that becomes less meanwhile.
        """
        ...

    def wake(self) -> None:
        """Have a poll that waits look again. Local; for any thread."""
        ...

    def commit(self, topic: str, queue_id: int, next_queue_offset: int) -> None:
        """Everything below *next_queue_offset* is finished. Local; sent on in batches."""
        ...

    def assignment(self) -> frozenset[tuple[str, int]]:
        """The (topic, queue id) pairs that this member reads now."""
        ...

    def count_returns(self, *, sent_back: int = 0, dead_lettered: int = 0) -> None:
        """Add to what the group's counters say of messages that failed. Local; for any thread."""
        ...

    def report_failing(self, failing: Mapping[int, FailingMessage]) -> None:
        """Say at which messages queues are held now, and no others. Local; for any thread."""
        ...

    def close(self) -> None:
        """Send the commits and leave the group."""
        ...


class SendResult(Protocol):
    """Where one message was stored."""

    @property
    def message_id(self) -> str:
        """The unique key that the producer gave the message."""
        ...

    @property
    def queue_id(self) -> int:
        """The queue that took it."""
        ...

    @property
    def queue_offset(self) -> int:
        """Its place in that queue."""
        ...

    @property
    def recall_handle(self) -> str | None:
        """By what it is recalled; None for a message that is not delayed."""
        ...


class PendingMessages(Protocol):
    """Messages on their way to shards."""

    def results(self) -> Sequence[SendResult]:
        """Wait until all are stored, and return their places in the same order.

        Raises ``ShardUnavailableError`` while that is not so, or not known; ask again then.
        """
        ...


class Producer(Protocol):
    """Sends batches; any thread may call it."""

    def begin_messages(
        self, topic: str, messages: Sequence[Message], *, queue_id: int | None = None
    ) -> PendingMessages:
        """Send *messages*, all to one topic.

        Without *queue_id*, messages with the property ``__SHARDINGKEY`` go to the queue of that
        key, so that one key keeps its order, and the others where the producer likes.
        """
        ...

    def begin_delayed(
        self, messages: Sequence[tuple[Message, Delay]], *, queue_id: int | None = None
    ) -> PendingMessages:
        """Send messages that are delivered later."""
        ...

    def close(self) -> None:
        """Send what is collected and give up what the producer holds."""
        ...


class QueueTail(Protocol):
    """Reads one queue without a group; see ``rocketray.actors.topics.queue_tail``."""

    def minimum(self) -> int:
        """The first queue offset that is still there."""
        ...

    def end(self) -> int:
        """The queue offset behind the last message."""
        ...

    def read(self, start: int, max_count: int) -> list[StoredMessage]:
        """The messages from *start* on; raises ``OffsetOutOfRangeError`` when they are gone."""
        ...

    def close(self) -> None:
        """Give up what the reading holds."""
        ...


class Forwarder(Producer, Protocol):
    """A producer that also stores messages again as what they were."""

    def forward(
        self, topic: str, queue_id: int, messages: Sequence[ForwardedMessage]
    ) -> Sequence[SendResult]:
        """Store messages again, as one batch: all of them are stored, or none."""
        ...


class Connection(Protocol):
    """A node as an app sees it."""

    @property
    def data(self) -> Path:
        """The node's data directory, whose files anybody may read."""
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

        *start* counts where the group has no offset yet; a number is a store time in milliseconds.

        *strategy* divides the queues among the group's members. All members of one *together*
        read the same queue numbers of their topics instead. In *broadcast* mode each member gets
        everything, and keeps its offsets under its *client_id*.
        """
        ...

    def clock_ms(self) -> int:
        """The node's clock, in milliseconds since 1970."""
        ...

    def producer(self, *, ack: AckMode = ...) -> Forwarder:
        """A producer for any topic; what it sends is stored when it is in memory, or on disk."""
        ...

    def topics(self) -> Mapping[str, Any]:
        """All topics by name; each tells how many ``queues`` it has."""
        ...

    def alter_topic(self, topic: str, queues: int) -> Any:
        """Make *topic*, or give it more queues."""
        ...

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Report a member to the coordinator."""
        ...

    def leave(self, beat: Heartbeat) -> None:
        """Give everything up that a member had."""
        ...

    def groups(self) -> Sequence[GroupOnTopic]:
        """All groups, an entry for each topic."""
        ...

    def delete_topic(self, topic: str) -> None:
        """Remove a topic and all its messages."""
        ...

    def delete_group(self, group: str) -> None:
        """Forget a group that has no members."""
        ...

    def queue_tail(self, topic: str, queue_id: int) -> QueueTail:
        """A reader of one queue, which may not have been made yet."""
        ...

    def create_topic(
        self,
        topic: str,
        queues: int = ...,
        retention: RetentionPolicy = ...,
        *,
        hosted: bool = ...,
    ) -> Any:
        """Create *topic* unless it exists; an existing one stays as it is.

        The shards of a *hosted* topic share a process with others.
        """
        ...

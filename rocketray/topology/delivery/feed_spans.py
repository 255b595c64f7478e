"""The spans of a feed, where ``App(tracing=…)`` is given: of its polls, and of its commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.topology.values.group import GroupMembership
from rocketray.topology.values.shared_batch import DAMAGE

if TYPE_CHECKING:
    from rocketray.tracing import GroupQueue, TracedMessage, Tracing


class FeedSpans:
    """Tells *tracing* what a feed receives and settles; times are by *clock_ms*."""

    def __init__(
        self, tracing: Tracing, membership: GroupMembership, clock_ms: Callable[[], int]
    ) -> None:
        self._tracing = tracing
        self._membership = membership
        self.clock_ms = clock_ms

    def received(self, batches: Sequence[ConsumedBatch], begun_ms: int) -> None:
        """Record what a poll brought that began at that time."""
        for batch in batches:
            if len(batch):
                place = place_of(self._membership, batch.topic, batch.queue_id)
                messages = partial(first_messages_of, batch)
                self._tracing.receive(place, len(batch), messages, begun_ms, self.clock_ms())

    def settled(self, topic: str, queue_id: int, next_offset: int, begun_ms: int) -> None:
        """Record a commit that began at that time."""
        place = place_of(self._membership, topic, queue_id)
        self._tracing.settle(place, next_offset, begun_ms, self.clock_ms())


def place_of(membership: GroupMembership | None, topic: str, queue_id: int) -> GroupQueue:
    """Return a queue as spans name it."""
    from rocketray.tracing import GroupQueue  # noqa: PLC0415 - imports OpenTelemetry

    if membership is None:  # a stream without an agent
        return GroupQueue(topic, queue_id, "")
    return GroupQueue(topic, queue_id, membership.group, membership.is_broadcast)


def first_messages_of(batch: ConsumedBatch) -> list[TracedMessage]:
    """Return what spans say of the messages that they link to."""
    from rocketray.tracing import LINKS_MAX  # noqa: PLC0415 - imports OpenTelemetry

    return messages_of(replace(batch, entries=batch.entries.select(slice(LINKS_MAX))))


def messages_of(batch: ConsumedBatch) -> list[TracedMessage]:
    """Return what spans say of the messages; nothing of all if one is damaged."""
    from rocketray.tracing import TracedMessage, traced_messages  # noqa: PLC0415 - OpenTelemetry

    try:
        return traced_messages(batch)
    except DAMAGE:
        return [TracedMessage()] * len(batch)

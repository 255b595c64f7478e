"""A group member in a test: it beats with the test's clock, and the filter runs at each poll."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.errors import StreamError
from rocketray.messaging.consumers.member import GroupConsumer


class Member(GroupConsumer):
    """A :class:`~rocketray.messaging.consumers.member.GroupConsumer` without a thread of its own.

    ``Broker.consumer`` creates them.
    """

    def __init__(
        self,
        node: Any,
        group: str,
        topic: str,
        *arguments: Any,
        step: Callable[[], None],
        **options: Any,
    ) -> None:
        self.group = group
        self.topic = topic
        self.silent_until_ms = 0
        """Its heartbeats are lost until then; see :meth:`Broker.silence`."""
        self._step = step
        self._crashed = False
        super().__init__(node, group, topic, *arguments, has_heart=False, **options)

    def poll(
        self, timeout_s: float = 0.0, max_messages: int = 1000, skip: Container[int] = ()
    ) -> list[ConsumedBatch]:
        """Poll like the real one, after a step of the node."""
        if self._crashed:
            raise StreamError(f"this member of group {self.group!r} crashed, as the test asked")
        self._step()
        return super().poll(timeout_s, max_messages, skip)

    def close(self) -> None:
        """Leave the group; a crashed member does nothing."""
        if not self._crashed:
            super().close()

    def crash(self) -> None:
        """End like a killed process: without a commit, and without notice to the group."""
        self._crashed = True
        self._closed.set()
        for stream in self._queues.streams.values():
            stream.stop()
        self._queues.streams.clear()
        self._streams.bell.ring()
        self._streams.close()

    @property
    def is_alive(self) -> bool:
        """Whether it neither left nor crashed."""
        return not self._closed.is_set()

    @property
    def is_moving(self) -> bool:
        """Whether the next poll starts assigned queues or releases revoked ones."""
        return self._session.needs_rebalance or self._queues.has_to_open

    def finished(self) -> dict[int, int]:
        """Return the offset below which each queue is finished."""
        return self._session.finished()

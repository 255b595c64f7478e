"""Faust's producer, over the outbox of an app.

Our ``Topic.send`` uses the outbox directly. This producer serves Faust's own sends, as key, value
and headers, and its buffer for sends from code that cannot await.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from faust.transport.producer import Producer

from rocketray.topology.values.topic import announce

__all__ = ["OutboxProducer"]


class OutboxProducer(Producer):  # type: ignore[misc]  # Faust's types are not followed
    """The producer of one app."""

    async def send(  # noqa: PLR0917  # Faust's interface
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: Any,
        *,
        transactional_id: str | None = None,  # noqa: ARG002  # of Faust's interface, for Kafka
    ) -> Awaitable[Any]:
        """Queue one message; the result is done once it is stored."""
        all_headers = announce(self.app, key, value, partition, timestamp, headers)
        message = self.app.topic(topic).message(
            value or b"", None, key=key, headers=all_headers, timestamp=timestamp
        )
        future: Awaitable[Any] = await self.app.send_message(message, partition)
        return future

    async def send_and_wait(self, *arguments: Any, **options: Any) -> Any:
        """Store one message."""
        return await (await self.send(*arguments, **options))

    async def flush(self) -> None:
        """Wait until everything sent is stored; raise a failure that was not reported yet.

        Faust's last call when an app stops; it must complete.
        """
        await self.buffer.flush()
        await self.app.flush_sends(is_commit=False)

    async def flush_before_commit(self) -> None:
        """As :meth:`flush`, but raise every time once a message could not be stored."""
        await self.buffer.flush()
        await self.app.flush_sends()

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        replication: int,  # noqa: ARG002  # of Faust's interface, for Kafka
        *,
        retention: Any = None,
        **_options: Any,
    ) -> None:
        """Create *topic* unless it exists."""
        await self.app.declare_topic(topic, partitions, retention)

    def supports_headers(self) -> bool:
        """Return True: headers become properties."""
        return True

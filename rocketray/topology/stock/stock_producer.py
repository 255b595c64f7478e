"""The producer of stock Faust apps: keys choose queues, and the outbox makes batches.

A key goes to the queue that every producer of ours chooses for it, unless the app has a
``producer_partitioner`` of its own. A message without a key goes where the next batch goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from faust.transport.producer import Producer
from faust.types.tuples import TP, RecordMetadata

from rocketray.base.ack_mode import AckMode
from rocketray.errors import InvalidMessageError
from rocketray.topology.delivery.outbox import Outboxes
from rocketray.topology.values.wire import key_hash, message_of, topic_name


class StockProducer(Producer):  # type: ignore[misc]  # Faust's types are not followed
    """The producer of one app."""

    def __post_init__(self) -> None:
        self._outboxes = Outboxes(self.transport.connect)

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
    ) -> Awaitable[RecordMetadata]:
        """Queue one message; the result is done once it is stored."""
        queues = await self.transport.queue_count(topic)
        if value == b"" and topic in self.transport.changelogs:
            raise InvalidMessageError(
                f"changelog {topic!r}: an empty value cannot be stored, because compaction would "
                "delete its key; delete the key, or store a value that stands for nothing"
            )
        if partition is None and key is not None:
            partition = self._choose(key, queues)
        message = message_of(topic_name(topic), key, value, headers, timestamp)
        # The offsets that are committed behind a change are on disk, so the change has to be, too.
        ack: AckMode | None = "disk" if topic in self.transport.changelogs else None
        outbox = await self._outboxes.get(ack)
        future = await outbox.put(message, partition)
        if message.topic == topic:
            return future
        return asyncio.ensure_future(_renamed(future, topic))

    async def send_and_wait(self, *arguments: Any, **options: Any) -> RecordMetadata:
        return await (await self.send(*arguments, **options))

    async def flush(self) -> None:
        """Wait until everything sent is stored; raise what could not be."""
        await self.buffer.flush()
        await self._outboxes.flush()

    async def on_stop(self) -> None:
        """Store what was sent."""
        await self._outboxes.close()

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        replication: int,  # noqa: ARG002  # of Faust's interface, for Kafka
        *,
        retention: Any = None,
        compacting: bool | None = None,
        **_options: Any,
    ) -> None:
        """Create *topic* unless it exists; one that is *compacting* keeps the last of each key."""
        await self.transport.create_topic(
            topic, partitions, retention, is_changelog=bool(compacting)
        )

    def key_partition(self, topic: str, key: bytes) -> TP:
        """Return the queue of *key* in a topic that this app reads or created."""
        return TP(topic, self._choose(key, self.transport.known_queue_count(topic) or 1))

    def supports_headers(self) -> bool:
        """Return True: headers become properties."""
        return True

    def _choose(self, key: bytes, queues: int) -> int:
        if self.partitioner is None:
            return key_hash(key) % queues
        numbers = list(range(queues))
        return int(self.partitioner(key, numbers, numbers))


async def _renamed(future: Awaitable[RecordMetadata], topic: str) -> RecordMetadata:
    """Return the position of a message under Faust's name for its topic."""
    place = await future
    return place._replace(topic=topic, topic_partition=TP(topic, place.partition))

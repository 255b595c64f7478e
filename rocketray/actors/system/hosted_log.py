"""What a service of the shard host does with the host's own topics: read them, and add to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketray.actors.files.state_files import disk_use
from rocketray.actors.ipc.append_status import refusal
from rocketray.actors.ipc.ring import AppendStatus, Durability
from rocketray.message import Message, StoredMessage
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.retention import RetentionPolicy

from .shard_host import ShardHost

__all__ = ["HostedLog"]

_BORN_HOST = ("127.0.0.1", 0)


class HostedLog:
    """Queue 0 of each hosted topic."""

    def __init__(self, host: ShardHost, clock_ms: Callable[[], int]) -> None:
        self._host = host
        self._clock_ms = clock_ms

    def exists(self, topic: str) -> bool:
        """Whether the topic was made."""
        return self._host.find(topic, 0) is not None

    def read(self, topic: str, queue_offset: int, max_count: int) -> list[StoredMessage]:
        """Messages from *queue_offset* on, none where the topic was not made yet.

        From the first one that is left, where *queue_offset* is gone.
        """
        shard = self._host.find(topic, 0)
        found: list[StoredMessage] = []
        if shard is None:
            return found
        queue_offset = max(queue_offset, shard.writer.control.minimum())
        with shard.writer.reading():
            while len(found) < max_count:
                message = shard.writer.message_at(queue_offset + len(found))
                if message is None:
                    break
                found.append(message)
        return found

    def find(self, topic: str, key: str, max_count: int) -> list[StoredMessage]:
        """Messages with that key or unique key, oldest first; none where the topic was not made."""
        shard = self._host.find(topic, 0)
        return [] if shard is None else shard.query(key, max_count, 0, 2**63 - 1)

    def flush(self, *topics: str) -> None:
        """Bring what these topics hold by now to disk."""
        for topic in topics:
            shard = self._host.find(topic, 0)
            if shard is not None:
                shard.writer.flush()

    def expire(self, needed_from: Mapping[str, int], policy: RetentionPolicy) -> None:
        """Let files of topics go of which nothing is needed, from a queue offset on."""
        for topic, offset in needed_from.items():
            shard = self._host.find(topic, 0)
            if shard is not None:
                shard.writer.expire(policy, offset, disk_use(shard.writer.store.directory))

    def store(self, message: Message) -> int:
        """Store a message, in memory that outlives the process; its queue offset.

        Raises:
            StreamError: it was not stored.
        """
        batch = encode_messages([message], born_host=_BORN_HOST, clock_ms=self._clock_ms)
        ack = self._host.append(message.topic, 0, pack_batch(batch), Durability.MEMORY)
        if ack.status is not AppendStatus.OK:
            raise refusal(ack.status, f"{message.topic}/0", self._host.data)
        return ack.first_queue_offset

"""The access of system services to system topics: read them, and append to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketray.base.ack_mode import Durability
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.errors import ShardUnavailableError
from rocketray.message import Message, StoredMessage
from rocketray.runtime.files.state_files import disk_use
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.runtime.ipc.append_status import refusal
from rocketray.store.batches.encoded_batch import encode_messages, pack_batch
from rocketray.store.retention import RetentionPolicy

_BORN_HOST = ("127.0.0.1", 0)  # the node itself, without a connection


class SystemLog:
    """The queue of each topic that is in a disk's shared process."""

    def __init__(self, process: ShardProcess, clock_ms: Callable[[], int]) -> None:
        self._process = process
        self._clock_ms = clock_ms
        self._queues: dict[str, int] = {}

    def exists(self, topic: str) -> bool:
        """Return whether the topic exists, and its shard is open."""
        return self._find(topic) is not None

    def read(self, topic: str, queue_offset: int, max_count: int) -> list[StoredMessage]:
        """Return messages from *queue_offset* on, none if the topic does not exist yet.

        If *queue_offset* is removed, they begin at the first message that still exists.

        Raises:
            ShardUnavailableError: the topic's shard is closed, so its messages are not known.
        """
        shard = self._shard(topic)
        found: list[StoredMessage] = []
        if shard is None:
            return found
        queue_offset = max(queue_offset, shard.writer.control.minimum())
        gaps = shard.writer.store.reads.gaps(*shard.place)
        with shard.writer.reading():
            while len(found) < max_count:
                message = shard.writer.message_at(gaps.after(queue_offset))
                if message is None:
                    break
                found.append(message)
                queue_offset = message.queue_offset + 1
        return found

    def find(self, topic: str, key: str, max_count: int) -> list[StoredMessage]:
        """Return messages with that key or unique key, oldest first; none without the topic."""
        shard = self._shard(topic)
        return [] if shard is None else shard.lookups.query(key, max_count)

    def flush(self, *topics: str) -> None:
        """Bring the current content of these topics to disk."""
        for topic in topics:
            shard = self._shard(topic)
            if shard is not None:
                shard.writer.flush()

    def expire(self, needed_from: Mapping[str, int], policy: RetentionPolicy) -> None:
        """Remove files of topics whose messages are all before the first needed offset."""
        for topic, offset in needed_from.items():
            shard = self._find(topic)
            if shard is not None:
                shard.writer.expire(policy, offset, disk_use(shard.directory))

    def store(self, message: Message) -> int:
        """Store a message in memory that outlives the process; return its queue offset.

        Raises:
            StreamError: it was not stored.
        """
        place = message.topic, self._queue(message.topic)
        shard = self._process.shard(*place)
        batch = encode_messages([message], born_host=_BORN_HOST, clock_ms=self._clock_ms)
        ack = shard.append(pack_batch(batch), Durability.MEMORY)
        if ack.status is not AppendStatus.OK:
            raise refusal(ack.status, "/".join(map(str, place)), self._process.data)
        return ack.first_queue_offset

    def _shard(self, topic: str) -> OwnedShard | None:
        """Return the topic's shard, or None if the topic does not exist yet."""
        shard = self._find(topic)
        if shard is None:
            name = f"{topic}/{self._queue(topic)}"
            if (reason := self._process.closed().get(name)) is not None:
                raise ShardUnavailableError(f"shard {name}", reason)
        return shard

    def _find(self, topic: str) -> OwnedShard | None:
        known = self._queues.get(topic)
        shard = None if known is None else self._process.find(topic, known)
        return shard or self._process.find(topic, self._queue(topic))

    def _queue(self, topic: str) -> int:
        """Return the topic's queue here; another one after the topic was deleted and recreated."""
        self._queues[topic] = next(iter(self._process.queues_of(topic)), 0)
        return self._queues[topic]

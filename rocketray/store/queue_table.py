"""All consume queues of a store, by topic and queue id.

Layout: ``consumequeue/<topic>/<queueId>/``, and beside it ``consumequeue_ext`` in the same shape
where RocketMQ wrote one. A queue has no directory before its first message.
"""

from __future__ import annotations

from pathlib import Path

from rocketray.errors import ConfigError
from rocketray.names import check_topic

from .consume_queue import ConsumeQueue
from .consume_queue_ext import ConsumeQueueExt

__all__ = ["QueueTable"]

_QUEUES, _EXTS = "consumequeue", "consumequeue_ext"


class QueueTable:
    """The queues of one store directory. One writer; :meth:`flush` may run beside it."""

    def __init__(self, directory: Path, segment_entries: int, *, read_only: bool) -> None:
        """Open every queue that has a directory."""
        self._directory = directory
        self._segment_entries = segment_entries
        self._read_only = read_only
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        for path in sorted(directory.glob(f"{_QUEUES}/*/*")):
            if path.name.isdecimal() and path.is_dir():
                self._open(path.parent.name, int(path.name))

    def names(self) -> list[tuple[str, int]]:
        """Topic and queue id of every queue, in order."""
        return sorted(self._queues)

    def all(self) -> list[ConsumeQueue]:
        """Every queue."""
        return list(self._queues.values())

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if it ever had a message."""
        return self._queues.get((topic, queue_id))

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made if need be; raises :class:`InvalidNameError`, :class:`ConfigError`."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            return queue
        check_topic(topic)
        if queue_id < 0:
            raise ConfigError(f"topic {topic!r}: queue id {queue_id} is below 0")
        return self._open(topic, queue_id)

    def prepare_next(self) -> None:
        """Make the files that will be needed next; for a thread beside the writer."""
        for queue in self.all():
            queue.prepare_next()

    def flush(self) -> None:
        """Bring all entries to disk."""
        for queue in self.all():
            queue.flush()

    def close(self) -> None:
        """Unmap all files."""
        for queue in self.all():
            queue.close()

    def _open(self, topic: str, queue_id: int) -> ConsumeQueue:
        ext = self._directory / _EXTS / topic / str(queue_id)
        queue = ConsumeQueue(
            self._directory / _QUEUES / topic / str(queue_id),
            self._segment_entries,
            read_only=self._read_only,
            ext=ConsumeQueueExt(ext) if ext.is_dir() else None,
        )
        self._queues[topic, queue_id] = queue
        return queue

"""All consume queues of a store, by topic and queue id.

Layout: ``consumequeue/<topic>/<queueId>/``, and beside it ``consumequeue_ext`` in the same shape
if the store keeps filter bitmaps. A queue has no directory before its first message.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from rocketray.base.config import StoreConfig
from rocketray.base.names import check_stored_topic
from rocketray.errors import ConfigError
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.mapped_file_queue import Repair

from .consume_queue import ConsumeQueue
from .consume_queue_ext import BitmapSource, ConsumeQueueExt
from .queue_gaps import NO_GAPS, QueueGaps

_QUEUES, _EXTS = "consumequeue", "consumequeue_ext"


class QueueTable:
    """The queues of one store directory. One writer."""

    def __init__(
        self,
        directory: Path,
        config: StoreConfig,
        *,
        read_only: bool,
        repair: Repair = Repair.NOTHING,
        bitmap_source: BitmapSource | None = None,
        adds_units: bool = True,
        gaps: Mapping[tuple[str, int], QueueGaps] = MappingProxyType({}),
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Open every queue that has a directory. Some have *gaps*.

        With *adds_units*, entries get units if the store has ``consume_queue_ext``.
        """
        self._gaps = gaps
        self._directory = directory
        self._config = config
        self._has_ext = config.consume_queue_ext
        self._bitmap_source = bitmap_source
        self._adds_units = adds_units
        self._read_only = read_only
        self._repair = repair
        self._file_system = file_system
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        for topic in file_system.names(directory / _QUEUES):
            for queue_id in file_system.names(directory / _QUEUES / topic):
                path = directory / _QUEUES / topic / queue_id
                if queue_id.isdecimal() and file_system.is_directory(path):
                    self._open(topic, int(queue_id))

    def names(self) -> list[tuple[str, int]]:
        """Return topic and queue id of every queue, in order."""
        return sorted(self._queues)

    def items(self) -> list[tuple[tuple[str, int], ConsumeQueue]]:
        """Return name and queue, in the order of names."""
        return sorted(self._queues.items(), key=lambda item: item[0])

    def all(self) -> list[ConsumeQueue]:
        """Return every queue, in the order in which they were opened."""
        return list(self._queues.values())

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue, if it ever had a message."""
        return self._queues.get((topic, queue_id))

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, created if needed; raise ``InvalidNameError``, ``ConfigError``."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            return queue
        check_stored_topic(topic)
        if queue_id < 0:
            raise ConfigError(f"topic {topic!r}: queue id {queue_id} is below 0")
        return self._open(topic, queue_id)

    def bitmaps(
        self,
        topic: str,
        data: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.uint8] | None:
        """Return the filter bitmaps of messages with property strings in *data*, or None."""
        if self._bitmap_source is None or not self._adds_units or not self._has_ext:
            return None
        return self._bitmap_source.bitmaps(topic, data, starts, sizes)

    def begin_units(self, source: BitmapSource) -> None:
        """Start to give new entries units with bitmaps of *source*."""
        self._bitmap_source, self._adds_units, self._has_ext = source, True, True
        for name, queue in self._queues.items():
            if queue.ext is None:
                queue.begin_ext(self._ext(*name))
            queue.adds_units = True

    def end_units(self) -> None:
        """Stop giving new entries units; existing ones stay."""
        self._adds_units = False
        for queue in self.all():
            queue.adds_units = False

    def _open(self, topic: str, queue_id: int) -> ConsumeQueue:
        ext_directory = self._directory / _EXTS / topic / str(queue_id)
        # A broker that continued in a store of ours may have begun one; a writer rebuilds all.
        begun = self._read_only and self._file_system.is_directory(ext_directory)
        queue = ConsumeQueue(
            self._directory / _QUEUES / topic / str(queue_id),
            self._config.consume_queue_segment_entries,
            read_only=self._read_only,
            repair=self._repair,
            ext=self._ext(topic, queue_id) if self._has_ext or begun else None,
            gaps=self._gaps.get((topic, queue_id), NO_GAPS),
            file_system=self._file_system,
        )
        queue.adds_units = self._has_ext and self._adds_units
        self._queues[topic, queue_id] = queue
        return queue

    def _ext(self, topic: str, queue_id: int) -> ConsumeQueueExt:
        return ConsumeQueueExt(
            self._directory / _EXTS / topic / str(queue_id),
            self._config.consume_queue_ext_segment_bytes,
            read_only=self._read_only,
            repair=self._repair,
            file_system=self._file_system,
        )

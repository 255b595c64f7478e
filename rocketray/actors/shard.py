"""The shard actor: the Ray shell of :class:`~rocketray.actors.shard_writer.ShardWriter`.

Two threads beside Ray's own: one waits on the doorbell and drains the rings, one makes files
ahead and flushes. A thread that fails ends the process: Ray starts a new one, which recovers the store and
takes the rings over.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rocketray.config import StoreConfig
from rocketray.errors import OffsetOutOfRangeError
from rocketray.message import PhysicalOffset, StoredMessage
from rocketray.store.retention import RetentionPolicy

from .catalog import TopicCatalog
from .clock import system_clock_ms
from .explanation import StoredFacts
from .files import disk_use
from .layout import filter_doorbell_path, producer_rings_directory, shard_directory
from .ray_runtime import ray
from .ring import Ack, Durability
from .shard_writer import ShardStatistics, ShardWriter
from .watermark import Doorbell

__all__ = ["QUERY_MAX", "ShardActor"]

_LOG = logging.getLogger(__name__)
_IDLE_WAIT_S = 0.5
_PREPARE_INTERVAL_S = 0.1
_DISK_INTERVAL_S = 10.0
QUERY_MAX = 10_000  # messages that one call returns at most


class ShardActor:
    """Owns one ``(topic, queueId)`` of a node."""

    def __init__(self, data: str, topic: str, queue_id: int, config: StoreConfig) -> None:
        self._topic = topic
        self._queue_id = queue_id
        self._directory = directory = shard_directory(Path(data), topic, queue_id)
        self._writer = ShardWriter(directory, topic, queue_id, config, clock_ms=system_clock_ms)
        self._writer.watch_disk(disk_use(directory))
        self._filter_doorbell = Doorbell(filter_doorbell_path(Path(data)))
        self._writer.writable = TopicCatalog.load(Path(data)).get(topic).writable
        rings = producer_rings_directory(Path(data), topic, queue_id)
        rings.mkdir(parents=True, exist_ok=True)
        for path in sorted(rings.iterdir()):
            self._writer.attach(path)
        self._stop = threading.Event()
        self._flush_interval_s = config.flush_interval_ms / 1000
        self._threads = [self._start("writer", self._write), self._start("house", self._keep_house)]

    def attach(self, path: str) -> None:
        """Begin to read a producer's ring."""
        self._writer.attach(Path(path))
        self._writer.control.doorbell.ring()

    # The rest may be asked twice; this would store twice.
    @ray.method(max_task_retries=0)  # type: ignore[untyped-decorator]
    def append(self, payload: bytes, durability: int) -> Ack:
        """Store a packed batch: the way in for producers of other nodes, and for large batches."""
        ack = self._writer.append(payload, Durability(durability))
        self._filter_doorbell.ring()
        return ack

    def view(self, physical_offset: int) -> StoredMessage | None:
        """The message at a physical offset, or None when no record begins there."""
        with self._writer.reading():
            try:
                return self._writer.store.view(PhysicalOffset(physical_offset))
            except OffsetOutOfRangeError:
                return None

    def facts(self, message: StoredMessage) -> StoredFacts:
        """What the queue says of a message of this shard."""
        return self._writer.facts(message)

    def message_at(self, queue_offset: int) -> StoredMessage | None:
        """The message at a queue offset, or None when there is none."""
        with self._writer.reading():
            return self._writer.message_at(queue_offset)

    def query(self, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[StoredMessage]:
        """The messages with that key, oldest first."""
        with self._writer.reading():
            return self._writer.store.query(
                self._topic, key, min(max_count, QUERY_MAX), begin_ms, end_ms
            )

    def query_by_time(self, begin_ms: int, end_ms: int, max_count: int) -> list[StoredMessage]:
        """The first messages that were stored from *begin_ms* up to and including *end_ms*."""
        store = self._writer.store
        found: list[StoredMessage] = []
        with self._writer.reading():
            first = store.queue_offset_by_time(self._topic, self._queue_id, begin_ms)
            end = store.max_queue_offset(self._topic, self._queue_id)
            for offset in range(first, end):
                if len(found) == min(max_count, QUERY_MAX):
                    break
                entry = store.queue_entry(self._topic, self._queue_id, offset)
                message = store.view(entry.physical_offset)
                if message.store_timestamp_ms > end_ms:
                    break
                if message.store_timestamp_ms >= begin_ms:
                    found.append(message)
        return found

    def statistics(self) -> ShardStatistics:
        """Counters and offsets."""
        return self._writer.statistics()

    def pid(self) -> int:
        """The process id, for tests that end it."""
        return os.getpid()

    def set_writable(self, writable: bool) -> None:  # noqa: FBT001 - one value of one switch
        """Let producers in, or refuse their batches."""
        self._writer.writable = writable

    def expire(self, policy: RetentionPolicy, needed_from: int | None) -> None:
        """Remove old files; see :meth:`ShardWriter.expire`."""
        self._writer.expire(policy, needed_from, disk_use(self._directory))

    def stop(self) -> None:
        """Store what waits in the rings, flush and release the directory."""
        self._stop.set()
        self._writer.control.doorbell.ring()
        for thread in self._threads:
            thread.join()
        self._writer.drain()
        self._writer.close()

    def _start(self, name: str, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._guard, args=(target,), name=name, daemon=True)
        thread.start()
        return thread

    def _guard(self, target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException:  # noqa: BLE001 - a thread that fails ends the process
            _LOG.exception("shard %s/%d ends; Ray starts a new one", self._topic, self._queue_id)
            os._exit(1)

    def _write(self) -> None:
        doorbell = self._writer.control.doorbell
        while not self._stop.is_set():
            rung = doorbell.load()
            if self._writer.drain():
                self._filter_doorbell.ring()
            else:
                doorbell.wait_above(rung, _IDLE_WAIT_S, spin=True)

    def _keep_house(self) -> None:
        """Make files before they are needed, flush when it is time, and watch the disk."""
        flushed = watched = time.monotonic()
        while not self._stop.wait(_PREPARE_INTERVAL_S):
            self._writer.prepare_next()
            if time.monotonic() - flushed >= self._flush_interval_s:
                self._writer.flush()
                self._writer.forget_closed_rings()
                flushed = time.monotonic()
            if time.monotonic() - watched >= _DISK_INTERVAL_S:
                self._writer.watch_disk(disk_use(self._directory))
                watched = time.monotonic()

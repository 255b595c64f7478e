"""Compaction: keeping the last message of each key, so that reading a changelog stays bounded.

The log stays append-only. The live messages of the old files are stored again at the end, and then
the old files are removed, as by retention. A message is live if no later one has its key and it is
not a deletion, which is a message with an empty body. A message without a key is always live.

Invariants
  1. At any moment, also after a crash, the last message of each key from the minimum on has the
     same content as before. Copies are stored under the writer's lock, of the message that is the
     last at that moment, and files are removed only when every copy is on disk. The originals are
     read before, without blocking producers.
  2. A deletion is removed only together with everything older, from the oldest file on, so no
     deleted key comes back.
  3. At least half of the rewritten space is freed: a round begins when the old files hold twice the
     bytes that were live in them the last time, and copies only if that is still so. So a log is at
     most about twice as large as its live messages, plus two files.

The number of keys is bounded by memory: a round keeps the offset of each, about 150 bytes a key.
"""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

from rocketray.broker.retries.deliveries import portions
from rocketray.broker.topics.old_files import old_files
from rocketray.kernels.spans import Field
from rocketray.message import KEYS, SHARDING_KEY, ForwardedMessage
from rocketray.runtime.ipc.acknowledgement import AppendStatus
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.batches.forward import encode_forwarded
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns
from rocketray.store.retention import DiskUse, RetentionPolicy

from .shard_writer import ShardWriter

_LOG = logging.getLogger(__name__)
_READ_ENTRIES = 4096  # 80 KiB of the queue; their records are mapped, not copied
_COPY_BYTES = 64 * 1024  # bytes that are copied while producers wait
_SUPERSEDED = RetentionPolicy(only_unneeded=True)


class Last(NamedTuple):
    """The position of a key's last message."""

    queue_offset: int
    size: int
    is_deletion: bool


class LastOfKeys:
    """The last message of each key, of a queue that is read in order."""

    def __init__(self, reader: QueueReader, start: int) -> None:
        self._reader = reader
        self._last: dict[bytes | int, Last] = {}
        self.next_offset = start

    def read_to(self, end: int) -> None:
        """Read the messages before queue offset *end*."""
        while self.next_offset < end:
            stop = min(end, self.next_offset + _READ_ENTRIES)
            self._note(self._reader.entries(self.next_offset, stop))
            self.next_offset = stop

    def alive_before(self, queue_offset: int) -> list[tuple[bytes | int, Last]]:
        """Return the live messages before *queue_offset*, oldest first."""
        alive = [
            (key, last)
            for key, last in self._last.items()
            if last.queue_offset < queue_offset and not last.is_deletion
        ]
        return sorted(alive, key=lambda each: each[1].queue_offset)

    def is_last(self, key: bytes | int, last: Last) -> bool:
        """Return whether no later message of *key* was read."""
        return self._last[key] == last

    def _note(self, entries: EntryColumns) -> None:
        number = 0
        for part in self._reader.records(entries):
            starts, sizes = part.find([SHARDING_KEY, KEYS])
            bodies = part.fields[Field.BODY_SIZE]
            for row in range(len(part)):
                offset = int(entries.queue_offsets[number])
                which = 0 if sizes[0, row] > 0 else 1
                size = int(sizes[which, row])
                start = int(starts[which, row])
                # Without a key it gets its offset for one, by which no other message supersedes it.
                key = part.segment[start : start + size].tobytes() if size > 0 else offset
                self._last[key] = Last(offset, int(part.sizes[row]), bool(bodies[row] == 0))
                number += 1


class Compaction:
    """The rounds of one shard; for any thread, one at a time."""

    def __init__(self, writer: ShardWriter, topic: str, queue_id: int) -> None:
        self._writer = writer
        self._place = topic, queue_id
        self._alive_bytes = 0  # of the old files, when they were last read
        self._running = threading.Lock()

    def run(self, disk: DiskUse) -> int:
        """Run a round, if it is worthwhile; return the bytes of the old files that were removed."""
        # No second round waits for the first one: it would find what that has left.
        if not self._running.acquire(blocking=False):
            return 0
        try:
            with QueueReader(self._writer.store.directory, *self._place) as reader:
                return self._run(reader, disk)
        finally:
            self._running.release()

    def _run(self, reader: QueueReader, disk: DiskUse) -> int:
        topic, queue_id = self._place
        store = self._writer.store
        with self._writer.reading():
            minimum = int(store.reads.min_queue_offset(topic, queue_id))
            end = int(store.reads.max_queue_offset(topic, queue_id))
        segment_bytes = store.config.commit_log_segment_bytes
        first, cut = old_files(reader, minimum, end, segment_bytes)
        if cut is None or cut.physical_offset - first.physical_offset <= 2 * self._alive_bytes:
            return 0
        keys = LastOfKeys(reader, first.queue_offset)
        keys.read_to(end)
        alive = keys.alive_before(cut.queue_offset)
        self._alive_bytes = sum(last.size for _, last in alive)
        old_bytes = cut.physical_offset - first.physical_offset
        if old_bytes <= 2 * self._alive_bytes:
            return 0
        most_bytes = min(_COPY_BYTES, segment_bytes // 4)  # a batch has to fit into one file
        for part in portions(alive, lambda entry: entry[1].size, most_bytes):
            if not self._copy(reader, keys, part):
                return 0
        gone = self._writer.expire(_SUPERSEDED, cut.queue_offset, disk)
        _LOG.info(
            "%s/%d: %d of %d bytes are live and were stored again; %d files were removed",
            topic, queue_id, self._alive_bytes, old_bytes, len(gone),
        )  # fmt: skip
        return sum(expired.file.size for expired in gone)

    def _copy(
        self, reader: QueueReader, keys: LastOfKeys, part: list[tuple[bytes | int, Last]]
    ) -> bool:
        """Store those of *part* again that are still the last of their keys; False if it fails."""
        topic, queue_id = self._place
        # The files may be out of memory: they are read before producers have to wait.
        keys.read_to(self._writer.control.visible())
        part = [(key, last) for key, last in part if keys.is_last(key, last)]
        if not part:
            return True
        columns = [reader.entries(last.queue_offset, last.queue_offset + 1) for _, last in part]
        stored = reader.messages(EntryColumns.concatenated(columns))
        messages = [ForwardedMessage.of(message, topic=topic) for message in stored]

        def build() -> EncodedBatch | None:
            keys.read_to(int(self._writer.store.reads.max_queue_offset(topic, queue_id)))
            alive = [
                message
                for (key, last), message in zip(part, messages, strict=True)
                if keys.is_last(key, last)
            ]
            return encode_forwarded(alive) if alive else None

        ack = self._writer.append_built(build)
        if ack.status is not AppendStatus.OK:
            _LOG.warning("%s/%d is not compacted now: %s", topic, queue_id, ack.status.name)
        return ack.status is AppendStatus.OK

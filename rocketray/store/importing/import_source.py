"""A store directory from which messages are imported, read record by record in its log's order.

It is opened without any change, also beside a running broker, and after a crash. Every record
must be whole, in its own place, with a body that matches its CRC; the first place without such a
record ends the reading with an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

from rocketray.base.config import StoreConfig
from rocketray.errors import CorruptRecordError
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.store_settings import settle_config
from rocketray.store.formats.record import RecordFields
from rocketray.store.log.log_walk import end_after, walk
from rocketray.store.store_files import StoreFiles


class SourceRecord(NamedTuple):
    """A record in place; ``fields`` are positions in ``buffer``, valid until the next record."""

    topic: str
    physical_offset: int
    fields: RecordFields
    buffer: memoryview

    @property
    def offset_id(self) -> str:
        """The offset id of the record in the store that wrote it."""
        host = self.buffer[self.fields.store_host_start : self.fields.store_host_end]
        return f"{host.hex()}{self.physical_offset:016x}".upper()


class ImportSource:
    """One store directory, open for reading."""

    def __init__(
        self,
        directory: Path,
        config: StoreConfig | None,
        *,
        clock_ms: Callable[[], int],
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Open *directory*; *config* has the sizes of its files if RocketMQ wrote it.

        Raises:
            CorruptRecordError: a file has a wrong size, or is missing.
            ConfigError: the sizes are unknown.
        """
        self.directory = directory
        config = settle_config(directory, config, read_only=True, file_system=file_system)
        files = StoreFiles(directory, config, None, clock_ms=clock_ms, file_system=file_system)
        self._files, self._log, self._queues = files, files.log, files.queues
        self._topics: dict[bytes, str] = {}

    @property
    def begin(self) -> int:
        """The physical offset of the first remaining record."""
        return int(self._log.min_offset)

    @property
    def end(self) -> int:
        """The physical offset behind the last record."""
        return int(self._log.max_offset)

    def queues(self) -> list[tuple[str, int]]:
        """Return topic and queue id of every queue that ever had a message, in order."""
        return self._queues.names()

    def records(self, start: int) -> Iterator[SourceRecord]:
        """Yield the records from *start*, the offset of one or of a file, to the end of the log.

        Raises:
            CorruptRecordError: no whole record is where one should be.
        """
        at = start
        for offset, fields, buffer in walk(self._log.files, start, verify=True):
            if offset >= self.end:
                return
            name = bytes(buffer[fields.topic_start : fields.topic_end])
            topic = self._topics.get(name)
            if topic is None:
                topic = self._topics[name] = self._topic(name, offset)
            yield SourceRecord(topic, offset, fields, buffer)
            at = offset + fields.size
        at = end_after(self._log.files, at)
        if at < self.end:
            raise self._corrupt(at, "there is no complete record")

    def next_known(self, offset: int) -> int | None:
        """Return the first physical offset above *offset* in a queue entry; None at the end.

        Reading continues there behind a damaged place: bytes that no queue names were no message to
        a consumer.
        """
        found = []
        for queue in self._queues.all():
            number = queue.first_at_or_after(lambda entry: entry.physical_offset > offset)
            if number < queue.max_offset:
                found.append(queue.entry(number).physical_offset)
        return min(found, default=None)

    def entries_between(self, start: int, end: int) -> dict[tuple[str, int], int]:
        """Return how many messages of each queue have records that begin in [*start*, *end*)."""
        counts = {}
        for topic, queue_id in self._queues.names():
            queue = self._queues.get(topic, queue_id)
            first = queue.first_at_or_after(lambda entry: entry.physical_offset >= start)
            last = queue.first_at_or_after(lambda entry: entry.physical_offset >= end)
            if last > first:
                counts[topic, queue_id] = queue.gaps.count(first, last)
        return counts

    def close(self) -> None:
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _topic(self, name: bytes, offset: int) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise self._corrupt(offset, "its topic is not UTF-8") from None

    def _corrupt(self, offset: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(str(self.directory / "commitlog"), offset, reason)

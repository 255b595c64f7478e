"""The agent of one disk: what the coordinator, on another machine, asks of the disk's files."""

from __future__ import annotations

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from rocketray.base.quantity import agreed, counted
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.broker.topics.topic_files import check_store_host, remove_files
from rocketray.errors import StoreError
from rocketray.runtime.files.fetch_failure import kept_failure
from rocketray.runtime.files.paths import producer_rings_directory, shard_directory
from rocketray.store.files.file_system import SYSTEM_FILES
from rocketray.store.files.store_settings import read_settings, remove_store

from .copy_rounds import FileSums, Known, RoundProgress
from .disks_api import CopiedQueue, DiskReport, QueueSource
from .queue_copy import QueueCopy, read_blocks, sums_of

_LOG = logging.getLogger(__name__)
_COPIES = "copies"


class DiskAgent:
    """The object behind ``DiskApi``; for any thread."""

    def __init__(
        self,
        data: Path,
        zone: str = "",
        source_on: Callable[[str, str, int], QueueSource] | None = None,
    ) -> None:
        """Take the data directory, and the zone of its machine.

        *source_on* returns the queue on another disk, by disk, topic and queue id.
        """
        self._data = data
        self._zone = zone
        self._incarnation = uuid.uuid4().hex
        self._source_on = source_on
        self._copies: dict[tuple[str, int], QueueCopy] = {}
        # Not held together. Each keeps two calls apart that write the same files: the coordinator
        # may have stopped waiting for the first, which still runs.
        self._copying = threading.Lock()
        self._keeping = threading.Lock()

    def report(self) -> DiskReport:
        usage = shutil.disk_usage(self._data)
        unserved = kept_failure(self._data)
        return DiskReport(self._incarnation, self._zone, usage.free, usage.total, unserved)

    def keep_catalog(self, catalog: TopicCatalog) -> None:
        with self._keeping:  # a call that the coordinator does not wait for any more may still run
            try:
                catalog.save(self._data)
            except OSError as error:
                raise StoreError(
                    f"the catalog of disk {self._data} cannot be written: {error}"
                ) from error

    def remove_files(self, topic: TopicConfig) -> None:
        remove_files(self._data, topic)

    def sums_of(self, topic: str, queue_id: int, known: Known) -> dict[str, FileSums]:
        return sums_of(shard_directory(self._data, topic, queue_id), known)

    def read_blocks(self, topic: str, queue_id: int, name: str, blocks: Sequence[int]) -> bytes:
        return read_blocks(shard_directory(self._data, topic, queue_id), name, blocks)

    def copy_queue(
        self, topic: TopicConfig, queue_id: int, source: str, *, is_closed: bool
    ) -> CopiedQueue:
        assert self._source_on is not None
        begin_s = time.monotonic()
        place = topic.name, queue_id
        queue = self._source_on(source, *place)
        with self._copying:
            copy = self._copies.get(place)
            if copy is None:
                copy = self._copies[place] = QueueCopy(self._copy_of(*place))
            sums = queue.sums(copy.known)
            count = copy.take_files(sums, queue.blocks)
            copy.sync()
            if is_closed:
                if differing := copy.differences(sums):
                    raise StoreError(
                        f"{copy.directory}: {counted(len(differing), 'file')} "
                        f"{agreed(len(differing), 'differ')} from those of the queue, "
                        f"such as {differing[0]}"
                    )
                check_store_host(
                    copy.directory,
                    read_settings(copy.directory),
                    topic.store_hosts[queue_id],
                    "/".join(map(str, place)),
                )
                self._put_in_place(copy.directory, topic, queue_id)
                del self._copies[place]
        return CopiedQueue(count, time.monotonic() - begin_s)

    def copy_progress(self, topic: str, queue_id: int) -> RoundProgress:
        copy = self._copies.get((topic, queue_id))
        return RoundProgress() if copy is None else copy.progress

    def remove_queue(self, topic: str, queue_id: int, store_host: tuple[str, int]) -> None:
        directory = shard_directory(self._data, topic, queue_id)
        with self._copying:
            self._copies.pop((topic, queue_id), None)
            shutil.rmtree(self._copy_of(topic, queue_id), ignore_errors=True)
        kept = read_settings(directory)
        if kept is None or kept.store_host == store_host:  # else it is of a topic of the same name
            shutil.rmtree(producer_rings_directory(self._data, topic, queue_id), ignore_errors=True)
        if kept is not None and kept.store_host == store_host:
            _LOG.info("%s is removed: the queue is on another disk", directory)
            remove_store(directory)

    def _copy_of(self, topic: str, queue_id: int) -> Path:
        """Return the directory of a copy that is not complete yet."""
        return self._data / _COPIES / f"{topic}.{queue_id}"

    def _put_in_place(self, copy: Path, topic: TopicConfig, queue_id: int) -> None:
        """Give a complete copy the name of the queue; an old copy of that name is removed."""
        directory = shard_directory(self._data, topic.name, queue_id)
        name = f"{topic.name}/{queue_id}"
        check_store_host(directory, read_settings(directory), topic.store_hosts[queue_id], name)
        if directory.exists():
            remove_store(directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
        copy.rename(directory)
        SYSTEM_FILES.sync(directory.parent)
        SYSTEM_FILES.sync(copy.parent)

"""A backup of a data directory: a consistent copy, made while its node runs or is stopped.

Order of a backup
  1. Groups with their offsets, progress of services, journals, and the topics last.
  2. The bounds of all queues (queue_bounds.py): first those of services in which the end of some
     work is noted, then those in which the work is, then all others.
  3. The queues up to their bounds, in the same order, and the manifest.

Invariants
  1. What was acknowledged before the start is in the copy, and no offset in it is beyond its queue.
  2. What a queue notes as delivered or committed is in the queue where it was stored. So nothing is
     lost when the copy is started; something may be delivered once more.
  3. A queue of the copy ends with its last message. It is opened as one whose index, checkpoint and
     mark of a clean stop were lost: they are rebuilt from its log.
  4. A directory with a manifest is complete, and each of its files was read again and verified.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketray.base.config import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from rocketray.base.system_topics import SYSTEM_TOPICS
from rocketray.broker.disks.joined_cluster import read_joined
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.broker.topics.topic_files import check_is_there
from rocketray.errors import ConfigError, StoreError, StoreLockedError
from rocketray.runtime.files.home import identity_of
from rocketray.runtime.files.node_description import read_description
from rocketray.runtime.files.node_lock import lock_node, node_holder
from rocketray.runtime.files.paths import (
    broadcast_directory,
    config_directory,
    filters_file,
    identity_file,
    shard_directory,
)
from rocketray.runtime.files.private_files import is_own_directory
from rocketray.runtime.files.restorations import RESTORED_FILE
from rocketray.runtime.files.state_files import disk_use
from rocketray.runtime.machine import here, whereabouts
from rocketray.store.files.mapped_file_queue import segment_name
from rocketray.store.files.store_settings import SETTINGS_FILES, is_foreign
from rocketray.store.queues.gaps_file import GAPS_FILE

from .file_copy import FileSum, copy_file, no_room, sum_of
from .manifest import (
    Manifest,
    content_directory,
    incomplete_disk,
    incomplete_file,
    manifest_file,
    mark_incomplete,
)
from .queue_bounds import CopyBounds, bounds_of, starts_in

OnProgress = Callable[[str, int, int], object]
"""Takes what is copied now, and how many bytes of about how many are done."""
_SERVICES = tuple(row.name for row in SYSTEM_TOPICS.values() if row.is_emptied)
"""The topics of services, those that note the end of some work before those with the work."""
_NOT_STATE = {".tmp", ".damaged"}  # what a write, or a repair, has left
_REGISTER = "register.json"  # what is restored has its state in the copies
_TRIES = 20  # rounds that remove files are 10 s apart: so these take 200 s
_Queue = tuple[TopicConfig, int]


def back_up(
    data: Path,
    backup: Path,
    *,
    clock_ms: Callable[[], int],
    on_progress: OnProgress = lambda *_: None,
) -> Manifest:
    """Copy a data directory to *backup*, a new or empty directory, and return its manifest.

    A stopped node cannot be started meanwhile. A backup that was interrupted begins again.

    Raises:
        ConfigError: *backup* is not empty, or in the data directory.
        StoreError: a directory is another user's, a queue is damaged, or there is no room.
        StoreLockedError: the node is starting or stopping.
    """
    data, backup = data.resolve(), backup.resolve()
    _check_source(data)
    if backup == data or data in backup.parents:
        raise ConfigError(f"{backup} is in the data directory {data}; name a directory elsewhere")
    disk = identity_of(data)
    begun_ms = clock_ms()
    with _held(data) as cluster, _begun(backup, disk, begun_ms):
        run = _Run(data, content_directory(backup), clock_ms, on_progress)
        run.copy()
        manifest = Manifest(disk, cluster, begun_ms, clock_ms(), run.files, run.ends)
        manifest.write(backup)
        incomplete_file(backup).unlink()  # last: a backup that has both is complete, too
    return manifest


class _FilesRemovedError(Exception):
    """Retention or compaction removed files between the bounds and their copy."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A file to copy: its path in the data directory, and how much of it, None for all."""

    path: str
    used: int | None = None


class _Run:
    """One run of a backup, which may be repeated for some queues."""

    def __init__(
        self,
        data: Path,
        copy: Path,
        clock_ms: Callable[[], int],
        on_progress: OnProgress,
    ) -> None:
        self._data = data
        self._copy = copy
        self._clock_ms = clock_ms
        self._on_progress = on_progress
        self._now = ""
        self._done = self._total = 0
        self.files: dict[str, FileSum] = {}
        self.ends: dict[str, int] = {}

    def copy(self) -> None:
        """Copy everything (see the module's docstring)."""
        for path in _state_files(self._data):
            try:
                self._copy_file(_Part(path.relative_to(self._data).as_posix()))
            except FileNotFoundError:
                continue  # a journal that was removed with its group
        catalog = TopicCatalog.load(self._copy)
        joined = read_joined(self._copy)
        self._disk = "" if joined is None else identity_of(self._data)
        queues = _in_order(catalog, self._disk)
        services = [(topic, queue) for topic, queue in queues if topic.name in _SERVICES]
        for _ in range(_TRIES):
            bounds = self._bounds(queues)
            try:
                for queue in services:
                    self._copy_queue(queue, bounds.get(_name(queue)))
            except _FilesRemovedError:
                continue  # later bounds of services alone would be later than others'
            break
        else:
            raise StoreError(f"{self._data}: files are removed all the time; run it again")
        for queue in queues[len(services) :]:
            self._copy_while_used(queue, bounds.get(_name(queue)))
        self._forget_deleted(catalog)

    def _bounds(self, queues: Sequence[_Queue]) -> dict[str, CopyBounds]:
        """Return the bounds of the queues that exist."""
        found = {}
        for topic, queue_id in queues:
            bounds = self._bounds_of(topic, queue_id)
            if bounds is not None:
                found[_name((topic, queue_id))] = bounds
        self._total = self._done + sum(each.used_bytes for each in found.values())
        free = disk_use(self._copy).free
        if self._total - self._done > free:
            raise StoreError(
                f"{self._copy.parent}: the backup takes {self._total - self._done} bytes, and its "
                f"file system has room for {free}; free space there, or name another directory"
            )
        return found

    def _bounds_of(self, topic: TopicConfig, queue_id: int) -> CopyBounds | None:
        """Return a queue's bounds, None if it was not made yet, or its topic is deleted by now."""
        directory = shard_directory(self._data, topic.name, queue_id)
        for _ in range(_TRIES):
            try:
                if queue_id in topic.made:
                    check_is_there(directory, topic, queue_id)
                elif is_foreign(directory):
                    return None
                return bounds_of(self._data, topic.name, queue_id, clock_ms=self._clock_ms)
            except FileNotFoundError:
                if queue_id not in topic.made or self._is_gone(topic, queue_id):
                    return None
            except StoreError:
                if self._is_gone(topic, queue_id):
                    return None
                raise
        raise StoreError(f"{directory}: its files are removed all the time; run it again")

    def _copy_while_used(self, queue: _Queue, bounds: CopyBounds | None) -> None:
        """Copy a queue, with later bounds if files of it were removed meanwhile."""
        for _ in range(_TRIES):
            try:
                self._copy_queue(queue, bounds)
            except _FilesRemovedError:
                bounds = self._bounds_of(*queue)
                continue
            return
        raise StoreError(f"{_name(queue)}: its files are removed all the time; run it again")

    def _copy_queue(self, queue: _Queue, bounds: CopyBounds | None) -> None:
        self._forget(_directory(queue))
        if bounds is None:
            return
        self._now = _name(queue)
        try:
            for part in self._parts(queue, bounds):
                self._copy_file(part)
        except FileNotFoundError:
            if not self._is_gone(*queue):
                raise _FilesRemovedError from None
            self._forget(_directory(queue))
        else:
            self.ends[_name(queue)] = bounds.end

    def _parts(self, queue: _Queue, bounds: CopyBounds) -> Iterator[_Part]:
        """Yield the files of a queue, its entries before the log: they have to be within it."""
        topic, queue_id = queue
        directory = _directory(queue)
        path = shard_directory(self._data, topic.name, queue_id)
        limit = bounds.end * ENTRY_BYTES
        for name in (*SETTINGS_FILES, GAPS_FILE, RESTORED_FILE):
            if (path / name).exists():
                yield _Part(f"{directory}/{name}")
        filters = filters_file(path)
        if filters.exists():
            yield _Part(filters.relative_to(self._data).as_posix())
        entries = f"consumequeue/{topic.name}/{queue_id}"
        for start in starts_in(path / entries):
            if start < limit:
                yield _up_to(f"{directory}/{entries}", start, limit)
        units = f"consumequeue_ext/{topic.name}/{queue_id}"
        for start in starts_in(path / units):
            yield _Part(f"{directory}/{units}/{segment_name(start)}")
        starts = starts_in(path / "commitlog")
        # Entries that were copied would lead to a file that is not there any more.
        if next(iter(starts), 0) != bounds.log_begin:
            raise _FilesRemovedError
        for start in starts:
            if start < bounds.log_end or start == bounds.log_begin:
                yield _up_to(f"{directory}/commitlog", start, bounds.log_end)

    def _copy_file(self, part: _Part) -> None:
        source, target = self._data / part.path, self._copy / part.path
        used = part.used
        if used is not None:
            used = min(used, source.stat().st_size)  # only the last file has the bound in it
        self.files[part.path] = copy_file(source, target, used, self._count)

    def _count(self, size: int) -> None:
        self._done += size
        if self._total:  # known when the bounds are
            self._on_progress(self._now, self._done, max(self._total, self._done))

    def _is_gone(self, topic: TopicConfig, queue_id: int) -> bool:
        """Return whether the topic is deleted by now; raise if the queue was moved."""
        now = TopicCatalog.load(self._data).topics.get(topic.name)
        if now is None or now.topic_id != topic.topic_id:
            return True
        if now.disk_of(queue_id) != self._disk:
            raise StoreError(
                f"queue {topic.name}/{queue_id} was moved to another disk while it was copied; run "
                "the command again"
            )
        return False

    def _forget_deleted(self, catalog: TopicCatalog) -> None:
        """Leave out the topics that were deleted meanwhile, as if they had been before."""
        now = TopicCatalog.load(self._data).topics
        kept = catalog
        for name, topic in catalog.topics.items():
            if name not in now or now[name].topic_id != topic.topic_id:
                kept = kept.without_topic(name).without_deleted(name)
                self._forget(f"shards/{name}")
        if kept is not catalog:
            kept.save(self._copy)
            for path in sorted(config_directory(self._copy).glob("topics.json*")):
                self.files[path.relative_to(self._copy).as_posix()] = sum_of(path)

    def _forget(self, directory: str) -> None:
        """Remove what was copied of a directory."""
        shutil.rmtree(self._copy / directory, ignore_errors=True)
        for path in [each for each in self.files if each.startswith(f"{directory}/")]:
            self._done -= self.files.pop(path).used
        for name in [each for each in self.ends if f"shards/{each}/".startswith(f"{directory}/")]:
            del self.ends[name]


def _name(queue: _Queue) -> str:
    return f"{queue[0].name}/{queue[1]}"


def _directory(queue: _Queue) -> str:
    return f"shards/{_name(queue)}"


def _up_to(directory: str, start: int, end: int) -> _Part:
    """Return the part of the file of *start* that is before *end*."""
    return _Part(f"{directory}/{segment_name(start)}", max(end - start, 0))


def _in_order(catalog: TopicCatalog, disk: str) -> list[_Queue]:
    """Return the queues on a disk, those of services first, in their order."""
    names = [name for name in _SERVICES if name in catalog.topics]
    names += sorted(catalog.topics.keys() - {*_SERVICES})
    topics = [catalog.topics[name] for name in names]
    return [(topic, queue) for topic in topics for queue in topic.by_disk().get(disk, ())]


def _state_files(data: Path) -> list[Path]:
    """Return the files of the state, groups first and topics last."""
    files = [
        path
        for directory in (config_directory(data), broadcast_directory(data))
        for path in directory.rglob("*")
        if path.suffix not in _NOT_STATE
        and path.is_file()
        and not path.is_symlink()
        and path.name.removesuffix(".bak") != _REGISTER
    ]

    def rank(path: Path) -> tuple[int, Path]:
        name = path.name.removesuffix(".bak")
        return {"groups.json": 0, "topics.json": 2}.get(name, 1), path

    return sorted(files, key=rank)


def _check_source(data: Path) -> None:
    if not identity_file(data).exists():
        raise ConfigError(
            f"{data} is no data directory of a node: it has no {identity_file(data).name}; name "
            "one with --data"
        )
    if not is_own_directory(data):
        raise StoreError(f"{data} belongs to another user; run the command as that user")


@contextmanager
def _held(data: Path) -> Iterator[str]:
    """Lock the directory of a stopped node; yield the cluster's name as far as it is known."""
    joined = read_joined(data)
    cluster = "" if joined is None else joined.cluster
    try:
        lock = lock_node(data)
    except StoreLockedError:  # a node runs: its queues are copied up to what readers may see
        node = read_description(data)
        _check_running(data, node)
        yield str((node or {}).get("cluster", cluster))
        return
    try:
        yield cluster
    finally:
        os.close(lock)


def _check_running(data: Path, node: dict[str, Any] | None) -> None:
    """Raise :class:`StoreLockedError` unless the node on *data* has started on this machine."""
    if node is None or whereabouts(node) == "gone":
        raise StoreLockedError(
            f"{data} is used by {node_holder(data) or 'another process'}, and its node does not "
            "answer yet, or is stopping; run the command again in a moment"
        )
    if node.get("bootId") != here()["bootId"]:
        raise StoreLockedError(
            f"the node on {data} runs on {node.get('machine')}; run the command there"
        )


@contextmanager
def _begun(backup: Path, disk: str, begun_ms: int) -> Iterator[None]:
    """Hold a directory that is marked as an incomplete backup, with nothing in it."""
    _check_target(backup, disk)
    with no_room(backup):
        backup.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = os.open(backup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLockedError(
                f"another process makes a backup in {backup}; name another directory"
            ) from None
        _check_target(backup, disk)  # again: it was looked at without the lock
        shutil.rmtree(content_directory(backup), ignore_errors=True)
        with no_room(backup):
            mark_incomplete(backup, disk, begun_ms)
            content_directory(backup).mkdir(mode=0o700)
        yield
    finally:
        os.close(held)


def _check_target(backup: Path, disk: str) -> None:
    """Raise unless a directory is missing, empty, or an incomplete backup of the same disk."""
    if not backup.exists():
        return
    if not backup.is_dir():
        raise ConfigError(f"{backup} is not a directory; name a new one")
    if not is_own_directory(backup):
        raise StoreError(f"{backup} belongs to another user; name a directory of your own")
    if manifest_file(backup).exists():
        raise ConfigError(f"{backup} has a backup already; name another directory")
    marked = incomplete_disk(backup)
    if marked is None and any(backup.iterdir()):
        raise ConfigError(f"{backup} is not empty; name a new or an empty directory")
    if marked not in {None, disk}:
        raise ConfigError(
            f"{backup} has an incomplete backup of another data directory ({marked}); "
            "name another directory, or remove it"
        )

"""A shard process: one to many shards of a node, behind one doorbell.

A process costs 120 MB, and little more with many shards. So the queues of all topics of a disk
share a few, one for each core, and the node's own topics share one, whose files are smaller. A
topic may have processes of its own (topics/placement.py). The unit of ownership stays the shard,
with its own directory, lock and epoch.

:class:`ShardProcess` is plain Python; shard_threads.py gives it threads, and
cluster/shard_process_actor.py an address.

Invariants
  1. All shards of the process are open before the first call is answered: readers map the files of
     a shard without a call, and may see only recovered messages.
  2. A shard that cannot be opened, or fails later, is closed, alone. The next call to it opens it
     again, or raises the reason. So does a timer, for producers that wait at their rings; its pause
     doubles with each opening that fails.
  3. A shard on one disk does not wait for a shard on another (disk_shards.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rocketray.base.config import StoreConfig
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.broker.topics.process_names import has_services
from rocketray.broker.topics.topic_files import handed_over_file
from rocketray.errors import ShardMovedError, ShardUnavailableError, StoreError, StreamError
from rocketray.runtime.files.paths import filter_doorbell_path, process_doorbell_path
from rocketray.runtime.ipc.control_page import Doorbell
from rocketray.runtime.ipc.process_doorbell import ProcessDoorbell
from rocketray.store.files.file_system import SYSTEM_FILES

from .disk_shards import DiskShards
from .owned_shard import OwnedShard, why_closed
from .process_limits import ProcessLimits, shortage
from .shard_api import ExpiryOrder
from .shard_reports import ShardReports

_LOG = logging.getLogger(__name__)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_LIMITS = ProcessLimits.of_system
_MOVED_RETRY_AFTER_MS = 200  # a sender waits 10 s for a queue that moves, and looks so often
# 1, 2, 4, … 32, 60 s: a shard that has been closed for a minute is tried once a minute (invariant
# 2).
_PAUSE_MIN_S, _PAUSE_MAX_S = 1.0, 60.0
_ADVICE = "repair the cause; each call opens it again, and so does a timer"
SHARED_FILE_SIZES = {
    "commit_log_segment_bytes": 16 * 1024 * 1024,
    "consume_queue_segment_entries": 50_000,
    "index_hash_slots": 20_000,
    "index_entries": 100_000,
}
"""The greatest sizes of the files of new shards in the shared process.

A disk has 18 queues of delay levels alone, and each group brings two topics. With these sizes a
queue has 16 MiB of log, 1 MB of entries and 2.1 MB of index; others have 64 MiB, 6 MB and 22 MB.
"""


@dataclass(frozen=True, slots=True)
class Opened:
    """The outcome of a call that opens queues, by ``topic/queue``.

    ``new`` are those that were not open before; ``closed`` says why some are not open.
    """

    new: tuple[str, ...]
    closed: Mapping[str, StreamError]


@dataclass(frozen=True, slots=True)
class _Closed:
    """A shard that should be open: why it is not, and when it is tried again."""

    reason: StreamError
    pause_s: float
    next_s: float


class ShardProcess:
    """The shards of one process."""

    def __init__(
        self,
        data: Path,
        name: str,
        sizes: Mapping[str, int],
        *,
        clock_ms: Callable[[], int],
        at_once: int = 1,
    ) -> None:
        """Open the shards that the catalog has for process *name*.

        *sizes* are fields of :class:`~rocketray.base.config.StoreConfig` for new shards. So many
        shards are opened or closed *at_once*, each in a thread: they wait for the disk most of the
        time.
        """
        self.data = data
        self.name = name
        self._sizes = {**sizes, **_smaller(sizes)} if has_services(name) else {**sizes}
        self._clock_ms = clock_ms
        self._at_once = at_once
        self._opening = threading.Lock()
        self._is_ended = False
        self._tables = threading.Lock()  # taken after the other one; never held while waiting
        # Replaced, never changed: calls and reports read it without a lock.
        self._shards: dict[tuple[str, int], OwnedShard] = {}
        self.reports = ShardReports(lambda: self._shards, clock_ms)
        self._closed: dict[tuple[str, int], _Closed] = {}
        self._disks: dict[int, DiskShards] = {}
        self._follow: Callable[[DiskShards], None] = lambda _: None
        self.attention = threading.Event()
        """Set while a shard is closed that should be open."""
        self._filter_doorbell = Doorbell(filter_doorbell_path(data))
        self.doorbell = ProcessDoorbell(process_doorbell_path(data, name))
        """Rung by producers, and by other threads to make the draining threads look."""
        topics = TopicCatalog.load(data).topics.values()
        self.open([(topic, topic.by_process().get(name, ())) for topic in topics])
        if (lacks := self._shortage()) is not None:
            _LOG.warning("%s", lacks)

    def follow_disks(self, start: Callable[[DiskShards], None]) -> None:
        """Call *start* with the shards of each disk, now and when another disk comes."""
        with self._tables:
            self._follow = start
            disks = [*self._disks.values()]
        for disk in disks:
            start(disk)

    def open(self, wanted: Iterable[tuple[TopicConfig, Iterable[int]]]) -> Opened:
        """Open the shards of topics' queues that are not open yet; one that fails stays closed.

        A queue that was handed over stays closed, too: the caller may have the catalog of before.
        """
        with self._opening:
            missing = [
                (topic, queue_id)
                for topic, queues in wanted
                for queue_id in queues
                if self.find(topic.name, queue_id) is None
            ]
            errors = self._each(lambda place: self._why_closed(*place), missing)
        names = [f"{topic.name}/{queue_id}" for topic, queue_id in missing]
        closed = {name: why for name, why in zip(names, errors, strict=True) if why is not None}
        return Opened(tuple(name for name in names if name not in closed), closed)

    def hand_over(self, topic: str, queue_id: int) -> None:
        """Close the shard of a queue that moves, all on disk, and open it no more.

        Raises:
            StreamError, OSError: it cannot be closed cleanly.
        """
        with self._opening:
            # On disk before the queue is closed: a process that is started now must not open it.
            mark = handed_over_file(self.data, topic, queue_id)
            mark.touch()
            SYSTEM_FILES.sync(mark.parent)
            self._close([(topic, queue_id)])
            with self._tables:
                self._closed.pop((topic, queue_id), None)

    def take_back(self, topic: TopicConfig, queue_id: int) -> None:
        """Open the shard of a queue that was handed over, and whose move is over.

        Raises:
            StreamError: it cannot be opened.
        """
        with self._opening:
            mark = handed_over_file(self.data, topic.name, queue_id)
            mark.unlink(missing_ok=True)
            SYSTEM_FILES.sync(mark.parent)  # a power failure must not bring it back: see hand_over
            if self.find(topic.name, queue_id) is None:
                self._open(topic, queue_id)

    def _each(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Return the result of *work* for each item; in threads, as it waits for the disk."""
        if min(self._at_once, len(items)) <= 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(self._at_once, thread_name_prefix="opener") as threads:
            return [*threads.map(work, items)]

    def open_closed(self, now_s: float | None = None) -> None:
        """Open the closed shards whose pause is over: the reason may be gone; called periodically.

        Raises:
            StreamError, OSError: it is not known which topics there are.
        """
        now_s = time.monotonic() if now_s is None else now_s
        with self._tables:
            due = [place for place, closed in self._closed.items() if closed.next_s <= now_s]
            if not self._closed:
                self.attention.clear()
        if not due:
            return
        topics = TopicCatalog.load(self.data).topics
        for name, queue_id in due:
            if name in topics:
                self.open([(topics[name], [queue_id])])
            else:  # deleted: its remaining calls are told so
                with self._tables:
                    self._closed.pop((name, queue_id), None)

    def shard(self, topic: str, queue_id: int) -> OwnedShard:
        """Return a shard of this process; one that is not open is opened.

        Raises:
            StreamError: there is no such topic, or its shard cannot be opened.
            ShardUnavailableError: another process has it.
        """
        shard = self.find(topic, queue_id)
        if shard is None:
            with self._opening:  # so the topic is not removed meanwhile
                config = TopicCatalog.load(self.data).get(topic)
                config.check_queue(queue_id)
                # Found: another call has opened it while this one waited for the lock.
                shard = self.find(topic, queue_id) or self._open(config, queue_id)
        return shard

    def find(self, topic: str, queue_id: int) -> OwnedShard | None:
        """Return a shard of this process that is open, or None."""
        return self._shards.get((topic, queue_id))

    def queues_of(self, topic: str) -> list[int]:
        """Return the queues of a topic that are in this process, open or closed."""
        places = {*self._shards, *self._closed}
        return sorted(queue_id for name, queue_id in places if name == topic)

    def closed(self) -> dict[str, str]:
        """Return the shards that are closed and should be open, with the reasons."""
        with self._tables:
            return {
                f"{topic}/{queue_id}": str(closed.reason)
                for (topic, queue_id), closed in self._closed.items()
            }

    def problems(self) -> dict[str, str]:
        """Return a line by subject: why a shard is closed, and what is wrong with open ones.

        The subject ``process NAME`` is that it has too many for the limits of the system.
        """
        found = self.closed()
        lacks = self._shortage()
        if lacks is not None:
            found[f"process {self.name}"] = lacks
        for shard in self._shards.values():
            found |= shard.problems()
        return found

    def _shortage(self) -> str | None:
        return shortage(_LIMITS(), self.name, len(self._shards) + len(self._closed))

    def drain(self) -> int:
        """Store the batches in the rings of all shards; return their number."""
        return sum(disk.drain(everything=True) for disk in self._disks.values())

    def flush(self) -> None:
        """Bring everything to disk, and drop producers that are gone."""
        for disk in self._disks.values():
            disk.keep_house(OwnedShard.flush)

    def remove(self, topic: str) -> None:
        """Close the shards of a deleted topic, and let no timer open those that are closed."""
        with self._opening:
            self._close([place for place in self._shards if place[0] == topic])
            with self._tables:
                self._closed = {key: one for key, one in self._closed.items() if key[0] != topic}

    def close(self) -> None:
        """Store the batches in the rings, flush and release all shards; no call opens one again."""
        with self._opening:
            self._is_ended = True
            self._close([*self._shards])

    def _why_closed(self, topic: TopicConfig, queue_id: int) -> StreamError | None:
        """Open a shard; return why it stays closed, None if it does not."""
        try:
            self._open(topic, queue_id)
        except StreamError as error:
            return error
        return None

    def _open(self, topic: TopicConfig, queue_id: int) -> OwnedShard:
        """Open a shard, and have it drained; called with ``_opening`` held."""
        place = topic.name, queue_id
        name = f"{topic.name}/{queue_id}"
        what = f"shard {name}"
        if self._is_ended:  # or a late call would take the files from the next process
            raise ShardUnavailableError(what, "its process ends")
        if topic.process_of(queue_id) != self.name:  # it moved, or the topic was recreated
            raise ShardMovedError(what, "another process has it by now", _MOVED_RETRY_AFTER_MS)
        if handed_over_file(self.data, topic.name, queue_id).exists():
            raise ShardMovedError(what, "it moves to another disk", _MOVED_RETRY_AFTER_MS)
        sizes: dict[str, Any] = self._sizes
        try:
            shard = OwnedShard(
                self.data,
                topic,
                queue_id,
                StoreConfig(store_host=topic.store_hosts[queue_id], **sizes),
                clock_ms=self._clock_ms,
                doorbell=self.doorbell.bell(*place),
                filter_doorbell=self._filter_doorbell,
            )
        except Exception as error:  # any error closes this shard alone
            reason = StoreError(why_closed(name, error, _ADVICE))
            self._note_closed(place, reason)
            raise reason from error
        with self._tables:
            disk, follow = self._disks.get(shard.device), None
            if disk is None:
                disk, follow = DiskShards(self.doorbell, self._fail), self._follow
                self._disks = {**self._disks, shard.device: disk}
            self._shards = {**self._shards, place: shard}
            self._closed.pop(place, None)
        disk.add(shard)
        if follow is not None:
            follow(disk)
        return shard

    def _fail(self, shard: OwnedShard, error: Exception) -> None:
        """Close a shard that failed; the others continue."""
        if not self._disks[shard.device].discard(shard):
            return  # another thread has closed it
        shard.abandon()
        reason = StoreError(why_closed("/".join(map(str, shard.place)), error, _ADVICE))
        self._note_closed(shard.place, reason, shard)

    def _note_closed(
        self, place: tuple[str, int], reason: StreamError, shard: OwnedShard | None = None
    ) -> None:
        """Note why a place has no open shard; *shard* is the one that failed, if it was open."""
        with self._tables:
            if self._shards.get(place) is not shard:
                return  # the topic was removed meanwhile, and may have been created again
            before = self._closed.get(place)
            # A shard that stays closed is tried each minute: the log has each reason once.
            if before is None or str(before.reason) != str(reason):
                _LOG.error("%s/%d is closed", *place, exc_info=reason)
            pause_s = _PAUSE_MIN_S if before is None else min(2 * before.pause_s, _PAUSE_MAX_S)
            self._closed[place] = _Closed(reason, pause_s, time.monotonic() + pause_s)
            self.attention.set()
            self._shards = {key: one for key, one in self._shards.items() if key != place}

    def _close(self, places: Iterable[tuple[str, int]]) -> None:
        """Close each of them; raise the error of the last one that cannot be closed cleanly."""
        leaving = {*places}
        with self._tables:
            shards = [shard for place, shard in self._shards.items() if place in leaving]
            self._shards = {key: one for key, one in self._shards.items() if key not in leaving}
        shards = [shard for shard in shards if self._disks[shard.device].discard(shard)]
        errors = [error for error in self._each(_close, shards) if error is not None]
        if errors:
            raise errors[-1]


def remove_old_files(process: ShardProcess, orders: Iterable[ExpiryOrder]) -> dict[str, str]:
    """Carry out each order; return why shards could not remove old files, by their places."""
    failed = {}
    for order in orders:
        try:
            shard = process.shard(order.topic.name, order.queue_id)
            shard.expire(order.policy, order.needed_from)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others continue
            failed[f"{order.topic.name}/{order.queue_id}"] = str(error)
    return failed


def _close(shard: OwnedShard) -> Exception | None:
    """Close a shard; return why it cannot be closed cleanly, None if it was."""
    try:
        shard.close()
    except Exception as error:  # noqa: BLE001 - the others are closed nevertheless
        return error
    return None


def _smaller(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: min(size, sizes.get(name, size)) for name, size in SHARED_FILE_SIZES.items()}

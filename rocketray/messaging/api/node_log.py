"""Reads of queues by position on all disks of a cluster, from any of its machines.

The queues of a disk on this machine are read from their files (topics/log_reader.py), those of
another disk by calls to it. A queue that is moved is followed within ``LOOK_S``; until then its old
place has nothing new.

Invariant: ``read`` is called by one thread at a time; the other methods by any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from rocketray.broker.fetching.range_api import RangeApi
from rocketray.broker.fetching.read_plan import Bounds
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.log_reader import LogReader, Queue
from rocketray.errors import NodeElsewhereError, ShardUnavailableError, TopicNotFoundError
from rocketray.message import StoredMessage

from .tails import TailNode

# One call to the coordinator in that time, however often the log is read. A queue that was moved
# looks idle until then: nothing is lost, as its position is read on at its new place.
LOOK_S = 5.0
# Between two looks at queues of several disks, which no bell announces. The pause doubles up to
# 0.1 s: an idle reader makes ten calls a second to each disk of another machine.
_POLL_S = 0.01
_POLL_MAX_S = 0.1


class _Source(Protocol):
    """The queues of one disk."""

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Return the first queue offset that exists, and the one after the last message."""

    def known_end(self, queue: Queue) -> int:
        """Return the end at the last read, or now."""

    def read(
        self, positions: Mapping[Queue, int], max_messages: int, timeout_s: float
    ) -> dict[Queue, list[StoredMessage]]:
        """Return messages of each queue from its position on."""

    def interrupt(self) -> None:
        """Make the waiting read, or the next one, return at once."""

    def close(self) -> None:
        """Release what it holds."""


class NodeLog:
    """A reader of the queues of one cluster."""

    def __init__(self, node: TailNode) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._sources: dict[str, _Source] = {}
        self._topics: dict[str, TopicConfig] = {}
        self._looked_s = 0.0
        self._is_stale = False
        self._interrupted = threading.Event()

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Return the first queue offset that exists, and the one after the last visible message.

        Raises:
            TopicNotFoundError: there is no such topic.
            ShardUnavailableError: the disk of the queue does not answer.
            FileNotFoundError: the queue, on a disk of this machine, has never been opened.
        """
        return self._source(queue).bounds(queue)

    def known_end(self, queue: Queue) -> int:
        """Return the end of a queue at its last read; it costs no call then."""
        return self._source(queue).known_end(queue)

    def read(
        self, positions: Mapping[Queue, int], max_messages: int, timeout_s: float
    ) -> dict[Queue, list[StoredMessage]]:
        """Return up to *max_messages* of each queue from its position on; wait until there is one.

        Large messages make them fewer. Empty if the time is over, or :meth:`interrupt` was called
        since the last read.

        Raises:
            CorruptRecordError: a message is damaged.
            ShardUnavailableError: the disk of a queue does not answer.
        """
        self._follow()
        parts: dict[str, dict[Queue, int]] = {}
        for queue, position in positions.items():
            parts.setdefault(self._disk_of(queue), {})[queue] = position
        if len(parts) == 1:
            [(disk, part)] = parts.items()
            source = self._source_on(disk)
            if isinstance(source, _LocalQueues):  # its bell wakes the read
                # One of before there was this source could not be passed on to it. One that comes
                # from now on is: it ends this read, and then perhaps the next one, too.
                is_interrupted = self._interrupted.is_set()
                self._interrupted.clear()
                return source.read(part, max_messages, 0.0 if is_interrupted else timeout_s)
        end_s, pause_s = time.monotonic() + timeout_s, _POLL_S
        found: dict[Queue, list[StoredMessage]] = {}
        while True:
            for disk, part in parts.items():
                found |= self._source_on(disk).read(part, max_messages, 0.0)
            left_s = end_s - time.monotonic()
            if found or left_s <= 0 or self._interrupted.wait(min(pause_s, left_s)):
                self._interrupted.clear()
                return found
            pause_s = min(2 * pause_s, _POLL_MAX_S)

    def reopen(self) -> None:
        """Have all queues opened again by the next read: a topic was deleted."""
        self._is_stale = True
        self.interrupt()

    def interrupt(self) -> None:
        """Make the waiting read, or the next one, return at once: its positions are outdated."""
        self._interrupted.set()
        with self._lock:
            sources = [*self._sources.values()]
        for source in sources:
            source.interrupt()

    def close(self) -> None:
        """Release everything; no read may be running."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()

    def _source(self, queue: Queue) -> _Source:
        return self._source_on(self._disk_of(queue))

    def _source_on(self, disk: str) -> _Source:
        with self._lock:
            if disk not in self._sources:
                place = self._node.at(disk)
                try:
                    self._sources[disk] = _LocalQueues(place.files("reading queues"))
                except NodeElsewhereError:
                    self._sources[disk] = _RemoteQueues(place.ranges)
            return self._sources[disk]

    def _disk_of(self, queue: Queue) -> str:
        topic, queue_id = queue
        known = self._topics.get(topic)
        if known is None or queue_id >= known.queues:  # the topic was created or enlarged since
            self._look_up()
            known = self._topics.get(topic)
        if known is None or queue_id >= known.queues:
            raise TopicNotFoundError(topic)
        return known.disk_of(queue_id)

    def _follow(self) -> None:
        """Look up where the queues are by now; a disk that one left or came to is opened again."""
        if self._is_stale:
            self._is_stale = False
            self._topics = {}
            self._reopen({*self._sources})
        if time.monotonic() < self._looked_s + LOOK_S:
            return
        before = self._topics
        try:
            self._look_up()
        except ShardUnavailableError:
            self._looked_s = time.monotonic()  # queues are read on meanwhile
            return
        for name, topic in before.items():
            now = self._topics.get(name)
            if now is None or now.disks == topic.disks:
                continue  # of a deleted topic the reader is told: see reopen()
            self._reopen({*topic.by_disk(), *now.by_disk()})

    def _reopen(self, disks: Iterable[str]) -> None:
        for disk in disks:
            with self._lock:
                source = self._sources.pop(disk, None)
            if source is not None:
                source.close()

    def _look_up(self) -> None:
        self._topics = self._node.topics.all()
        self._looked_s = time.monotonic()


class _LocalQueues(LogReader):
    """The queues of a disk on this machine."""

    def known_end(self, queue: Queue) -> int:
        return self.bounds(queue)[1]


class _RemoteQueues:
    """The queues of a disk on another machine; it waits for nothing."""

    def __init__(self, ranges: RangeApi) -> None:
        self._ranges = ranges
        self._held: dict[Queue, Bounds] = {}
        self._turn = 0

    def bounds(self, queue: Queue) -> tuple[int, int]:
        held = self._held[queue] = self._ranges.records({queue: 0}, 0)[queue].held
        return held.minimum, held.visible

    def known_end(self, queue: Queue) -> int:
        held = self._held.get(queue)
        return self.bounds(queue)[1] if held is None else held.visible

    def read(
        self, positions: Mapping[Queue, int], max_messages: int, timeout_s: float
    ) -> dict[Queue, list[StoredMessage]]:
        del timeout_s
        found = self._ranges.records(dict(self._in_turn(positions)), max_messages)
        self._held |= {queue: records.held for queue, records in found.items()}
        return {queue: one.messages() for queue, one in found.items() if one.frame}

    def interrupt(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is held."""

    def _in_turn(self, positions: Mapping[Queue, int]) -> list[tuple[Queue, int]]:
        """Return the positions; another queue is the first each time, as a reply has a limit."""
        every = sorted(positions.items())
        self._turn = (self._turn + 1) % max(1, len(every))
        return every[self._turn :] + every[: self._turn]

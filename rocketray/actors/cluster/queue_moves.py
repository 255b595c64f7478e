"""Moves of queues to other disks: the coordinator's part.

    moves       {"version": 1, "moves": […]}: those under way, or whose old files are still there

A move copies the files while the queue is used (disks/queue_copy.py), round after round, until
little is left. Then the shard is closed, the rest is copied and compared, and the catalog gets the
new disk. Producers and members learn of it from the catalog, and continue there.

Invariants
  1. The catalog says where a queue is. Its files on another disk are a copy that is not complete,
     or an old one; no process opens them, and they are removed.
  2. While a queue is handed over, no process stores in it, whatever dies meanwhile: its directory
     says so (topic_files.HANDED_OVER), until the move has failed and takes it back. Others who have
     queues started, such as after a disk came back, may know the catalog of before.
  3. A move is in the document before it begins, and until its old files are removed. The next
     coordinator removes what the catalog does not lead to.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from rocketray.base.file_form import FileForm
from rocketray.base.json_fields import read_value
from rocketray.base.names import disk_words
from rocketray.broker.disks.copy_rounds import RoundProgress
from rocketray.broker.disks.disks_api import CopiedQueue, MovedQueue
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.service_queues import may_move
from rocketray.broker.topics.topic_start import Started
from rocketray.errors import ConfigError, ShardUnavailableError, StoreError, StreamError
from rocketray.runtime.files.file_documents import Documents

from .cluster_state import ClusterState
from .topic_locks import TopicLocks

_LOG = logging.getLogger(__name__)
_NAME = "moves"
_FORM = FileForm("config/moves.json")
_MOVES_AT_ONCE = 2  # each has a thread for all of its copy; further ones wait
_WAIT_MAX_S = 20.0  # less than CALL_TIMEOUT_S; the command asks again, and shows the progress
# Of a queue that is filled faster than it is copied, the last round has what came in one round.
_ROUNDS_MAX = 10
_SMALL_S = 0.3
"""A round that took no longer leaves little for the last one."""
_OPEN_S = 20.0  # how long a move waits for the new shard; one that takes longer opens all the same
_GRACE_S = 30.0
"""How long the old files stay: members that do not know of the move yet still read them.

Heartbeats tell members within a second, and readers by position look every five (node_log.py).
"""


@dataclass(frozen=True, slots=True)
class _Move:
    """A move, or what is left of it."""

    topic: str
    topic_id: str
    queue_id: int
    store_host: tuple[str, int]
    source: str
    target: str

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.queue_id}"


class MovingDisks(Protocol):
    """The disks of a cluster, as a move uses them."""

    def copy_queue(
        self, topic: TopicConfig, queue_id: int, target: str, *, is_closed: bool
    ) -> CopiedQueue:
        """Have *target* fetch what it lacks; raises as ``DiskApi.copy_queue``."""

    def copy_progress(self, disk: str, topic: str, queue_id: int) -> RoundProgress:
        """Return how far the present round of a copy to *disk* is.

        Raises:
            ShardUnavailableError: the disk does not answer.
        """

    def remove_queue(
        self, disk: str, topic: str, queue_id: int, store_host: tuple[str, int]
    ) -> None:
        """Remove the files of a queue from *disk*; raises as ``DiskApi.remove_queue``."""

    def check_target(self, disk: str) -> None:
        """Raise :class:`ConfigError` or ``ShardUnavailableError`` unless *disk* takes queues."""


class MovingShards(Protocol):
    """The shard processes of a cluster, as a move uses them."""

    def start(
        self, topics: list[TopicConfig], queues: range | None, wait_s: float | None
    ) -> Started:
        """See ``TopicShards.start``."""

    def start_process(self, topic: TopicConfig, queue_id: int) -> None:
        """Start the process that a queue is to be in, before it has the queue."""

    def hand_over(self, topic: TopicConfig, queue_id: int) -> None:
        """Close the shard of a queue, all on disk; only :meth:`take_back` opens it again."""

    def take_back(self, topic: TopicConfig, queue_id: int) -> None:
        """Open the shard of a queue whose move has failed, where the catalog has it.

        Raises:
            StreamError: its process does not answer, or cannot open it.
        """

    def end_unused(self, before: TopicConfig, after: TopicConfig) -> None:
        """End the processes that have no queue of the topic any more."""


class QueueMoves:
    """All moves; for any thread."""

    def __init__(
        self,
        documents: Documents,
        state: ClusterState,
        disks: MovingDisks,
        shards: MovingShards,
        locks: TopicLocks,
    ) -> None:
        """Load the moves that an earlier coordinator did not complete; :meth:`tidy` ends them.

        *locks* are those of the creation and deletion of topics.
        """
        self._documents = documents
        self._state = state
        self._disks = disks
        self._shards = shards
        self._locks = locks
        self._lock = threading.Lock()
        self._moves: dict[str, _Move] = documents.load(_NAME, _parsed) or {}
        self._to_take_back = {*self._moves}
        """Queues that may be handed over still, though no move of theirs is under way."""
        self._threads = ThreadPoolExecutor(_MOVES_AT_ONCE, thread_name_prefix="moves")
        self._running: dict[str, tuple[str, Future[MovedQueue]]] = {}
        """Moves that are under way, or whose caller has not heard the outcome: the targets."""
        self._tidy_at_s = dict.fromkeys(self._moves, time.monotonic() + _GRACE_S)

    def move(
        self, name: str, queue_id: int, target: str, wait_s: float
    ) -> MovedQueue | RoundProgress:
        key = f"{name}/{queue_id}"
        with self._lock:
            running = self._running.get(key)
            if running is not None and running[0] != target:
                if not running[1].done():
                    raise ConfigError(f"queue {key} is being moved to another disk already")
                running = None
            if running is None:
                topic = self._check(name, queue_id, target)
                running = target, self._threads.submit(self._move, topic, queue_id, target)
                self._running[key] = running
        future = running[1]
        if future not in wait([future], min(wait_s, _WAIT_MAX_S))[0]:
            return self._progress(name, queue_id, target)
        with self._lock:
            if self._running.get(key) == running:
                del self._running[key]
        return future.result()

    def _progress(self, name: str, queue_id: int, target: str) -> RoundProgress:
        """Return how far a move is; that *target* does not answer is left to the move itself."""
        try:
            return self._disks.copy_progress(target, name, queue_id)
        except StreamError as error:
            _LOG.info("disk %s does not say how far a move is: %s", target, error)
            return RoundProgress()

    def _move(self, topic: TopicConfig, queue_id: int, target: str) -> MovedQueue:
        name = topic.name
        source = topic.disk_of(queue_id)
        move = _Move(*(name, topic.topic_id, queue_id, topic.store_hosts[queue_id], source, target))
        # An earlier move that failed left a copy, perhaps on a third disk, which the entry names.
        if (before := self._moves.get(move.name)) is not None:
            self._take_back(before)
            self._remove_old(before)
        self._note(move)
        try:
            copied = self._copy_while_used(topic, move)
            moving = self._state.topics.catalog.with_disk(name, queue_id, target).get(name)
            # Before the queue is closed: a process takes seconds to start.
            self._shards.start_process(moving, queue_id)
            with self._locks.of(name):
                return self._hand_over(move, copied)
        finally:
            self._tidy_at_s[move.name] = time.monotonic() + _GRACE_S

    def tidy(self) -> None:
        """Take back what failed moves left closed, and remove files that no catalog leads to.

        Called at once by a coordinator that begins, and then periodically.
        """
        for move in list(self._moves.values()):
            running = self._running.get(move.name)
            if running is None or running[1].done():
                self._take_back(move)
                if time.monotonic() >= self._tidy_at_s.get(move.name, 0.0):
                    self._remove_old(move)

    def _check(self, name: str, queue_id: int, target: str) -> TopicConfig:
        topic = self._state.topics.catalog.get(name)
        topic.check_queue(queue_id)
        if not may_move(name, internal=topic.internal):
            raise ConfigError(
                f"topic {name!r} is one of the node's own, whose queues stay on their disks"
            )
        self._disks.check_target(target)
        if topic.disk_of(queue_id) == target:
            raise ConfigError(f"queue {name}/{queue_id} is on that disk already")
        return topic

    def _copy_while_used(self, topic: TopicConfig, move: _Move) -> CopiedQueue:
        """Copy until a round is short, or no round gets shorter."""
        count, seconds = 0, 0.0
        for _ in range(_ROUNDS_MAX):
            one = self._disks.copy_queue(topic, move.queue_id, move.target, is_closed=False)
            count, seconds = count + one.fetched_bytes, seconds + one.seconds
            if one.seconds <= _SMALL_S:
                break
        return CopiedQueue(count, seconds)

    def _hand_over(self, move: _Move, copied: CopiedQueue) -> MovedQueue:
        """Close the queue, copy the rest, and have it opened on its new disk."""
        topic = self._state.topics.catalog.get(move.topic)
        if topic.topic_id != move.topic_id:
            raise StoreError(f"topic {move.topic!r} was deleted while queue {move.name} was copied")
        queues = range(move.queue_id, move.queue_id + 1)
        begin_s = time.monotonic()
        try:
            self._shards.hand_over(topic, move.queue_id)
            rest = self._disks.copy_queue(topic, move.queue_id, move.target, is_closed=True)
            moved = self._state.topics.change(
                move.topic,
                lambda catalog: catalog.with_disk(move.topic, move.queue_id, move.target),
            )
        except BaseException:  # where it was, it stays closed until then (invariant 2)
            self._to_take_back.add(move.name)
            self._take_back_locked(move)
            raise
        self._shards.start([moved], queues, _OPEN_S)
        stopped_s = time.monotonic() - begin_s
        _LOG.info(
            "queue %s is on %s now: %d bytes in %.1f s, the last %d with the queue closed, "
            "for %.2f s",
            *(move.name, disk_words(move.target), copied.fetched_bytes),
            *(copied.seconds, rest.fetched_bytes, stopped_s),
        )
        self._shards.end_unused(topic, moved)
        return MovedQueue(copied.fetched_bytes, copied.seconds, rest.fetched_bytes, stopped_s)

    def _take_back(self, move: _Move) -> None:
        """Have a queue opened that a failed move left closed, while none is handed over."""
        with self._locks.of(move.topic):
            self._take_back_locked(move)

    def _take_back_locked(self, move: _Move) -> None:
        topic = self._state.topics.catalog.topics.get(move.topic)
        if move.name not in self._to_take_back or topic is None or topic.topic_id != move.topic_id:
            return
        try:
            self._shards.take_back(topic, move.queue_id)
        except StreamError as error:  # the next ``tidy`` tries again
            _LOG.warning("queue %s is not open again after its move failed: %s", move.name, error)
        else:
            self._to_take_back.discard(move.name)

    def _remove_old(self, move: _Move) -> None:
        """Remove the files that the catalog does not lead to, from disks that answer."""
        subject = f"moved queue {move.name}"
        topic = self._state.topics.catalog.topics.get(move.topic)
        is_same = topic is not None and topic.topic_id == move.topic_id
        now = topic.disk_of(move.queue_id) if topic is not None and is_same else None
        try:
            for disk in {move.source, move.target} - {now}:
                self._disks.remove_queue(disk, move.topic, move.queue_id, move.store_host)
        except ShardUnavailableError as error:
            _LOG.warning("old files of queue %s are removed later: %s", move.name, error)
            return
        except (StreamError, OSError) as error:
            self._state.problems.note(
                subject, f"old files of queue {move.name} are not removed yet: {error}"
            )
            return
        self._state.problems.resolve(subject)
        with self._lock:
            self._save({name: each for name, each in self._moves.items() if name != move.name})

    def _note(self, move: _Move) -> None:
        with self._lock:
            self._save({**self._moves, move.name: move})

    def _save(self, moves: dict[str, _Move]) -> None:
        """Save *moves*, made of the present ones; called with the lock: two may change them."""
        values = [asdict(each) for each in moves.values()]
        self._documents.save(_NAME, _FORM.of({"moves": values}))
        self._moves = moves


def _parsed(value: dict[str, Any]) -> dict[str, _Move]:
    value = _FORM.content(value)
    moves = read_value(tuple[_Move, ...], value["moves"], str)
    return {each.name: each for each in moves}

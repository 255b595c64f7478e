"""The coordinator's service for topics: their state, and the start and stop of their shards.

Plain Python. The shards are those of the node's processes; the testing kit has its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, Unpack

from rocketray.base.ack_mode import AckMode
from rocketray.broker.filtering.bitmap_orders import Answer, BitmapOrder
from rocketray.broker.shards.shard_problems import subjects_of
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.topic_options import TopicOptions
from rocketray.broker.topics.topic_start import Started
from rocketray.errors import (
    RegisterUnavailableError,
    ShardUnavailableError,
    StreamError,
    TopicNotFoundError,
)
from rocketray.store.retention import RetentionPolicy

from .cluster_state import ClusterState
from .topic_locks import TopicLocks

_LOG = logging.getLogger(__name__)
# A look at the disks waits so long for the shards of one that came back; those that take longer
# open all the same, and their problems are noted by the next look at problems.
_COME_BACK_S = 20.0
_QUEUE = "queue "  # before a shard's subject in the node's problems


class TopicShards(Protocol):
    """The shards of topics, as far as this service needs them."""

    def start(
        self, topics: list[TopicConfig], queues: range | None, wait_s: float | None
    ) -> Started:
        """Start the shards of *topics*, or those of *queues*; leave running shards alone.

        Return when they answer, or after *wait_s*.
        """

    def remove(self, topic: TopicConfig) -> None:
        """Stop the shards of a deleted topic for good."""

    def remove_files(self, topic: TopicConfig) -> None:
        """Remove the files of a deleted topic from all disks but the coordinator's."""

    def set_writable(self, topic: TopicConfig) -> None:
        """Have the shards accept batches of producers, or refuse them, as the topic says."""

    def problems(
        self, topics: Iterable[TopicConfig], noted: Collection[str]
    ) -> dict[str, str | None]:
        """Return what is wrong with shards, by subject (shard_problems.py).

        Of the subjects that are *noted* as wrong, those that are not have None. Shards that cannot
        be asked are left out.
        """

    def keep_bitmaps(self, orders: Sequence[BitmapOrder]) -> Sequence[Sequence[Answer] | None]:
        """Carry out each order; return its shards' answers, or None if one is missing."""


class TopicService:
    """All changes to topics, also several at once: the object behind ``TopicsApi``."""

    def __init__(self, state: ClusterState, shards: TopicShards) -> None:
        self._state = state
        self._topics = state.topics
        self._shards = shards
        self.locks = TopicLocks()
        """The locks of topics whose shards are started or stopped."""
        self._ordering = threading.Lock()  # answers are taken in the order of their orders

    def start_all(self) -> None:
        """Finish the deletions of an earlier coordinator, then start the shards of all topics."""
        self._finish_deletions()
        self._start_shards(list(self.all().values()), None, None)

    def start_again(self, *, came_back: bool = True) -> None:
        """Do the same after a disk *came_back*; running shards are left alone.

        First, a disk that joined gets its queues of the services. While they cannot be saved, it
        uses those of other disks.
        """
        grown: list[str] = []
        try:
            grown = self._topics.extend()
        except (OSError, RegisterUnavailableError) as error:
            line = f"delays and retries of disks that joined wait on others: {error}"
            self._state.problems.note("queues of services", line)
        else:
            self._state.problems.resolve("queues of services")
        if came_back or grown:
            self._finish_deletions()
            self._start_shards(list(self.all().values()), None, _COME_BACK_S)

    def all(self) -> dict[str, TopicConfig]:
        return dict(self._topics.catalog.topics)

    def get(self, name: str) -> TopicConfig:
        return self._topics.catalog.get(name)

    def create(self, name: str, queues: int, **options: Unpack[TopicOptions]) -> TopicConfig:
        with self.locks.of(name):
            self._finish_deletion({name})
            return self._state.create_topic(name, queues, **options)

    def create_many(
        self, names: Sequence[str], queues: int, wait_s: float, **options: Unpack[TopicOptions]
    ) -> Started:
        with self.locks.of(*names):
            self._finish_deletion({*names})
            topics = self._topics.create_many(names, queues, **options)
            return self._start_shards(topics, None, wait_s)

    def start_queues(self, name: str, topic_id: str, queues: range, wait_s: float) -> Started:
        with self.locks.of(name):
            topic = self.get(name)
            if topic.topic_id != topic_id:
                raise TopicNotFoundError(name)
            return self._start_shards([topic], queues, wait_s)

    def set_permission(self, name: str, perm: int) -> TopicConfig:
        topic = self._topics.change(name, lambda topics: topics.with_permission(name, perm))
        self._shards.set_writable(topic)
        return topic

    def set_retention(self, name: str, retention: RetentionPolicy) -> TopicConfig:
        return self._topics.change(name, lambda topics: topics.with_retention(name, retention))

    def set_bitmaps(self, name: str, mode: str) -> TopicConfig:
        topic = self._topics.change(name, lambda topics: topics.with_bitmaps(name, mode))
        self.order_bitmaps()
        return topic

    def set_ack(self, name: str, ack: AckMode | None) -> TopicConfig:
        return self._topics.change(name, lambda topics: topics.with_ack(name, ack))

    def set_node_ack(self, ack: AckMode) -> None:
        self._topics.set_node_ack(ack)

    def delete(self, name: str) -> None:
        with self.locks.of(name):
            self._remove(self._state.delete_topic(name))

    def order_bitmaps(self) -> None:
        """Tell shards for which groups they keep filter bitmaps."""
        with self._ordering:
            orders = self._state.bitmap_orders()
            for order, answers in zip(orders, self._shards.keep_bitmaps(orders), strict=True):
                self._state.take_bitmaps(order, answers)

    def note_problems(self) -> None:
        """Note what is wrong with shards, such as that one is closed, as long as it is."""
        noted = self._state.problems.noted(_QUEUE)
        for subject, line in self._shards.problems(self.all().values(), noted).items():
            if line is None:
                self._state.problems.resolve(_QUEUE + subject)
            else:
                self._state.problems.note(_QUEUE + subject, line)

    def _remove(self, deleted: TopicConfig) -> None:
        """Stop the shards of a deleted topic, and remove its files."""
        try:
            self._shards.remove(deleted)
        finally:  # a shard that cannot be stopped finds no directory at its restart
            for queue_id in range(deleted.queues):
                for subject in subjects_of(f"{deleted.name}/{queue_id}"):
                    self._state.problems.resolve(_QUEUE + subject)
            self._remove_files(deleted)

    def _remove_files(self, deleted: TopicConfig) -> None:
        """Remove the files of a deleted topic; files that stay are a problem until they go."""
        subject = f"deleted topic {deleted.name}"
        try:
            self._shards.remove_files(deleted)
            self._topics.remove_files(deleted)
        except (StreamError, OSError) as error:
            line = f"files of the deleted topic {deleted.name} are not removed yet: {error}"
            self._state.problems.note(subject, line)
            raise
        self._state.problems.resolve(subject)

    def _finish_deletion(self, names: set[str]) -> None:
        """Remove what is left of deleted topics that had these names."""
        for deleted in self._topics.deleted():
            if deleted.name in names:
                self._remove(deleted)

    def _finish_deletions(self) -> None:
        """Finish the deletions that an earlier coordinator did not complete before it died."""
        for deleted in self._topics.deleted():
            try:
                self._remove(deleted)
            except (StreamError, OSError) as error:
                if deleted not in self._topics.deleted():  # else it is noted already
                    _LOG.warning("shards of the deleted topic %s: %s", deleted.name, error)

    def _start_shards(
        self, topics: list[TopicConfig], queues: range | None, wait_s: float | None
    ) -> Started:
        """Start the shards; note why some stay closed, for ``rocketray status``."""
        started = self._shards.start(topics, queues, wait_s)
        made: dict[str, list[int]] = {}
        for topic in topics:
            for queue_id in range(topic.queues) if queues is None else queues:
                name = f"{topic.name}/{queue_id}"
                reason = started.closed.get(name)
                if isinstance(reason, ShardUnavailableError):
                    continue  # its disk does not answer, which is noted once for all its queues
                if reason is not None:
                    self._state.problems.note(_QUEUE + name, str(reason))
                elif name not in started.waiting:
                    self._state.problems.resolve(_QUEUE + name)
                    made.setdefault(topic.name, []).append(queue_id)
        try:
            self._topics.note_made(made)
        except (OSError, RegisterUnavailableError) as error:  # the shards run nevertheless
            _LOG.warning("which queues were created is recorded at the next start: %s", error)
        return started

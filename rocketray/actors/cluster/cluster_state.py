"""The coordinator's state: topics, groups, offsets and subscriptions, saved on disk.

Plain Python: the coordinator's actor adds threads and an address, the testing kit a clock. Safe to
use from several threads. The state is JSON in DATA/config.

When it is saved
  - Topics: before a change takes effect. A deleted topic is removed there first, then from its
    groups; the next start does what a crash left undone.
  - Groups, all in one snapshot (groups_file.py): before the answer to a call that changed a
    subscription, an owner or the moves; at :meth:`ClusterState.save`, and when a member leaves.
  - Registered SQL92 filters: after the subscriptions that they follow from.
  - Journals of groups: before any event that they record takes effect (group_journal.py).

A damaged file is restored from its copy (state_files.py). If the copy is damaged, too:
  - Without topics the node does not start.
  - Without groups they are closed, and no file is removed by retention.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocketray.actors.files.paths import control_path, filters_file, journal_directory
from rocketray.actors.files.problems import Problems
from rocketray.actors.filtering.bitmap_orders import Answer, BitmapBoard, BitmapOrder
from rocketray.actors.filtering.filter_rules import FilterRules
from rocketray.actors.filtering.sql_filters import SqlFilters
from rocketray.actors.groups.group_administration import GroupAdministration
from rocketray.actors.groups.group_offsets import LONG_MAX
from rocketray.actors.groups.group_registry import GroupRegistry
from rocketray.actors.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.actors.ipc.control_page import ControlPage
from rocketray.actors.journal.group_journal import GroupJournals
from rocketray.actors.journal.journal_file import JournalFiles
from rocketray.actors.topics.catalog import TopicCatalog, TopicConfig
from rocketray.actors.topics.placement import ONE_EACH, Placement
from rocketray.actors.topics.system_retention import retry_orders
from rocketray.actors.topics.topic_files import check_no_files, remove_files
from rocketray.errors import ConfigError, StoreError
from rocketray.names import QueuesPerProcess
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

from .groups_file import GroupsFile

__all__ = ["ClusterState", "ExpiryOrder"]


@dataclass(frozen=True, slots=True)
class ExpiryOrder:
    """What one shard is to remove: files beyond its topic's retention that no group needs."""

    topic: TopicConfig
    queue_id: int
    policy: RetentionPolicy
    needed_from: int | None


class ClusterState:
    """The only place where a cluster's state changes."""

    def __init__(
        self,
        data: Path,
        rules: FilterRules,
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int] | None = None,
        placement: Placement = ONE_EACH,
    ) -> None:
        """Load the state that an earlier coordinator saved.

        *clock_ms* is the wall clock; *steady_ms*, the same by default, is monotonic, and times the
        sessions of members. *placement* says which processes new queues are in.

        Raises:
            StoreError: a file of the state cannot be read. ConfigError: it has another form.
        """
        self._data = data
        self._rules = rules
        self._placement = placement
        self._clock_ms = clock_ms
        self._steady_ms = steady_ms or clock_ms
        self._lock = threading.RLock()
        self.problems = Problems(data)
        """The problems of the node, for its operator; all parts note theirs here."""
        self._catalog = TopicCatalog.load(data, owns=True)
        self._journal_files = JournalFiles(journal_directory(data))
        self._journals = GroupJournals(clock_ms)
        self._journals.load(self._journal_files.load())
        self._loaded_ms = self._steady_ms()
        self._closed: str | None = None
        self._groups_file = GroupsFile(data)
        self.registry = self._load_groups()
        self.administration = GroupAdministration(
            self.registry,
            self._looking,
            self._changing,
            queues=self._queues,
            check=rules.check,
            end_of=self._end_of,
            wall_ms=clock_ms,
        )
        """The requests of operators about groups."""
        self._sql_filters = SqlFilters(filters_file(data), clock_ms)
        self._bitmaps = BitmapBoard(self._catalog.topics.values())

    def _load_groups(self) -> GroupRegistry:
        """Return the groups; they stay closed if their file is lost."""
        try:
            registry = self._groups_file.load(self._journals, self._loaded_ms)
        except StoreError as error:
            self._closed = f"consumer groups are closed, and topics keep all files: {error}"
            self.problems.note("groups", self._closed)
            return GroupRegistry(self._journals)
        registry.keep_topics(self._catalog.topics)  # a crash may end a deletion
        registry.agree_with_journals()
        return registry

    def begin_to_listen(self) -> None:
        """Extend all sessions by the time since the load, during which no report could arrive."""
        with self._lock:
            self.registry.memberships.excuse(self._steady_ms() - self._loaded_ms)

    # Topics

    def topics(self) -> dict[str, TopicConfig]:
        """Return all topics."""
        return dict(self._catalog.topics)

    def topic(self, name: str) -> TopicConfig:
        """Return one topic; raise :class:`TopicNotFoundError`."""
        return self._catalog.get(name)

    def _queues(self) -> dict[str, int]:
        return dict(self._catalog.queues())

    def _end_of(self, topic: str, queue_id: int) -> int:
        """Return the end of a queue; the greatest offset if its shard has never run."""
        self.topic(topic).check_queue(queue_id)
        try:
            return ControlPage(control_path(self._data, topic, queue_id)).visible()
        except FileNotFoundError:
            return LONG_MAX

    def shard_of_host(self, host: tuple[str, int]) -> tuple[str, int] | None:
        """See :meth:`TopicCatalog.shard_of_host`."""
        return self._catalog.shard_of_host(host)

    def create_topic(
        self,
        name: str,
        queues: int,
        retention: RetentionPolicy = KEEP_ALL,
        *,
        internal: bool = False,
        queues_per_process: QueuesPerProcess = None,
    ) -> TopicConfig:
        """Save a new topic, or more queues of an existing one; its shards are not started here."""
        with self._lock:
            existing = self._catalog.topics.get(name)
            if existing is None or existing.queues != queues:
                changed = self._catalog.with_topic(
                    name,
                    queues,
                    retention,
                    internal=internal,
                    queues_per_process=queues_per_process,
                    placement=self._placement,
                )
                if existing is None:
                    check_no_files(self._data, name)
                self._change(changed)
            return self._catalog.get(name)

    def note_made(self, made: Mapping[str, Iterable[int]]) -> None:
        """Save which queues of topics, by name, have answered: their directories exist for good."""
        with self._lock:
            changed = self._catalog.with_made(made)
            if changed is not self._catalog:
                self._change(changed)

    def set_permission(self, name: str, perm: int) -> TopicConfig:
        """Allow writing (2), reading (4) or both (6)."""
        with self._lock:
            self._change(self._catalog.with_permission(name, perm))
            return self._catalog.get(name)

    def set_retention(self, name: str, retention: RetentionPolicy) -> TopicConfig:
        """Set how long, or up to how many bytes, a topic's messages are kept."""
        with self._lock:
            self._change(self._catalog.with_retention(name, retention))
            return self._catalog.get(name)

    def set_bitmaps(self, name: str, mode: str) -> TopicConfig:
        """Keep filter bitmaps always (on), never (off), or where they pay (auto)."""
        with self._lock:
            self._change(self._catalog.with_bitmaps(name, mode))
            return self._catalog.get(name)

    def delete_topic(self, name: str) -> TopicConfig:
        """Delete a topic and the state of its groups; return its former configuration.

        Its files still exist: see :meth:`remove_files`.
        """
        with self._lock:
            topic = self._catalog.get(name)
            self._change(self._catalog.without_topic(name))
            self.registry.keep_topics(self._catalog.topics)
            self._save_decisions()
            return topic

    def deleted_topics(self) -> list[TopicConfig]:
        """Return the deleted topics that may still have files."""
        return list(self._catalog.deleted.values())

    def remove_files(self, topic: TopicConfig) -> None:
        """Remove the files of a deleted topic, whose shards no process has open.

        Raises:
            StoreError, OSError: a file cannot be removed; the topic stays in
            :meth:`deleted_topics`.
        """
        remove_files(self._data, topic)
        with self._lock:
            self._change(self._catalog.without_deleted(topic.name))

    # Groups

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """See :meth:`GroupRegistry.heartbeat`."""
        self._rules.check(beat.group, beat.topic, beat.subscription)
        with self._lock:
            self._check_open()
            topic = self._catalog.get(beat.topic)
            if not topic.readable:
                raise ConfigError(
                    f"topic {topic.name!r} may not be read (permission {topic.perm}); change it "
                    f"with: rocketray topics alter {topic.name} --perm 6"
                )
            reply = self.registry.heartbeat(beat, topic.queues, self._steady_ms(), self._clock_ms())
            self._save_decisions()
            return reply

    def leave(self, beat: Heartbeat) -> None:
        """See :meth:`GroupRegistry.leave`."""
        with self._lock:
            self._check_open()
            self.registry.leave(beat)
            self._save_groups()

    @contextmanager
    def _looking(self) -> Iterator[int]:
        """Guard a request that changes nothing; yield the time."""
        with self._lock:
            self._check_open()
            yield self._steady_ms()

    @contextmanager
    def _changing(self) -> Iterator[int]:
        """Guard a request, and save what it changed unless it raises; yield the time."""
        with self._looking() as now_ms:
            yield now_ms
            self._save_decisions()

    # Periodic tasks of the owner

    def expiry_orders(self) -> list[ExpiryOrder]:
        """Return what each shard is to remove (store/retention.py); [] while groups are closed."""
        with self._lock:
            if self._closed is not None:
                return []
            return [
                self._expiry_order(topic, queue)
                for topic in self._catalog.topics.values()
                if not topic.retention.keeps_all
                for queue in range(topic.queues)
            ]

    def _expiry_order(self, topic: TopicConfig, queue: int) -> ExpiryOrder:
        needed_from = self.registry.needed_from(topic.name, queue)
        return ExpiryOrder(topic, queue, *retry_orders(topic.name, topic.retention, needed_from))

    def bitmap_orders(self) -> list[BitmapOrder]:
        """Return the orders for shards about filter bitmaps (bitmap_orders.py)."""
        with self._lock:
            if self._closed is not None:
                return []
            living = self.registry.live_subscriptions(self._steady_ms())
            return self._bitmaps.orders(
                self._catalog.topics, living, self.registry.memberships.counters
            )

    def take_bitmaps(self, order: BitmapOrder, answers: Sequence[Answer] | None) -> None:
        """Take the answers of a topic's shards, None if one is missing; raises as :meth:`save`."""
        with self._lock:
            self._bitmaps.take(order, answers)
            self._settle_filters()

    def save(self) -> None:
        """Save changed offsets, and remove unused filters.

        Raises OSError if a file cannot be written; the next call tries again.
        """
        with self._lock:
            self._save_groups()
            self._settle_filters()

    def stop(self) -> None:
        """Save all state and the time of the stop: members silent since then count as gone."""
        with self._lock:
            self._save_groups(stopped_ms=self._steady_ms())
            self._settle_filters()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise StoreError(self._closed)

    def _change(self, catalog: TopicCatalog) -> None:
        catalog.save(self._data)
        self._catalog = catalog

    def _save_decisions(self) -> None:
        """Save what has to be on disk before the answer; commits alone wait for the next save."""
        if self._groups_file.must_save(self.registry):
            self._save_groups()
        else:
            self._save_journals()

    def _save_groups(self, stopped_ms: int | None = None) -> None:
        self._save_journals()
        if self._closed is None:
            has_new_filters = self.registry.subscriptions.changed
            self._groups_file.save(self.registry, stopped_ms=stopped_ms)
            if has_new_filters:
                self._settle_filters()

    def _save_journals(self) -> None:
        """Save the journals before the groups and the answers, by which events take effect."""
        if self._journals.changed:
            self._journal_files.save(self._journals)

    def _settle_filters(self) -> None:
        if self._closed is not None:
            return
        living = self.registry.live_subscriptions(self._steady_ms())
        self._sql_filters.settle(*self._bitmaps.known(living))

"""The coordinator's state: topics, groups, offsets and subscriptions, saved on disk.

Plain Python: the coordinator's actor adds threads and an address, the testing kit a clock. Safe to
use from several threads. The state is JSON in DATA/config.

When it is saved
  - Topics: before a change takes effect. A deleted topic is removed there first, then from its
    groups; the next start does what a crash left undone.
  - Groups, all in one snapshot (groups_file.py): before the answer to a call that changed a
    subscription, an owner or the moves; at :meth:`ClusterState.save`, and when a member leaves. The
    lock is not held meanwhile: calls of other groups are answered. If it fails, the groups of the
    failed calls get no answer until a save succeeds.
  - Registered SQL92 filters: after the subscriptions that they follow from.
  - Named filters: before a change takes effect. Those of a deleted topic are removed after it,
    and count as none until then.
  - Journals of groups: before any event that they record takes effect (group_journal.py).

A damaged file is restored from its copy (state_files.py). If the copy is damaged, too:
  - Without topics the node does not start.
  - Without groups they are closed, and no file is removed by retention.
  - Without named filters these alone are closed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from rocketray.broker.filtering.bitmap_orders import Answer, BitmapBoard, BitmapOrder
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.filtering.sql_filters import SqlFilters
from rocketray.broker.named_filters.named_filters import NamedFilters
from rocketray.broker.shards.shard_api import ExpiryOrder
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.placement import ONE_EACH, Placement
from rocketray.broker.topics.system_retention import retry_orders
from rocketray.broker.topics.topic_options import TopicOptions
from rocketray.broker.topics.topic_registry import TopicRegistry
from rocketray.errors import (
    ConfigError,
    RegisterUnavailableError,
    ShardUnavailableError,
    StoreError,
)
from rocketray.groups.group_administration import GroupAdministration
from rocketray.groups.group_offsets import LONG_MAX
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.groups.journal.group_journal import GroupJournals
from rocketray.groups.journal.journal_file import JournalFiles
from rocketray.runtime.files.file_documents import Documents, FileDocuments
from rocketray.runtime.files.paths import control_path, filters_file, journal_directory
from rocketray.runtime.files.state_files import disk_error, repaired_files
from rocketray.runtime.ipc.control_page import ControlPage

from .groups_file import GroupsFile
from .stall_watch import StallWatch

_LOG = logging.getLogger(__name__)
EndOf = Callable[[TopicConfig, int], int]


class Problems:
    """Current problems of a node, for ``rocketray status``: a line for each subject.

    A new line for a subject replaces the one before it. Each says what is wrong, where, and what to
    do. A state file that was damaged and repaired, by any process, is a problem until the operator
    removes the damaged file (state_files.py). Safe to use from several threads.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._lines: dict[str, str] = {}

    def note(self, subject: str, line: str) -> None:
        """Record that something is wrong with *subject*; logged when it is new."""
        with self._lock:
            is_new = self._lines.get(subject) != line
            self._lines[subject] = line
        if is_new:
            _LOG.warning("%s", line)

    def resolve(self, subject: str) -> None:
        """Record that nothing is wrong with *subject* any more."""
        with self._lock:
            self._lines.pop(subject, None)

    def noted(self, prefix: str) -> set[str]:
        """Return the subjects that begin with *prefix* and have a line, without the prefix."""
        with self._lock:
            return {each.removeprefix(prefix) for each in self._lines if each.startswith(prefix)}

    def lines(self) -> list[str]:
        """Return the lines: of files first, then of the rest, ordered by subject."""
        with self._lock:
            noted = [line for _, line in sorted(self._lines.items())]
        return repaired_files(self._data) + noted


class ClusterState:
    """The only place where a cluster's state changes."""

    def __init__(
        self,
        data: Path,
        rules: FilterRules,
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int] | None = None,
        placement: Placement = ONE_EACH,
        *,
        documents: Documents | None = None,
        end_elsewhere: EndOf = lambda *_: LONG_MAX,
        has_first_disk: bool = True,
    ) -> None:
        """Load the state that an earlier coordinator saved.

        *clock_ms* is the wall clock; *steady_ms*, the same by default, is monotonic, and times the
        sessions of members. *placement* says where new queues are. *documents* are those in
        *data* by default. *end_elsewhere* returns the end of a queue on another disk, of which the
        first one is one, too, unless the coordinator *has_first_disk*.

        Raises:
            StoreError: a file of the state cannot be read. ConfigError: it has another form.
        """
        self._data = data
        self._rules = rules
        self._clock_ms = clock_ms
        self._steady_ms = steady_ms or clock_ms
        self._end_elsewhere = end_elsewhere
        self._has_first_disk = has_first_disk
        self._lock = threading.RLock()  # shared with the topics, so that both are seen together
        self.problems = Problems(data)
        """The problems of the node, for its operator; all parts note theirs here."""
        self.documents = documents or FileDocuments(data)
        """The topics, disks, moves, groups and named filters, as they are saved."""
        self.topics = TopicRegistry(data, self.documents, placement, self._lock)
        self._journal_files = JournalFiles(journal_directory(data))
        self._journals = GroupJournals(clock_ms)
        self._journals.load(self._journal_files.load())
        self._loaded_ms = self._steady_ms()
        self._stalls = StallWatch(self._steady_ms)
        self._closed: str | None = None
        self._groups_file = GroupsFile(self.documents)
        self._writing = threading.Lock()  # its holder may wait for the lock, never the reverse
        self._unwritten: dict[str, int] = {}  # the snapshots that groups wait for; "": all of them
        self._has_new_filters = False
        self.registry = self._load_groups()
        self.administration = GroupAdministration(
            self.registry,
            self._looking,
            self._changing,
            queues=lambda: {
                name: topic.queues for name, topic in self.topics.catalog.topics.items()
            },
            check=rules.check,
            end_of=self._end_of,
            wall_ms=clock_ms,
        )
        self.named_filters = NamedFilters(
            self.documents,
            self.topics,
            self.registry,
            self._looking,
            check=rules.check_filter,
            wall_ms=clock_ms,
        )
        if self.named_filters.closed is not None:
            self.problems.note("named filters", self.named_filters.closed)
        self._sql_filters = SqlFilters(filters_file(data), clock_ms)
        self._bitmaps = BitmapBoard(self.topics.catalog.topics.values())

    def _load_groups(self) -> GroupRegistry:
        """Return the groups; they stay closed if their file is lost."""
        try:
            registry = self._groups_file.load(self._journals, self._loaded_ms)
        except StoreError as error:
            self._closed = f"consumer groups are closed, and topics keep all files: {error}"
            self.problems.note("groups", self._closed)
            return GroupRegistry(self._journals)
        registry.keep_topics(self.topics.catalog.topics)  # a crash may end a deletion
        registry.agree_with_journals()
        return registry

    def begin_to_listen(self) -> None:
        """Extend all sessions by the time since the load, during which no report could arrive."""
        with self._lock:
            now_ms = self._steady_ms()
            self.registry.memberships.excuse(now_ms - self._loaded_ms, now_ms)

    def look_at_clock(self) -> None:
        """Notice whether this process stood still since the last look.

        From the first one on it has to be called each ``LOOK_EVERY_S``.
        """
        with self._lock:
            self._stalls.begin()
            self._session_ms()

    def _session_ms(self) -> int:
        """Return the time by which sessions are judged; the caller has the lock.

        They are extended by the time for which this process stood still.
        """
        if stalled_ms := self._stalls.stalled_ms():
            _LOG.warning(
                "the coordinator, or its disk, stood still for %.1f s: it took no heartbeats, and extends "
                "the sessions of members",
                stalled_ms / 1000,
            )
            self.registry.memberships.excuse(stalled_ms, self._steady_ms())
        return self._steady_ms()

    def _end_of(self, topic: str, queue_id: int) -> int:
        """Return the end of a queue; the greatest offset if its shard has never run."""
        config = self.topics.catalog.get(topic)
        config.check_queue(queue_id)
        if config.disk_of(queue_id) or not self._has_first_disk:
            return self._end_elsewhere(config, queue_id)
        try:
            return ControlPage(control_path(self._data, topic, queue_id)).visible()
        except FileNotFoundError:
            return LONG_MAX

    def create_topic(self, name: str, queues: int, **options: Unpack[TopicOptions]) -> TopicConfig:
        """Save a topic or its new queues, of which the groups that exist miss no message.

        Their offsets in the new queues are on disk first: whatever fails then, they stay right.
        """
        existing = self.topics.catalog.topics.get(name)
        added = range(0 if existing is None else existing.queues, queues)
        if added:
            with self._lock:
                self._check_open()
                self.registry.later_queues.will_come(name, added)
                number = self._taken() if self.registry.offsets.changed else 0
            self._write(number)
        return self.topics.create(name, queues, **options)

    def delete_topic(self, name: str) -> TopicConfig:
        """Delete a topic and the state of its groups; return its former configuration.

        Its files still exist: see :meth:`TopicRegistry.remove_files`.
        """
        topic = self.topics.delete(name)
        with self._lock:
            self.registry.keep_topics(self.topics.catalog.topics)
            number = self._decided()
        self._write(number)
        self.named_filters.keep_topics()
        return topic

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """See :meth:`GroupRegistry.heartbeat`.

        Raises:
            ShardUnavailableError: what it changed cannot be saved now. The member tries again, as
                if it had got no answer.
        """
        self._rules.check(beat.group, beat.topic, beat.subscription)
        try:
            return self._heartbeat(beat)
        except (OSError, RegisterUnavailableError) as error:
            reason = disk_error(self._data, error) if isinstance(error, OSError) else error
            said = f"its state cannot be saved: {reason}"
            raise ShardUnavailableError("the coordinator", said) from error

    def _heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        with self._lock:
            self._check_open()
            topic = self.topics.catalog.get(beat.topic)
            if not topic.readable:
                raise ConfigError(
                    f"topic {topic.name!r} may not be read (permission {topic.perm}); change it "
                    f"with: rocketray topics alter {topic.name} --perm 6"
                )
            # What changed before this call, as by members that expired, is written with it; but its
            # answer depends on its own changes only.
            earlier = self._taken() if self._groups_file.must_take(self.registry) else 0
            reply = self.registry.heartbeat(
                beat, topic.queues, self._session_ms(), self._clock_ms()
            )
            number = self._decided(beat.group)
        if number < earlier:
            self._write_earlier(earlier)
        self._write(number)
        return replace(reply, moves=topic.moves)

    def leave(self, beat: Heartbeat) -> None:
        with self._lock:
            self._check_open()
            self.registry.leave(beat)
            number = self._taken(beat.group)
        self._write(number)

    @contextmanager
    def _looking(self) -> Iterator[int]:
        """Guard a request that changes nothing; yield the time."""
        with self._lock:
            self._check_open()
            yield self._session_ms()

    @contextmanager
    def _changing(self) -> Iterator[int]:
        """Guard a request, and save what it changed unless it raises; yield the time."""
        with self._looking() as now_ms:
            yield now_ms
            number = self._decided()
        self._write(number)

    # Periodic tasks of the owner

    def expiry_orders(self) -> list[ExpiryOrder]:
        """Return what each shard is to remove (store/retention.py); [] while groups are closed."""
        with self._lock:
            if self._closed is not None:
                return []
            orders = []
            for topic in self.topics.catalog.topics.values():
                for queue in () if topic.retention.keeps_all else range(topic.queues):
                    needed_from = self.registry.needed_from(topic.name, queue)
                    rest = retry_orders(topic.name, topic.retention, needed_from)
                    orders.append(ExpiryOrder(topic, queue, *rest))
            return orders

    def bitmap_orders(self) -> list[BitmapOrder]:
        """Return the orders for shards about filter bitmaps (bitmap_orders.py)."""
        with self._lock:
            if self._closed is not None:
                return []
            living = self.registry.live_subscriptions(self._session_ms())
            return self._bitmaps.orders(
                self.topics.catalog.topics, living, self.registry.memberships.counters
            )

    def take_bitmaps(self, order: BitmapOrder, answers: Sequence[Answer] | None) -> None:
        """Take the answers of a topic's shards, None if one is missing; raises as :meth:`save`."""
        with self._lock:
            self._bitmaps.take_answers(order, answers)
            self._settle_filters()

    def save(self) -> None:
        """Save changed offsets, and remove unused filters.

        Raises OSError or :class:`RegisterUnavailableError` if it cannot; the next call tries again.
        """
        with self._lock:
            number = self._taken()
        self._write(number)
        with self._lock:
            self._settle_filters()

    def stop(self) -> None:
        """Save all state and the time of the stop: members silent since then count as gone."""
        with self._lock:
            number = self._taken(stopped_ms=self._steady_ms())
        self._write(number)
        with self._lock:
            self._settle_filters()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise StoreError(self._closed)

    def _decided(self, group: str = "") -> int:
        """Return the number of the snapshot that a call of *group* has to be in before its answer.

        Commits alone wait for the next save.
        """
        if self._groups_file.must_take(self.registry):
            return self._taken(group)
        self._save_journals()
        return max(self._unwritten.get(group, 0), self._unwritten.get("", 0))

    def _taken(self, group: str | None = None, stopped_ms: int | None = None) -> int:
        """Return the number of a snapshot of the groups as they are; *group* waits for it."""
        self._save_journals()
        if self._closed is not None:
            return 0
        self._has_new_filters |= self.registry.subscriptions.changed
        first = self._groups_file.names_stop  # no call is answered before that is overwritten
        number = self._groups_file.take(self.registry, stopped_ms=stopped_ms)
        if first or group is not None:
            self._unwritten["" if first or group is None else group] = number
        return number

    def _write_earlier(self, number: int) -> None:
        """Write what changed between calls, by expired members; a failure is no error of a call."""
        with suppress(OSError, RegisterUnavailableError):
            self._write(number)

    def _write(self, number: int) -> None:
        """Return when the snapshot of that number is durable; the caller has no lock."""
        if self._groups_file.is_written(number):
            return
        with self._writing:
            if self._groups_file.is_written(number):
                return  # along with that of another call
            begun_ms = self._steady_ms()
            try:
                self._groups_file.write()
            # Members whose heartbeats wait here send no others meanwhile: that is no silence.
            finally:
                with self._lock:
                    now_ms = self._steady_ms()
                    self.registry.memberships.excuse(now_ms - begun_ms, now_ms)
        with self._lock:
            rest = self._unwritten.items()
            self._unwritten = {
                group: last for group, last in rest if not self._groups_file.is_written(last)
            }
            if self._has_new_filters:
                self._has_new_filters = False
                self._settle_filters()

    def _save_journals(self) -> None:
        """Save the journals before the groups and the answers, by which events take effect."""
        if self._journals.changed:
            self._journal_files.save(self._journals)

    def _settle_filters(self) -> None:
        if self._closed is not None:
            return
        living = self.registry.live_subscriptions(self._session_ms())
        self._sql_filters.register_living(*self._bitmaps.known(living))

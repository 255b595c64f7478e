"""What a coordinator knows and decides: topics, groups, offsets and subscriptions, kept on disk.

State on disk, in DATA/config, as JSON: topics before a change takes effect, subscriptions and the
SQL92 filters among them when they change, who owns which queue before the owner hears of it, offsets
when :meth:`ClusterState.save` is called, a member leaves, or a queue gets or loses its owner. Plain
Python: the coordinator's actor gives it threads and an address, the testing kit a clock. Safe to use
from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketray.errors import ConfigError
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

from .bitmap_orders import Answer, BitmapBoard, BitmapOrder
from .catalog import TopicCatalog, TopicConfig
from .files import as_written, read_json, remove_half_written, write_json
from .filter_rules import FilterRules
from .group_administration import GroupAdministration, GroupQuestion
from .group_views import GroupDescription
from .groups import GroupRegistry
from .heartbeat import Heartbeat, HeartbeatReply
from .layout import config_directory, filters_file
from .sql_filters import SqlFilters
from .system_retention import retry_orders

__all__ = ["ClusterState", "ExpiryOrder"]

_OWNERS_FILE = "consumerOwners.json"


@dataclass(frozen=True, slots=True)
class ExpiryOrder:
    """What one shard is to remove: what its topic gives up and no group needs any more."""

    topic: TopicConfig
    queue_id: int
    policy: RetentionPolicy
    needed_from: int | None


class ClusterState:
    """The one place where a cluster's state changes."""

    def __init__(
        self,
        data: Path,
        rules: FilterRules,
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int] | None = None,
    ) -> None:
        """Read what an earlier one wrote.

        *clock_ms* is what people read; *steady_ms*, the same by default, never jumps, and silent
        members are forgotten by it.

        Raises:
            StoreError: a file of the state cannot be read. ConfigError: it is not what we wrote.
        """
        self._data = data
        self._rules = rules
        self._clock_ms = clock_ms
        self._steady_ms = steady_ms or clock_ms
        self._lock = threading.RLock()
        config = config_directory(data)
        remove_half_written(config)
        self._catalog = TopicCatalog.load(data)
        self.registry = GroupRegistry()
        self._administration = GroupAdministration(self.registry, rules.check)
        self._loaded_ms = self._steady_ms()
        names = ("subscriptionGroup.json", "consumerOffset.json", _OWNERS_FILE)
        with as_written(config, *names):
            groups, offsets = (read_json(config / name) for name in names[:2])
            self.registry.load(groups, offsets, *self._load_owners())
        self.registry.keep_topics(self._catalog.topics)  # who deleted one may have died over it
        self._sql_filters = SqlFilters(filters_file(data), clock_ms)
        self._bitmaps = BitmapBoard(self._catalog.topics.values())

    def begin_to_listen(self) -> None:
        """From now on members can be heard; until now their silence was not theirs."""
        with self._lock:
            self.registry.excuse(self._steady_ms() - self._loaded_ms)

    # Topics

    def topics(self) -> dict[str, TopicConfig]:
        """All topics."""
        return dict(self._catalog.topics)

    def topic(self, name: str) -> TopicConfig:
        """One topic; raises :class:`TopicNotFoundError`."""
        return self._catalog.get(name)

    def shard_of_host(self, host: tuple[str, int]) -> tuple[str, int] | None:
        """See :meth:`TopicCatalog.shard_of_host`."""
        return self._catalog.shard_of_host(host)

    def create_topic(
        self,
        name: str,
        queues: int,
        retention: RetentionPolicy = KEEP_ALL,
        *,
        hosted: bool = False,
    ) -> TopicConfig:
        """Note the topic, or that an existing one gets more queues; its shards are yet to start."""
        with self._lock:
            existing = self._catalog.topics.get(name)
            if existing is None or existing.queues != queues:
                self._change(self._catalog.with_topic(name, queues, retention, hosted=hosted))
            return self._catalog.get(name)

    def set_permission(self, name: str, perm: int) -> TopicConfig:
        """Allow writing (2), reading (4) or both (6)."""
        with self._lock:
            self._change(self._catalog.with_permission(name, perm))
            return self._catalog.get(name)

    def set_retention(self, name: str, retention: RetentionPolicy) -> TopicConfig:
        """Keep a topic's messages for another time, or another number of bytes."""
        with self._lock:
            self._change(self._catalog.with_retention(name, retention))
            return self._catalog.get(name)

    def set_bitmaps(self, name: str, mode: str) -> TopicConfig:
        """Keep filter bitmaps always (on), never (off), or where they pay (auto)."""
        with self._lock:
            self._change(self._catalog.with_bitmaps(name, mode))
            return self._catalog.get(name)

    def delete_topic(self, name: str) -> TopicConfig:
        """Forget the topic and what groups did with it; answers what it was."""
        with self._lock:
            topic = self._catalog.get(name)
            self._change(self._catalog.without_topic(name))
            self.registry.keep_topics(self._catalog.topics)
            self._save_groups()
            return topic

    # Groups

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """See :meth:`GroupRegistry.heartbeat`."""
        self._rules.check(beat.group, beat.topic, beat.subscription)
        with self._lock:
            topic = self._catalog.get(beat.topic)
            if not topic.readable:
                raise ConfigError(
                    f"topic {topic.name!r} may not be read (permission {topic.perm}); change it "
                    f"with: rocketray topics alter {topic.name} --perm 6"
                )
            reply = self.registry.heartbeat(beat, topic.queues, self._steady_ms(), self._clock_ms())
            self._save_groups()
            if self.registry.moves.changed:
                self._save_owners()  # first: else a report that comes again undoes a move
                self._save_offsets()  # before anybody reads behind it
            elif self.registry.owners_changed:
                self._save_offsets()  # who gave a queue up does not say again how far it came
                self._save_owners()
            return reply

    def leave(self, beat: Heartbeat) -> None:
        """See :meth:`GroupRegistry.leave`."""
        with self._lock:
            self.registry.leave(beat)
            if self.registry.moves.changed:  # as above
                self._save_owners()
            self._save_offsets()
            self._save_owners()

    def groups(self) -> list[GroupDescription]:
        """All groups, one entry a topic."""
        with self._lock:
            return self.registry.describe(self._catalog.queues(), self._steady_ms())

    def delete_group(self, group: str) -> None:
        """Forget a group and its offsets; it must have no members."""
        with self._lock:
            self.registry.delete(group, self._steady_ms())
            self._save_groups()
            self._save_offsets()

    def ask_groups(self, question: GroupQuestion, *arguments: Any) -> Any:
        """What the method of :class:`GroupAdministration` of that name says; saved when it answers."""
        with self._lock:
            answer = self._administration.answer(question, self._steady_ms(), *arguments)
            self._save_groups()
            self._save_offsets()
            self._save_owners()
            return answer

    # What the owner does from time to time

    def expiry_orders(self) -> list[ExpiryOrder]:
        """What each shard is to remove (store/retention.py)."""
        with self._lock:
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
        """What shards are to be told of filter bitmaps (bitmap_orders.py)."""
        with self._lock:
            living = self.registry.live_subscriptions(self._steady_ms())
            return self._bitmaps.orders(self._catalog.topics, living, self.registry.counters)

    def take_bitmaps(self, order: BitmapOrder, answers: Sequence[Answer] | None) -> None:
        """Note what the topic's shards answered, None where one did not; raises as :meth:`save`."""
        with self._lock:
            self._bitmaps.take(order, answers)
            self._settle_filters()

    def save(self) -> None:
        """Write the offsets if they moved, and forget the filters that nobody uses any more.

        Raises OSError when a file cannot be written; the next call tries again.
        """
        with self._lock:
            self._save_offsets()
            self._settle_filters()

    def stop(self) -> None:
        """Write everything, and when it was: members that were silent since then are gone."""
        with self._lock:
            self.save()
            self._write_owners(self._clock_ms())

    def _load_owners(self) -> tuple[dict[str, Any], int]:
        """Who owned what, and when its members were last heard of, by the steady clock."""
        path = config_directory(self._data) / _OWNERS_FILE
        value = read_json(path) or {}
        now_ms, stopped_ms = self._clock_ms(), value.get("stoppedMs")
        silent_ms = 0 if stopped_ms is None else min(max(0, now_ms - int(stopped_ms)), 2**40)
        return value.get("memberships", {}), self._steady_ms() - silent_ms

    def _save_owners(self) -> None:
        if self.registry.owners_changed:
            self._write_owners(None)

    def _write_owners(self, stopped_ms: int | None) -> None:
        value = {"stoppedMs": stopped_ms, "memberships": self.registry.owners_to_json()}
        write_json(config_directory(self._data) / _OWNERS_FILE, value)
        self.registry.owners_saved()

    def _change(self, catalog: TopicCatalog) -> None:
        catalog.save(self._data)
        self._catalog = catalog

    def _save_groups(self) -> None:
        if self.registry.subscriptions.changed:
            path = config_directory(self._data) / "subscriptionGroup.json"
            write_json(path, self.registry.subscriptions.to_json())
            self.registry.subscriptions.saved()
            self._settle_filters()

    def _settle_filters(self) -> None:
        living = self.registry.live_subscriptions(self._steady_ms())
        self._sql_filters.settle(*self._bitmaps.known(living))

    def _save_offsets(self) -> None:
        if self.registry.offsets_changed:
            path = config_directory(self._data) / "consumerOffset.json"
            write_json(path, self.registry.offsets_to_json())
            self.registry.offsets_saved()

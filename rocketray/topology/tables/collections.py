"""The four kinds of tables: Faust's, whose changes go through a buffer to a changelog of ours.

- A change is encoded when it is made, so a value that cannot be encoded raises at the assignment.
- A change belongs to the queue whose message the handler processes; outside of a stream a table
  cannot be changed.
- The owner of a queue closes its expired windows and records that in the changelog, so that no
  other instance reopens them. Faust only forgets them in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from heapq import heappop, heappush
from inspect import signature
from typing import Any, NoReturn

import faust
from faust.streams import _current_event, current_event
from faust.tables.base import Collection
from faust.tables.globaltable import GlobalTable as FaustGlobalTable
from faust.tables.sets import (
    OPERATION_ADD,
    OPERATION_DISCARD,
    ChangeloggedSetManager,
    SetTableManager,
)
from faust.tables.sets import SetGlobalTable as FaustSetGlobalTable
from faust.tables.sets import SetTable as FaustSetTable
from faust.tables.table import Table as FaustTable
from faust.types.tuples import Message as FaustMessage

from rocketray.base.meant import refuse_unknown
from rocketray.errors import ConfigError
from rocketray.message import StoredMessage
from rocketray.store.retention import KEEP_ALL
from rocketray.topology.values.wire import key_hash

from .changelog import changelog_event
from .disk import QueueMemory, check_store, drop_database
from .windows import WindowedTable, WindowedTableOfSets

logger = logging.getLogger(__name__)


class _SetStore(ChangeloggedSetManager):  # type: ignore[misc]  # Faust's types are not followed
    """The sets of one table, each of which records its queue.

    Faust writes to a changelog which members were added to or removed from a set. Such a changelog
    cannot be compacted by key, and grows for ever; ours has an entry for every member, and records
    whether it is present.
    """

    def __init__(self, table: Any, **options: Any) -> None:
        super().__init__(table, **options)
        self.queue_of: dict[Any, int] = {}

    def send_changelog_event(self, key: Any, operation: int, value: Any) -> None:
        added: Iterable[Any] = ()
        removed: Iterable[Any] = ()
        if operation == OPERATION_ADD:
            added = [value]
        elif operation == OPERATION_DISCARD:
            removed = [value]
        else:
            added, removed = value
        queue_id = self.table.partition_for_key(key)
        for member in added:
            self.table.note_change(queue_id, (key, member), member)
        for member in removed:
            self.table.note_change(queue_id, (key, member), None)
        self.queue_of[key] = queue_id
        self.table._maybe_set_key_ttl(key, queue_id)  # noqa: SLF001  # of the same package

    def apply_changelog_batch(
        self,
        batch: Iterable[Any],
        to_key: Callable[[Any], Any],  # noqa: ARG002  # the table's keys are pairs
        to_value: Callable[[Any], Any],  # noqa: ARG002  # the same
    ) -> None:
        for event in batch:
            key, member = event.key
            if event.message.value is not None:
                self[key].data.add(member)
                self.queue_of[key] = event.message.partition
            elif key in self.data:
                self.data[key].data.discard(member)

    def forget_queue(self, queue_id: int) -> None:
        for key in [key for key, queue in self.queue_of.items() if queue == queue_id]:
            self.pop_set(key)

    def pop_set(self, key: Any) -> None:
        self.data.pop(key, None)
        self.queue_of.pop(key, None)

    async def on_start(self) -> None:
        """Do nothing: there is no storage behind the sets."""

    async def on_rebalance(self, *_arguments: Any) -> None:
        """Do nothing, as in :meth:`on_start`."""

    async def on_recovery_completed(self, active_tps: Any, standby_tps: Any) -> None:
        """Do nothing, as in :meth:`on_start`."""

    def persisted_offset(self, tp: Any) -> None:  # of Faust's interface
        """Return None: the store does not outlive the process."""

    def set_persisted_offset(self, tp: Any, offset: int) -> None:
        """Do nothing: the store does not outlive the process."""


class Changelogged(Collection):  # type: ignore[misc]  # Faust's types are not followed
    """The shared part of our tables; mixed in before a class of Faust's."""

    WindowWrapper = WindowedTable

    changelog_queues: int | None = None
    """How many queues the changelog has; None until it exists or a first change decides."""

    def __init__(self, app: Any, **options: Any) -> None:
        what = f"table {options.get('name')!r}"
        # Faust passes options up by name, so each of its classes adds its own.
        known = {name for cls in type(self).__mro__ for name in signature(cls).parameters}
        refuse_unknown(f"{what} has no option", options, known, "see docs/reference/faust.md")
        default = options.get("default")
        if default is not None and not callable(default):
            raise ConfigError(
                f"{what}: default={default!r:.80}; give a type or a function that makes the value "
                "of a new key: default=int"
            )
        check_store(what, options.get("store"))
        if default in (set, frozenset, tuple):  # JSON has arrays: they would come back as lists
            options = {"value_type": default, **options}
        super().__init__(app, **options)

    # Faust's windows, whose type here is ours: its method relative_to_field can be typed

    def tumbling(
        self,
        size: float | timedelta,
        expires: float | timedelta | None = None,
        key_index: bool = False,  # noqa: FBT001, FBT002  # Faust's interface
    ) -> WindowedTable:
        """Return the table with a value for each key and window of *size*, in seconds."""
        windowed: WindowedTable = super().tumbling(size, expires, key_index)
        return windowed

    def hopping(
        self,
        size: float | timedelta,
        step: float | timedelta,
        expires: float | timedelta | None = None,
        key_index: bool = False,  # noqa: FBT001, FBT002  # Faust's interface
    ) -> WindowedTable:
        """Return the table with windows of *size* that begin every *step*, in seconds."""
        windowed: WindowedTable = super().hopping(size, step, expires, key_index)
        return windowed

    def note_change(self, queue_id: int, key: Any, value: Any) -> None:
        """Write to the changelog that *key* is *value*; None deletes it."""
        encoded = None if value is None else self.encode_value(value)
        self.app.tables.note_change(self, queue_id, self.encode_key(key), encoded)

    def encode_key(self, key: Any) -> bytes:
        """Return the bytes of *key*; windows, which are pairs, as JSON."""
        serializer = "json" if self.window is not None else self.key_serializer
        encoded: bytes | None = self.app.serializers.dumps_key(
            self.key_type, key, serializer=serializer, skip=(bytes,)
        )
        if encoded is None:
            raise TypeError(f"table {self.name}: a key cannot be None")
        return encoded

    def encode_value(self, value: Any) -> bytes:
        """Return the body of a change to *value*, by the table's value type and serializer."""
        encoded: bytes = self.app.serializers.dumps_value(
            self.value_type, value, serializer=self.value_serializer
        )
        return encoded

    def decode(self, message: FaustMessage) -> tuple[Any, Any]:
        """Return key and value of a change."""
        loads = self.app.serializers
        if self.window is None:
            key = loads.loads_key(self.key_type, message.key, serializer=self.key_serializer)
        else:
            key = self._windowed_key(loads.loads_key(None, message.key, serializer="json"))
        if message.value is None:
            return key, None
        value = loads.loads_value(self.value_type, message.value, serializer=self.value_serializer)
        return key, value

    def _typed(self, kind: Any, data: Any) -> Any:
        """Return *data* from JSON as a value of type *kind*."""
        return self._to_key(self.app.serializers._prepare_payload(kind, data))  # noqa: SLF001  # contract-tested

    def _windowed_key(self, pair: list[Any]) -> tuple[Any, Any]:
        bare, window_range = pair
        return self._typed(self.key_type, bare), tuple(window_range)

    def partition_for_key(self, key: Any) -> int:
        """Return the queue of the changelog that a change of *key* goes to.

        Raises:
            TypeError: no handler is processing a message.
        """
        topic, queue_id = self._source()
        self.app.tables.settle_queues(self, topic)
        # Not the message's queue, but the one that all instances choose for the key.
        if self.use_partitioner and self.changelog_queues:
            return key_hash(self.encode_key(key)) % self.changelog_queues
        return queue_id

    def on_key_set(self, key: Any, value: Any) -> None:
        """Record the change before the store has it."""
        queue_id = self.partition_for_key(key)
        self.note_change(queue_id, key, value)
        if isinstance(self.data, QueueMemory):
            self.data.queue_of[key] = queue_id
        self._maybe_set_key_ttl(key, queue_id)
        self._sensor_on_set(self, key, value)

    def on_key_del(self, key: Any) -> None:
        """Record the deletion before the store has it."""
        queue_id = self.partition_for_key(key)
        self.note_change(queue_id, key, None)
        if isinstance(self.data, QueueMemory):
            self.data.queue_of.pop(key, None)
        self._maybe_del_key_ttl(key, queue_id)
        self._sensor_on_del(self, key)

    def on_clear(self) -> None:
        """Record that every key is deleted."""
        for key in list(self):
            self.on_key_del(key)

    async def apply(self, changes: list[StoredMessage]) -> None:
        """Apply changes from the changelog, in order."""
        events = [changelog_event(self.app, stored, self.decode) for stored in changes]
        self.apply_changelog_batch(events)
        for event in events:
            self.note_window(event)
            await self.on_changelog_event(event)

    def note_window(self, event: Any) -> None:
        """Schedule the closing of the window that a change from the changelog belongs to."""
        note = self._maybe_del_key_ttl if event.message.value is None else self._maybe_set_key_ttl
        note(self._to_key(event.key), event.message.partition)

    def drop_part(self, queue_id: int) -> None:
        """Empty the part of a queue, because it differs from its changelog."""
        self.forget_queue(queue_id)
        if self.keeps_offsets:
            drop_database(self.data, queue_id)

    def forget_queue(self, queue_id: int) -> None:
        """Drop the part of a queue that another instance owns now."""
        if hasattr(self.data, "forget_queue"):
            self.data.forget_queue(queue_id)
        for end in self._partition_timestamps.pop(queue_id, ()):
            self._partition_timestamp_keys.pop((queue_id, end), None)
        self._partition_latest_timestamp.pop(queue_id, None)

    @property
    def keeps_offsets(self) -> bool:
        """Whether the store outlives the process, and so keeps its position in the changelog."""
        return not isinstance(self.data, QueueMemory | _SetStore)

    def note_stored(self, future: Any) -> None:
        """Record that a change and all before it are stored in the changelog."""
        if not future.cancelled() and future.exception() is None:
            stored = future.result()
            self.data.set_persisted_offset(stored.topic_partition, stored.offset)

    def _join(self, join_strategy: Any) -> NoReturn:  # noqa: ARG002  # of Faust's interface
        raise ConfigError(
            f"table {self.name}: Faust declares joins, but does not implement them; look the other "
            "side up in the handler, or join on Spark with @app.sink"
        )

    async def on_start(self) -> None:
        """Start the store; the changelog is created at the first change."""
        await self.add_runtime_dependency(self.data)

    def _source(self) -> tuple[str, int]:
        """Return topic and queue of the message being processed."""
        # A stream over a topic puts its bound method ``_event_now`` there. The stream is asked
        # instead of calling that, which would build an event for each message.
        holder = getattr(_current_event.get(None), "__self__", None)
        place = getattr(holder, "place_in_hand", None)
        if place is not None:
            return place  # type: ignore[no-any-return]
        event = current_event()
        if event is None:
            raise TypeError(
                f"table {self.name} can be changed only by a handler that is processing a message: "
                "the change belongs to the message's queue"
            )
        return event.message.topic, event.message.partition

    def _new_store_by_url(self, url: Any) -> Any:
        # Faust's own memory store cannot drop the keys of one queue (see disk.py).
        if str(url).startswith("memory:"):
            return QueueMemory(url, self.app, self, table_name=self.name)
        return super()._new_store_by_url(url)

    def _new_changelog_topic(self, **options: Any) -> Any:
        """Return the changelog, which keeps the last change of each key (see the table manager).

        Faust gives it the ``expires`` of the window, which is 0 for a window without one.
        """
        return super()._new_changelog_topic(**{"retention": KEEP_ALL, **options})

    def _should_expire_keys(self) -> bool:
        """Return whether windows end; Faust's compiled windows have 0 for no ``expires``."""
        return self.window is not None and bool(self.window.expires)

    def _maybe_set_key_ttl(self, key: Any, partition: int) -> None:
        """Record when the window of *key* ends; once for each end, where Faust's list grows."""
        if self.window is None:
            return
        end = key[1][1]
        latest = self._partition_latest_timestamp
        latest[partition] = max(latest[partition], end)
        if self._should_expire_keys():
            if (partition, end) not in self._partition_timestamp_keys:
                heappush(self._partition_timestamps[partition], end)
            self._partition_timestamp_keys[partition, end].add(key)

    async def _del_old_keys(self) -> None:
        """Close the expired windows of owned queues; one whose callback raises stays."""
        for queue_id in self.app.tables.owned_queues():
            try:
                while await self._close_oldest(queue_id):
                    pass
            except Exception:
                logger.exception("table %s: on_window_close failed, retried later", self.name)

    async def _close_oldest(self, queue_id: int) -> bool:
        """Close the windows of the oldest end in *queue_id*; False when none has expired."""
        ends, keys = self._partition_timestamps[queue_id], self._partition_timestamp_keys
        if not ends or not self.window.stale(ends[0], self.app.tables.now_s()):
            return False
        end = ends[0]
        for key in list(keys[queue_id, end]):
            if key in self.data:
                await self.on_window_close(key, self.data[key])
                # The callback may have waited, and the queue may have another owner by now, which
                # closes it.
                if queue_id not in self.app.tables.owned_queues():
                    return False
                self._retire(queue_id, key)
            keys[queue_id, end].discard(key)
        del keys[queue_id, end]
        # Last, so that an end whose callback raised is tried again.
        heappop(ends)
        return True

    def _retire(self, queue_id: int, key: Any) -> None:
        self.note_change(queue_id, key, None)
        del self.data[key]
        if isinstance(self.data, QueueMemory):
            self.data.queue_of.pop(key, None)


class Table(Changelogged, FaustTable):  # type: ignore[misc]  # Faust's types are not followed
    """A dictionary with a changelog."""


class GlobalTable(Changelogged, FaustGlobalTable):  # type: ignore[misc]  # the same
    """A table of which every instance has a full copy."""


class NamedSetTableManager(SetTableManager):  # type: ignore[misc]  # the same
    """Faust's manager, whose agent is named after its table: a group of its own, without dots."""

    def _enable(self) -> None:
        declare = self.app.agent(self.topic, name=self.set_table.manager_topic_name)
        self.agent = declare(self._modify_set)


class SetOfMembers(Changelogged):
    """The shared part of tables of sets: every member is a key of the changelog."""

    WindowWrapper = WindowedTableOfSets

    def encode_key(self, key: Any) -> bytes:
        """Return a key and a member of its set, as JSON."""
        return bytes(faust.serializers.codecs.dumps("json", key))

    def encode_value(self, value: Any) -> bytes:  # noqa: ARG002  # members have no value
        """Return the value that marks a member as present."""
        # Not empty: an empty body deletes its key.
        return b"1"

    def decode(self, message: FaustMessage) -> tuple[Any, Any]:
        """Return the key and the member, and whether it is present."""
        data, member = self.app.serializers.loads_key(None, message.key, serializer="json")
        is_windowed = self.window is not None
        key = self._windowed_key(data) if is_windowed else self._typed(self.key_type, data)
        return (key, self._typed(self.value_type, member)), message.value is not None

    def note_window(self, event: Any) -> None:
        """Schedule the closing of the window of a set."""
        if event.message.value is not None:
            self._maybe_set_key_ttl(event.key[0], event.message.partition)

    def _new_store(self) -> _SetStore:
        return _SetStore(self)

    def _retire(self, queue_id: int, key: Any) -> None:
        for member in self.data[key]:
            self.note_change(queue_id, (key, member), None)
        self.data.pop_set(key)


class SetTable(SetOfMembers, FaustSetTable):  # type: ignore[misc]  # the same
    """A dictionary of sets with a changelog."""

    Manager = NamedSetTableManager


class SetGlobalTable(SetOfMembers, FaustSetGlobalTable):  # type: ignore[misc]  # the same
    """A table of sets with a full copy in every instance; Faust omits to mark its own global."""

    Manager = NamedSetTableManager

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **{"is_global": True, **options})

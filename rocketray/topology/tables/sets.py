"""Sets in tables: in memory, rebuilt from a changelog that has an entry for every member.

Faust writes which members were added to or removed from a set. Such a changelog cannot be compacted
by key, and grows for ever; ours records of each member whether it is present.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from faust.tables.sets import (
    OPERATION_ADD,
    OPERATION_DISCARD,
    ChangeloggedSetManager,
)

__all__ = ["SetStore"]


class SetStore(ChangeloggedSetManager):  # type: ignore[misc]  # Faust's types are not followed
    """The sets of one table, each of which records its queue."""

    def __init__(self, table: Any, **options: Any) -> None:
        super().__init__(table, **options)
        self.queue_of: dict[Any, int] = {}

    def send_changelog_event(self, key: Any, operation: int, value: Any) -> None:
        """Record which members a set gains and loses."""
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
        """Apply changes, in order."""
        for event in batch:
            key, member = event.key
            if event.message.value is not None:
                self[key].data.add(member)
                self.queue_of[key] = event.message.partition
            elif key in self.data:
                self.data[key].data.discard(member)

    def forget(self, queue_id: int) -> None:
        """Drop every set of that queue."""
        for key in [key for key, queue in self.queue_of.items() if queue == queue_id]:
            self.pop_set(key)

    def pop_set(self, key: Any) -> None:
        """Drop one set."""
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

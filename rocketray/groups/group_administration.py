"""The operator's requests about groups, served by the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from rocketray.errors import StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.journal.group_journal import JournalEntry

from .filter_plan import FilterPlan
from .filter_plans import PlanProgress
from .group_descriptions import GroupDescription
from .group_offsets import LONG_MAX, check_next_offset
from .group_registry import GroupRegistry
from .member_options import check_filter_of

Request = Callable[[], AbstractContextManager[int]]


@dataclass(frozen=True, slots=True)
class GroupAdministration:
    """Descriptions of groups, and changes to them: the object behind ``GroupsApi``.

    ``looking`` and ``changing`` guard each request, and yield the time, as in
    :class:`GroupRegistry`; ``changing`` saves what the request changed. ``queues`` returns the
    number of queues by topic. ``check`` raises if the node refuses to filter by a subscription for
    a group. ``end_of`` returns the end of a queue, and raises if the topic has no such queue.
    ``wall_ms`` is the wall clock.
    """

    registry: GroupRegistry
    looking: Request
    changing: Request
    queues: Callable[[], Mapping[str, int]] = dict
    check: Callable[[str, str, Subscription], None] = lambda *_: None
    end_of: Callable[[str, int], int] = lambda *_: LONG_MAX
    wall_ms: Callable[[], int] = lambda: 0

    def all(self) -> list[GroupDescription]:
        with self.looking() as now_ms:
            return self.registry.describe(self.queues(), now_ms)

    def journal(self, group: str) -> tuple[JournalEntry, ...]:
        with self.looking():
            return self.registry.journals.entries(group)

    def delete(self, group: str) -> None:
        with self.changing() as now_ms:
            self.registry.delete(group, now_ms)

    def prepare_change(self, group: str, topic: str, subscription: Subscription) -> FilterPlan:
        """Let the group hold another subscription beside its own; see filter_plan.py.

        The subscription that a change came from may be asked for as soon as every queue has
        switched. That ends the change, though members still ask for the old one, and begins one
        that leads back.

        Raises:
            ConfigError: *topic* is the group's retry topic, which is read without a filter.
            StreamError: the group is unknown, subscribes so already, or is changing to another.
            SubscriptionRefusedError: the node does not filter by it.
        """
        with self.changing() as now_ms:
            self._shared(group, topic)
            check_filter_of(group, topic, subscription)
            self.check(group, topic, subscription)
            # A version is only to be another one than before, and not 0, which stands for no plan.
            under_way, version = self.registry.changes.get(group, topic), max(now_ms, 1)
            if under_way is not None and subscription == under_way.old:
                # In the same millisecond, members would take it for the plan that they know.
                version = max(version, under_way.version + 1)
                self.registry.settle_change(group, topic, self.wall_ms(), goes_back=True)
            existing = self.registry.subscriptions.get(group, topic)
            plan = FilterPlan(version, existing, subscription)
            return self.registry.changes.begin(group, topic, plan)

    def change_progress(self, group: str, topic: str) -> PlanProgress | None:
        with self.changing() as now_ms:
            return self.registry.progress(group, topic, now_ms)

    def switch_change(self, group: str, topic: str) -> FilterPlan:
        """Let each queue switch, once all members know the plan.

        Raises:
            StreamError: no change is prepared, or a member does not know the plan.
        """
        with self.changing() as now_ms:
            found = self.registry.progress(group, topic, now_ms)
            return self.registry.changes.switch(group, topic, found)

    def abort_change(self, group: str, topic: str) -> None:
        """Drop a prepared change.

        Raises:
            StreamError: queues may have switched, or members ask for the new subscription.
        """
        with self.changing() as now_ms:
            found = self.registry.progress(group, topic, now_ms)
            self.registry.changes.abort(group, topic, found)

    def move_offsets(
        self, group: str, topic: str, targets: Mapping[int, int], who: str = "", like: str = ""
    ) -> str:
        """Order the group to resume at other offsets; return the name of the order.

        See offset_moves.py. *who* is for the journal. If one of the moves is invalid, nothing
        moves. A group that does not read the topic yet subscribes to it as group *like*, so that
        its first member, whose own subscription counts, begins at these offsets.

        Raises:
            InvalidNameError: *like* is given, and the name of the group is not valid.
            StreamError: the group is unknown, or does not read the topic; nor does *like*.
            ConfigError: the topic has no such queue.
            OffsetOutOfRangeError: the offset is negative, or behind the end of the queue.
        """
        with self.changing() as now_ms:
            is_new = like and self.registry.subscriptions.find(group, topic) is None
            subscription = self._shared(like if is_new else group, topic)
            for queue, offset in targets.items():
                check_next_offset(topic, queue, offset, self.end_of(topic, queue))
            if is_new:
                self.registry.subscriptions.add(group, topic, subscription, self.wall_ms())
            name = self.registry.moves.order(group, topic, targets, who)
            self.registry.carry_out_moves(group, topic, now_ms)
            return name

    def moves_left(self, group: str, topic: str, name: str) -> set[int]:
        with self.changing() as now_ms:
            self.registry.carry_out_moves(group, topic, now_ms)
            return self.registry.moves.left(name)

    def _shared(self, group: str, topic: str) -> Subscription:
        """Return the subscription of a group whose members share the messages."""
        if (group, topic) in self.registry.subscriptions.broadcasts:
            raise StreamError(
                f"group {group!r} gets topic {topic!r} in broadcast mode: its members keep their "
                "own offsets; stop them, and restart them where they should read"
            )
        return self.registry.subscriptions.get(group, topic)

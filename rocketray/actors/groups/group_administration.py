"""The operator's requests about groups, served by the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from rocketray.errors import StreamError
from rocketray.filters.subscription import Subscription

from .group_offsets import LONG_MAX, check_next_offset
from .group_registry import GroupRegistry
from .subscription_change import FilterPlan
from .subscription_changes import PlanProgress

__all__ = ["GroupAdministration", "GroupQuestion"]

GroupQuestion = Literal[
    "abort_change",
    "change_progress",
    "move_offsets",
    "moves_left",
    "prepare_change",
    "switch_change",
]
_QUESTIONS = frozenset(get_args(GroupQuestion))


class GroupAdministration:
    """Changes to groups; ``now_ms`` is as in :class:`GroupRegistry`."""

    def __init__(
        self,
        registry: GroupRegistry,
        check: Callable[[str, str, Subscription], None] = lambda *_: None,
        end_of: Callable[[str, int], int] = lambda *_: LONG_MAX,
        wall_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """Create it for *registry*.

        *check* raises if the node refuses to filter by a subscription for a group. *end_of* returns
        the end of a queue, and raises if the topic has no such queue. *wall_ms* is the wall clock.
        """
        self._registry = registry
        self._check = check
        self._end_of = end_of
        self._wall_ms = wall_ms

    def answer(self, question: GroupQuestion, now_ms: int, *arguments: Any) -> Any:
        """Call the method named *question* and return its result."""
        assert question in _QUESTIONS
        return getattr(self, question)(now_ms, *arguments)

    def prepare_change(
        self, now_ms: int, group: str, topic: str, subscription: Subscription
    ) -> FilterPlan:
        """Let the group hold another subscription beside its own; see subscription_change.py.

        The subscription that a change came from may be asked for as soon as every queue has
        switched. That ends the change, though members still ask for the old one, and begins one
        that leads back.

        Raises:
            StreamError: the group is unknown, subscribes so already, or is changing to another.
            SubscriptionRefusedError: the node does not filter by it.
        """
        self._shared(group, topic)
        self._check(group, topic, subscription)
        under_way, version = self._registry.changes.get(group, topic), max(now_ms, 1)
        if under_way is not None and subscription == under_way.old:
            version = max(version, under_way.version + 1)
            self._registry.settle_change(group, topic, self._wall_ms(), goes_back=True)
        existing = self._registry.subscriptions.get(group, topic)
        return self._registry.changes.begin(
            group, topic, FilterPlan(version, existing, subscription)
        )

    def change_progress(self, now_ms: int, group: str, topic: str) -> PlanProgress | None:
        """Return the progress of the group's change; None without one."""
        return self._registry.progress(group, topic, now_ms)

    def switch_change(self, now_ms: int, group: str, topic: str) -> FilterPlan:
        """Let each queue switch, once all members know the plan.

        Raises:
            StreamError: no change is prepared, or a member does not know the plan.
        """
        found = self._registry.progress(group, topic, now_ms)
        return self._registry.changes.switch(group, topic, found.unaware if found else [])

    def abort_change(self, now_ms: int, group: str, topic: str) -> None:
        """Drop a prepared change.

        Raises:
            StreamError: queues may have switched, or members ask for the new subscription.
        """
        found = self._registry.progress(group, topic, now_ms)
        updated = found.updated if found else []
        members = len({*updated, *found.outdated}) if found else 0
        self._registry.changes.abort(group, topic, updated, members)

    def move_offsets(
        self, now_ms: int, group: str, topic: str, targets: Mapping[int, int], who: str = ""
    ) -> str:
        """Order the group to resume at other offsets; return the name of the order.

        See offset_moves.py. *who* is for the journal. If one of the moves is invalid, nothing
        moves.

        Raises:
            StreamError: the group is unknown, or does not read the topic.
            ConfigError: the topic has no such queue.
            OffsetOutOfRangeError: the offset is negative, or behind the end of the queue.
        """
        self._shared(group, topic)
        for queue, offset in targets.items():
            check_next_offset(topic, queue, offset, self._end_of(topic, queue))
        name = self._registry.moves.order(group, topic, targets, who)
        self._registry.carry_out_moves(group, topic, now_ms)
        return name

    def moves_left(self, now_ms: int, group: str, topic: str, name: str) -> set[int]:
        """Return the queues of an order that their owners have not released yet."""
        self._registry.carry_out_moves(group, topic, now_ms)
        return self._registry.moves.left(name)

    def _shared(self, group: str, topic: str) -> Subscription:
        """Return the subscription of a group whose members share the messages."""
        if (group, topic) in self._registry.subscriptions.broadcasts:
            raise StreamError(
                f"group {group!r} gets topic {topic!r} in broadcast mode: its members keep their "
                "own offsets; stop them, and restart them where they should read"
            )
        return self._registry.subscriptions.get(group, topic)

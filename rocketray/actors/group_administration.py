"""What is asked of a cluster's groups by hand, through the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from rocketray.errors import StreamError
from rocketray.filters.subscription import Subscription

from .filter_changes import PlanProgress
from .filter_plan import FilterPlan
from .groups import GroupRegistry

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
    ) -> None:
        """*check* raises when the node does not filter for a group by a subscription."""
        self._registry = registry
        self._check = check

    def answer(self, question: GroupQuestion, now_ms: int, *arguments: Any) -> Any:
        """What the method of that name says."""
        assert question in _QUESTIONS
        return getattr(self, question)(now_ms, *arguments)

    def prepare_change(
        self, now_ms: int, group: str, topic: str, subscription: Subscription
    ) -> FilterPlan:
        """Let the group hold another subscription beside its own; see filter_plan.py.

        Raises:
            StreamError: the group is unknown, subscribes so already, or is changing to another.
            SubscriptionRefusedError: the node does not filter by it.
        """
        existing = self._shared(group, topic)
        self._check(group, topic, subscription)
        version = max(now_ms, 1)
        return self._registry.changes.begin(
            group, topic, FilterPlan(version, existing, subscription)
        )

    def change_progress(self, now_ms: int, group: str, topic: str) -> PlanProgress | None:
        """How far the group is; None when no change is under way."""
        return self._registry.progress(group, topic, now_ms)

    def switch_change(self, now_ms: int, group: str, topic: str) -> FilterPlan:
        """Let each queue switch, once all members know of it.

        Raises:
            StreamError: nothing is prepared, or a member does not know of it.
        """
        found = self._registry.progress(group, topic, now_ms)
        return self._registry.changes.switch(group, topic, found.unaware if found else [])

    def abort_change(self, now_ms: int, group: str, topic: str) -> None:
        """Drop what was prepared.

        Raises:
            StreamError: queues may have switched, or members ask for the new subscription.
        """
        found = self._registry.progress(group, topic, now_ms)
        self._registry.changes.abort(group, topic, found.updated if found else [])

    def move_offsets(self, now_ms: int, group: str, topic: str, targets: Mapping[int, int]) -> str:
        """Have the group go on at other offsets; see offset_moves.py.

        Answers the name of the order. Raises :class:`StreamError` for an unknown group, a topic
        that it does not read, or what is no offset.
        """
        self._shared(group, topic)
        if any(queue < 0 or offset < 0 for queue, offset in targets.items()):
            raise StreamError(f"queues and offsets count from 0, so not {dict(targets)}")
        name = self._registry.moves.order(group, topic, targets)
        self._registry.carry_out_moves(group, topic, now_ms)
        return name

    def moves_left(self, now_ms: int, group: str, topic: str, name: str) -> set[int]:
        """The queues of an order that their owners did not give up yet."""
        self._registry.carry_out_moves(group, topic, now_ms)
        return self._registry.moves.left(name)

    def _shared(self, group: str, topic: str) -> Subscription:
        """What a group subscribes to whose members share the messages."""
        if (group, topic) in self._registry.subscriptions.broadcasts:
            raise StreamError(
                f"group {group!r} gets topic {topic!r} in broadcast mode: its members keep their "
                "offsets themselves; stop them, and start them as they should be"
            )
        return self._registry.subscriptions.get(group, topic)

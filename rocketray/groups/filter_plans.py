"""The coordinator's side of changed subscriptions: the plans in progress and their progress."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from rocketray.errors import StreamError
from rocketray.filters.subscription import Subscription

from .filter_plan import FilterPlan
from .heartbeat import Heartbeat
from .membership import Membership

_Key = tuple[str, str]
_PLAN = "filterPlan"


class PlanProgress(NamedTuple):
    """The progress of a plan.

    ``unaware`` members do not know the plan, ``outdated`` ones do not ask for the new filter yet,
    and ``updated`` ones do not ask for the old one any more. ``without_switch`` are the queues
    without a switch offset, ``before_switch`` those in which the group has not reached it.
    """

    plan: FilterPlan
    unaware: list[str]
    outdated: list[str]
    updated: list[str]
    without_switch: list[int]
    before_switch: list[int]


class FilterChanges:
    """The plans by group and topic; ``changed`` means that they have to be saved."""

    def __init__(self) -> None:
        self._plans: dict[_Key, FilterPlan] = {}
        self.changed = False

    def get(self, group: str, topic: str) -> FilterPlan | None:
        return self._plans.get((group, topic))

    def begin(self, group: str, topic: str, plan: FilterPlan) -> FilterPlan:
        """Prepare a change; for the same change again, return the plan in progress.

        Raises:
            StreamError: the group has this subscription already, or another change is in progress.
        """
        existing = self.get(group, topic)
        if existing is not None and existing.new == plan.new:
            return existing
        if existing is not None:
            ways_out = (
                f"replace the members that ask for {existing.old}, or "
                f"{_way_back(group, existing, topic)}"
                if existing.is_switching
                else f"wait until it is complete, or drop it: {_command(group, topic, '--abort')}"
            )
            raise StreamError(
                f"group {group!r} is changing from {existing.old} to {existing.new} on topic "
                f"{topic!r}: {ways_out}"
            )
        if plan.old == plan.new:
            raise StreamError(f"group {group!r} subscribes to topic {topic!r} with {plan.old}")
        return self._set((group, topic), plan)

    def switch(self, group: str, topic: str, progress: PlanProgress | None) -> FilterPlan:
        """Go from preparing to switching; raise if a member does not know the plan yet."""
        found = _started(group, topic, progress)
        if found.unaware:
            names = ", ".join(found.unaware)
            raise StreamError(
                f"members {names} of group {group!r} have not received the change yet"
            )
        return self._set((group, topic), replace(found.plan, is_switching=True))

    def abort(self, group: str, topic: str, progress: PlanProgress | None) -> None:
        """Drop a prepared change, or one that no queue can have switched for lack of members.

        Raises:
            StreamError: there is no plan, queues may have switched already, or members ask for the
                new subscription, which would be refused then.
        """
        started = _started(group, topic, progress)
        plan, updated = started.plan, started.updated
        if updated and not plan.is_switching:
            raise StreamError(
                f"members {', '.join(updated)} of group {group!r} ask for {plan.new}: stop them "
                "first, then abort the change"
            )
        if plan.is_switching and (plan.switches or updated or started.outdated):
            raise StreamError(
                f"group {group!r} has begun to switch to {plan.new} on topic {topic!r}, so the "
                f"change cannot be dropped any more: {_way_back(group, plan, topic)}"
            )
        self.end(group, topic)

    def end(self, group: str, topic: str) -> None:
        """Remove a plan that is completed or dropped; the subscription is the caller's to set."""
        del self._plans[group, topic]
        self.changed = True

    def take_proposals(self, beat: Heartbeat, owned: set[int]) -> None:
        """Keep the first proposal of an owner for each queue."""
        plan = self.get(beat.group, beat.topic)
        # Offsets that were proposed for an earlier change say nothing about this one.
        if plan is not None and beat.plan == plan.version:
            mine = {queue: offset for queue, offset in beat.switches.items() if queue in owned}
            changed = plan.with_switches(mine)
            if changed is not plan:
                self._set((beat.group, beat.topic), changed)

    def progress(
        self, group: str, topic: str, membership: Membership, offsets: Mapping[int, int]
    ) -> PlanProgress | None:
        """Return the progress of the plan, or None; *offsets* are the group's, in every queue."""
        plan = self.get(group, topic)
        if plan is None:
            return None
        members = membership.roster.members
        return PlanProgress(
            plan,
            [name for name, member in members.items() if member.plan != plan.version],
            [name for name, member in members.items() if member.subscription != plan.new],
            [name for name, member in members.items() if member.subscription != plan.old],
            [queue for queue in offsets if queue not in plan.switches],
            [queue for queue, at in offsets.items() if at < plan.switches.get(queue, 0)],
        )

    def to_json(self, group: str, topic: str) -> dict[str, Any]:
        """Return the part that is saved beside the old subscription; empty without a plan."""
        plan = self.get(group, topic)
        return {} if plan is None else {_PLAN: plan.to_json()}

    def load(
        self, group: str, topic: str, value: Mapping[str, Any], subscription: Subscription
    ) -> None:
        """Load the result of :meth:`to_json`."""
        if _PLAN in value:
            self._plans[group, topic] = FilterPlan.from_json(value[_PLAN], subscription)

    def drop(self, doomed: Callable[[_Key], bool]) -> None:
        """Remove the plans of the (group, topic) pairs for which *doomed* is true."""
        for key in [key for key in self._plans if doomed(key)]:
            self.end(*key)

    def _set(self, key: _Key, plan: FilterPlan) -> FilterPlan:
        self._plans[key] = plan
        self.changed = True
        return plan


def _started(group: str, topic: str, progress: PlanProgress | None) -> PlanProgress:
    if progress is None:
        raise StreamError(f"no change of group {group!r} on topic {topic!r} is in progress")
    return progress


def _way_back(group: str, plan: FilterPlan, topic: str) -> str:
    """Return how to go back from a change that is switching; see ``GroupAdministration``."""
    command = _command(group, topic, *plan.old.options())
    return f"when all queues have reached their switch, go back with: {command}"


def _command(*arguments: str) -> str:
    return shlex.join(["rocketray", "groups", "migrate", *arguments])

"""A group's way from one subscription to another while its members live.

    prepare   the group holds the old subscription and the new one. Members may ask for either;
              all get the old one, and say that they know of the plan.
    switch    the owner of each queue proposes an offset that nobody can have read beyond: what is
              visible then. The coordinator keeps the first proposal of an owner. Below that offset
              the old filter holds for good, from it on the new one, whoever reads.

Invariants
  1. An owner reads under the old filter up to its proposal only, from before it proposes, and under
     the new filter only from an offset that the coordinator confirmed, which it saved first.
  2. A proposal is not below anything that was handed out under the old filter, by whomever: earlier
     owners had no more than was visible, and have no lease any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rocketray.filters.subscription import Subscription

__all__ = ["FilterPlan", "Part", "PlanFollower"]


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """One change; ``switches`` says from which offset of a queue on the new filter holds."""

    version: int
    old: Subscription
    new: Subscription
    is_switching: bool = False
    switches: Mapping[int, int] = field(default_factory=dict)

    def with_switches(self, proposals: Mapping[int, int]) -> FilterPlan:
        """The plan with the proposals for queues that had none; itself when there are none."""
        fresh = proposals.keys() - self.switches.keys()
        if not self.is_switching or not fresh:
            return self
        more = {queue: proposals[queue] for queue in fresh}
        return replace(self, switches={**self.switches, **more})

    def is_through(self, offsets: Mapping[int, int]) -> bool:
        """The group has come to the switch in every queue of *offsets*."""
        return self.is_switching and all(
            queue in self.switches and offset >= self.switches[queue]
            for queue, offset in offsets.items()
        )

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON keeps it, beside the old subscription."""
        return {
            "version": self.version,
            "new": self.new.to_json(),
            "switching": self.is_switching,
            "switches": {str(queue): offset for queue, offset in self.switches.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], old: Subscription) -> FilterPlan:
        """What :meth:`to_json` wrote."""
        switches = {int(queue): int(offset) for queue, offset in value["switches"].items()}
        new = Subscription.from_json(value["new"])
        return cls(int(value["version"]), old, new, bool(value["switching"]), switches)


class Part(NamedTuple):
    """What a queue is read with now, and up to which offset; without a limit for None."""

    subscription: Subscription
    stop: int | None


class PlanFollower:
    """A member's side of a plan; ``subscription`` is what it asks for, and gets without a plan."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._proposals: dict[tuple[int, int], int] = {}  # by version and queue
        self.plan: FilterPlan | None = None

    @property
    def version(self) -> int:
        """The plan that the member knows of; 0 for none."""
        return 0 if self.plan is None else self.plan.version

    def proposals(self) -> dict[int, int]:
        """Where queues are to switch, as far as this member reads them and bounded itself."""
        version = self.version
        proposals = self._proposals.copy().items()
        return {queue: offset for (of, queue), offset in proposals if of == version}

    def part(self, queue_id: int, offset: int, visible: Callable[[], int]) -> Part:
        """How to go on with a queue that was read up to *offset*; *visible* is where it ends now.

        The member has to read so from here on, before it reports again.
        """
        plan = self.plan
        if plan is None:
            return Part(self._subscription, None)
        if not plan.is_switching:
            return Part(plan.old, None)
        if queue_id in plan.switches:
            stop = plan.switches[queue_id]
            return Part(plan.new, None) if offset >= stop else Part(plan.old, stop)
        key = plan.version, queue_id
        if key not in self._proposals:
            self._proposals[key] = max(visible(), offset)
        return Part(plan.old, self._proposals[key])

    def forget(self, queue_id: int) -> None:
        """The queue is given up: what was proposed for it, and not confirmed, does not count."""
        for key in [key for key in self._proposals.copy() if key[1] == queue_id]:
            del self._proposals[key]

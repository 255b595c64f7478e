"""The change of a group's subscription to another while it has live members.

    prepare   The group holds the old and the new subscription. A member may ask for either, gets
              the old one, and reports that it knows the plan.
    switch    The owner of each queue proposes a switch offset: the visible end of the queue, which
              no member can have read beyond. The coordinator keeps an owner's first proposal.
              Below that offset every owner reads with the old filter, from it on with the new one.

Invariants
  1. An owner reads with the old filter only up to its proposal, from before it proposes. It reads
     with the new filter only from an offset that the coordinator saved and then confirmed.
  2. A proposal is not below any message delivered under the old filter: earlier owners read no
     further than the visible end, and their leases have expired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rocketray.base.json_fields import Natural, json_fields, read_value
from rocketray.filters.subscription import Subscription


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """One change; ``switches`` maps a queue to the offset from which the new filter applies."""

    version: Natural
    old: Subscription
    new: Subscription
    is_switching: bool = field(default=False, metadata={"json": "switching"})
    switches: Mapping[int, Natural] = field(default_factory=dict)

    def with_switches(self, proposals: Mapping[int, int]) -> FilterPlan:
        """Return the plan with the proposals for queues that had none; itself if there are none."""
        fresh = proposals.keys() - self.switches.keys()
        if not self.is_switching or not fresh:
            return self
        more = {queue: proposals[queue] for queue in fresh}
        return replace(self, switches={**self.switches, **more})

    def is_through(self, offsets: Mapping[int, int]) -> bool:
        """Return whether the group has reached the switch offset in every queue of *offsets*."""
        return self.is_switching and all(
            queue in self.switches and offset >= self.switches[queue]
            for queue, offset in offsets.items()
        )

    def to_json(self) -> dict[str, Any]:
        """Return the plan as it is saved beside the old subscription."""
        content = json_fields(self)
        del content["old"]
        return content

    @classmethod
    def from_json(cls, value: Mapping[str, Any], old: Subscription) -> FilterPlan:
        """Restore a plan from the result of :meth:`to_json`."""
        return read_value(cls, {**value, "old": old.to_json()})


class QueuePart(NamedTuple):
    """The subscription to read a queue with now, and the offset to stop at (None: no limit)."""

    subscription: Subscription
    stop: int | None


class PlanFollower:
    """A member's side of a plan; ``subscription`` is the one it asks for, used without a plan."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._proposals: dict[tuple[int, int], int] = {}  # by version and queue
        self.plan: FilterPlan | None = None

    @property
    def version(self) -> int:
        """The version of the plan that the member knows; 0 for none."""
        return 0 if self.plan is None else self.plan.version

    def proposals(self) -> dict[int, int]:
        """Return the switch offsets that this member proposed and limits its reads to."""
        version = self.version
        # A copy: the thread that reads adds proposals while the one of the heartbeats reports them.
        proposals = self._proposals.copy().items()
        return {queue: offset for (of, queue), offset in proposals if of == version}

    def part(self, queue_id: int, offset: int, visible: Callable[[], int]) -> QueuePart:
        """Return how to read on in a queue that was read up to *offset*; *visible* returns its end.

        The member has to apply the result from here on, before its next report.
        """
        plan = self.plan
        if plan is None:
            return QueuePart(self._subscription, None)
        if not plan.is_switching:
            return QueuePart(plan.old, None)
        if queue_id in plan.switches:
            stop = plan.switches[queue_id]
            return QueuePart(plan.new, None) if offset >= stop else QueuePart(plan.old, stop)
        key = plan.version, queue_id
        if key not in self._proposals:
            # Not below what was read already, also if a power failure has taken the end since.
            self._proposals[key] = max(visible(), offset)
        return QueuePart(plan.old, self._proposals[key])

    def forget_queue(self, queue_id: int) -> None:
        """Drop unconfirmed proposals for a revoked queue."""
        for key in [key for key in self._proposals.copy() if key[1] == queue_id]:
            del self._proposals[key]

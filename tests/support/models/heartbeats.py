"""Heartbeats of the members of one group, and a registry that was saved and loaded again."""

from __future__ import annotations

import itertools

from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_registry import GroupRegistry
from rocketray.groups.heartbeat import Heartbeat

PAY = Subscription.tags("pay")
NUMBERS = itertools.count(100)


def beat(
    member: str,
    held: set[int] | None = None,
    *,
    commits: dict[int, int] | None = None,
    instance: str = "i1",
    subscription: Subscription = PAY,
    counters: FilterCounters = NO_COUNTERS,
) -> Heartbeat:
    held_queues = frozenset(held or ())
    return Heartbeat(
        "group", "Topic", subscription, member, instance, held_queues, commits or {}, counters,
        number=next(NUMBERS),
    )  # fmt: skip


def restarted(before: GroupRegistry, seen_ms: int) -> GroupRegistry:
    after = GroupRegistry()
    after.load(before.to_json(), seen_ms)
    return after

"""Descriptions of consumer groups that the coordinator returns: plain, picklable values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription

from .failing import FailingMessage
from .filter_plan import FilterPlan


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group on one topic.

    ``since_ms``: when the coordinator first learned of the subscription.
    ``starts``: the offset at which the group began in each queue; -1: not yet, or unknown.
    ``counters``: the sums since the coordinator started.
    ``plan``: the change of subscription in progress.
    ``pulled``: the offset up to which the owner of each queue has taken it.
    ``failing``: the message at which the owner holds the queue.
    ``is_broadcast``: the members keep the group's offsets.
    ``unheard``: members restored from disk that have not reported since the coordinator started.
    """

    group: str
    topic: str
    subscription: Subscription
    offsets: dict[int, int]
    starts: dict[int, int]
    members: dict[str, list[int]]
    counters: FilterCounters
    since_ms: int
    plan: FilterPlan | None = None
    pulled: dict[int, int] = field(default_factory=dict)
    is_broadcast: bool = False
    failing: dict[int, FailingMessage] = field(default_factory=dict)
    unheard: frozenset[str] = frozenset()


class LiveSubscription(NamedTuple):
    """The subscription of a group that has live members; the higher ``since_ms`` wins."""

    group: str
    topic: str
    subscription: Subscription
    since_ms: int

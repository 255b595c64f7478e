"""What others are told about consumer groups: plain values, sent as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription

from .failing import FailingMessage
from .subscription_change import FilterPlan

__all__ = ["GroupDescription", "LiveSubscription"]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group on one topic.

    ``since_ms`` is when its subscription was first heard of, ``starts`` where it began in each
    queue (-1: not yet, or not known), ``counters`` are since the coordinator started, ``plan`` is
    the change of subscription that is under way, ``pulled`` up to which offset the owner of a queue
    took it, ``failing`` the message at which the owner holds the queue. The offsets of a group
    ``is_broadcast`` are with its members. Those of its members in ``unheard`` are known from before
    the coordinator started, and have not reported since.
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
    """What the living members of a group subscribe to; a later ``since_ms`` is a later word."""

    group: str
    topic: str
    subscription: Subscription
    since_ms: int

"""Descriptions of consumer groups that the coordinator returns: plain, picklable values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription

from .failing import FailingMessage
from .filter_plan import FilterPlan


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member of a group on one topic, as its heartbeats tell.

    ``release``, ``machine``, ``pid``: of its process; "" and 0: its release does not tell.
    ``joined_ms``: since when it is a member without interruption, by the coordinator's wall clock;
    None: unknown.
    ``silent_ms``: since its last heartbeat; None: none since the coordinator started.
    ``subscription``: what it asks for; None until that heartbeat.
    ``held``: the queues that it reads, those it has to release among them.
    """

    release: str
    machine: str
    pid: int
    joined_ms: int | None
    silent_ms: int | None
    subscription: Subscription | None
    held: list[int]


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
    ``clients``: what is known of each of the ``members``.
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
    clients: dict[str, MemberDescription] = field(default_factory=dict)

    @property
    def heard(self) -> set[str]:
        """The members that have reported to this coordinator."""
        return self.members.keys() - self.unheard


class LiveSubscription(NamedTuple):
    """The subscription of a group that has live members; the higher ``since_ms`` wins."""

    group: str
    topic: str
    subscription: Subscription
    since_ms: int

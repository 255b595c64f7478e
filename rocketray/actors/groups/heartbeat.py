"""What members and the coordinator tell each other: plain values, sent as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.filters.subscription import Subscription

from .assignment import Strategy
from .failing import FailingMessage
from .subscription_change import FilterPlan

__all__ = ["AppInstance", "Heartbeat", "HeartbeatReply"]


class AppInstance(NamedTuple):
    """One instance of an app; all its members read the same queue numbers of their topics."""

    app: str
    instance: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a member says about itself, about once a second.

    ``instance`` tells a restarted member from its dead predecessor of the same id. ``held`` are
    the queues that it reads now; ``commits`` maps queue ids to next queue offsets, ``starts`` to
    where it began to read for a group that had no offset yet; ``counters`` is what its filters
    did in all, since the instance began. ``together`` names the app whose members, in all groups
    and topics, own queue numbers together; all others are divided by ``strategy``. ``number`` grows
    with each heartbeat of an instance, so that one that comes late is known. ``plan`` is the version
    of the change of subscription that the member knows of, and ``switches`` are its proposals. In a
    group ``is_broadcast`` each member gets all queues, and keeps its offsets itself. ``pulled`` is
    up to which offset it took each queue, finished or not; ``failing`` maps a queue to the message at
    which the member holds it.
    """

    group: str
    topic: str
    subscription: Subscription
    member: str
    instance: str
    held: frozenset[int]
    commits: Mapping[int, int] = field(default_factory=dict)
    counters: FilterCounters = NO_COUNTERS
    starts: Mapping[int, int] = field(default_factory=dict)
    together: AppInstance | None = None
    strategy: Strategy = "averagely"
    number: int = 0
    plan: int = 0
    switches: Mapping[int, int] = field(default_factory=dict)
    is_broadcast: bool = False
    pulled: Mapping[int, int] = field(default_factory=dict)
    failing: Mapping[int, FailingMessage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The queues that the member may read, and the group's offset in each (−1: none yet).

    ``plan`` is the change of subscription that the group is in.
    """

    granted: Mapping[int, int]
    members: int
    plan: FilterPlan | None = None

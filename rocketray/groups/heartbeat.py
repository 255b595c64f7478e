"""Heartbeats of members and the coordinator's replies: plain, picklable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, NamedTuple

from rocketray.base.limits import Limit
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.filters.subscription import Subscription

from .assignment import Strategy
from .failing import FailingMessage
from .filter_plan import FilterPlan

_TEXT_MAX = 255  # a host name has at most 64 characters on Linux, a release far fewer


class AppInstance(NamedTuple):
    """One instance of an app; all its members read the same queue numbers of their topics."""

    app: str
    instance: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The report of a member, sent about once a second.

    ``instance``: tells a restarted member from its dead predecessor of the same id.
    ``held``: the queues that the member reads now.
    ``commits``: next queue offset by queue id.
    ``starts``: where the member began to read for a group that had no offset yet.
    ``counters``: the sums of its filters since the instance began.
    ``together``: the app whose members own queue numbers together, in all its groups and topics;
    the queues of all other members are assigned by ``strategy``.
    ``number``: grows with each heartbeat of an instance, so a late one is recognised.
    ``plan``: the version of the change of subscription that the member knows; ``switches``: its
    proposals.
    ``is_broadcast``: each member of the group gets all queues, and keeps its own offsets.
    ``pulled``: the offset up to which it took each queue, finished or not.
    ``failing``: for a queue, the message at which the member holds it.
    ``newest_epoch``: the newest ownership epoch with which a store refused the member's older one.
    ``release``, ``machine``, ``pid``: of its process; "" and 0 from a member that does not tell.
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
    newest_epoch: int = 0
    release: Annotated[str, Limit(_TEXT_MAX)] = ""
    machine: Annotated[str, Limit(_TEXT_MAX)] = ""
    pid: int = 0


def _restore(beat: Heartbeat, state: list[Any]) -> None:
    """Restore the state from :mod:`pickle`; a member of an earlier release has fewer fields."""
    for each, value in zip(fields(beat), state, strict=False):
        object.__setattr__(beat, each.name, value)
    for each in fields(beat)[len(state) :]:
        assert each.default is not MISSING  # a new field needs one, as long as others lack it
        object.__setattr__(beat, each.name, each.default)


# Not in the class, where dataclasses of Python 3.11.0 to 3.11.3 replace it.
Heartbeat.__setstate__ = _restore  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The queues that the member may read, and the group's offset in each (-1: none yet).

    ``plan`` is the change of subscription in progress. ``moves`` is how often a queue of the topic
    was moved to another disk: when it changes, the member looks up where its queues are. ``epochs``
    has the ownership epoch of each granted queue (ownership_epochs.py); none in a broadcast group.
    """

    granted: Mapping[int, int]
    members: int
    plan: FilterPlan | None = None
    moves: int = 0
    epochs: Mapping[int, int] = field(default_factory=dict)

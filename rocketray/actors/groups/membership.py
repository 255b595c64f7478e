"""The members of one group on one topic, and the share of an app.

The states of its queues, and how one is handed over, are in handover.py.

Invariants
  1. A queue has at most one owner in a membership.
  2. A member that was silent for ``SESSION_TIMEOUT_MS`` is removed, and its queues are revoked.
  3. A process that joins under the name of another that may live gets none of the other's queues
     before that one left, or was silent for as long. Until then the other is a predecessor.
  4. Queues lost to a session timeout are assigned to the returning member again, unless another
     member took them, or they were to be read from another offset or with another filter: no
     member can have read further meanwhile.
  5. A heartbeat whose number is not newer than the last one's changes nothing. An owner's commits
     count only if it reported in this heartbeat or the one before that it holds the queue: the
     commits of an owner that does not know it is the owner are from an earlier ownership.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketray.errors import StrategyConflictError, StreamError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.filters.subscription import Subscription

from .assignment import Strategy, averagely, check_strategy, divide, sticky
from .failing import FailingMessage
from .handover import QueueOwners, process_name
from .heartbeat import AppInstance, Heartbeat
from .lease import SESSION_TIMEOUT_MS

__all__ = ["Membership", "app_share"]

_FORMER_MAX = 100  # replaced processes that are still recognised and refused


@dataclass(slots=True)
class Member:
    """The state of a member in a membership."""

    instance: str
    together: AppInstance | None
    strategy: Strategy
    seen_ms: int
    counters: FilterCounters | None = None  # of its last report
    number: int = 0  # of its last report
    held: frozenset[int] = frozenset()  # of its last report
    is_broadcast: bool = False
    plan: int = 0
    subscription: Subscription | None = None
    pulled: Mapping[int, int] = field(default_factory=dict)
    failing: Mapping[int, FailingMessage] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that a restarted coordinator needs."""
        return {
            "instance": self.instance,
            "together": None if self.together is None else list(self.together),
            "strategy": self.strategy,
            "broadcast": self.is_broadcast,
            "number": self.number,
            "held": sorted(self.held),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], seen_ms: int) -> Member:
        """Restore a member from the result of :meth:`to_json`."""
        together = value["together"]
        return cls(
            str(value["instance"]),
            None if together is None else AppInstance(*map(str, together)),
            check_strategy(value["strategy"]),
            seen_ms,
            number=int(value.get("number", 0)),
            held=frozenset(map(int, value.get("held", ()))),
            is_broadcast=bool(value.get("broadcast", False)),
        )


@dataclass(slots=True)
class Membership:
    """The members of one group on one topic."""

    queues: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    counters: FilterCounters = NO_COUNTERS  # of all members, present and past
    owners: QueueOwners = field(default_factory=QueueOwners)
    predecessors: dict[str, Member] = field(default_factory=dict)  # by their names in owners
    former: dict[str, None] = field(default_factory=dict)  # instances whose name another took
    has_changed_members: bool = False  # since the last save

    def find(self, beat: Heartbeat) -> tuple[str, Member] | None:
        """Return the sender's name as an owner, and its state; None for an unknown sender."""
        member = self.members.get(beat.member)
        if member is not None and member.instance == beat.instance:
            return beat.member, member
        name = process_name(beat.member, beat.instance)
        predecessor = self.predecessors.get(name)
        return None if predecessor is None else (name, predecessor)

    def is_late(self, beat: Heartbeat) -> bool:
        """Return whether this heartbeat of the member, or a later one, was handled already."""
        member = self.members.get(beat.member)
        is_same = member is not None and member.instance == beat.instance
        return is_same and member is not None and beat.number <= member.number

    def check_name(self, beat: Heartbeat) -> None:
        """Raise :class:`StreamError` if another process took the member's name while it lived."""
        member = self.members.get(beat.member)
        is_taken = member is not None and member.instance != beat.instance
        if is_taken and beat.instance in self.former:
            raise StreamError(
                f"another process joined group {beat.group!r} on topic {beat.topic!r} as "
                f"{beat.member!r}, so this process is no longer a member; give each member a "
                "client id of its own"
            )

    def see(self, beat: Heartbeat, now_ms: int) -> None:
        """Note that a member lives; replace another process of the same name."""
        member = self.members.get(beat.member)
        if member is None or member.instance != beat.instance:
            if member is not None:
                self._replace(beat.member, member)
            member = self.members[beat.member] = Member(
                beat.instance, beat.together, beat.strategy, now_ms
            )
            self.has_changed_members = True
        self.has_changed_members |= member.held != beat.held
        member.seen_ms = now_ms
        member.number = beat.number
        member.held = beat.held
        member.plan = beat.plan
        member.is_broadcast = beat.is_broadcast
        member.subscription = beat.subscription
        member.pulled = beat.pulled
        member.failing = beat.failing
        self.count(member, beat)

    def _replace(self, name: str, member: Member) -> None:
        """Make the replaced process a predecessor: it keeps its queues for the session time."""
        self.former[member.instance] = None
        if len(self.former) > _FORMER_MAX:
            del self.former[next(iter(self.former))]
        predecessor = process_name(name, member.instance)
        self.owners.replace(name, predecessor)
        if self.owners.owned(predecessor):
            self.predecessors[predecessor] = member

    def check_strategy(self, beat: Heartbeat) -> None:
        """Raise :class:`StrategyConflictError` if others divide the queues in another way."""
        for name, member in self.members.items():
            if name != beat.member and _way(member) != _way(beat):
                raise StrategyConflictError(beat.group, beat.topic, _way(member), _way(beat))

    def share(self, beat: Heartbeat) -> set[int]:
        """Return the queues that a member without ``together`` should have."""
        shares = divide(
            beat.strategy, beat.topic, self.queues, self.members.keys(), self.owners.names
        )
        return {queue for queue, name in shares.items() if name == beat.member}

    def owned(self, name: str) -> set[int]:
        """Return the queues of one member."""
        if name in self.members and self.members[name].is_broadcast:
            return set(range(self.queues))
        return self.owners.owned(name)

    def unheard(self) -> frozenset[str]:
        """Return the members restored from disk that have not reported to this coordinator yet."""
        return frozenset(name for name, each in self.members.items() if each.counters is None)

    def pulled(self) -> dict[int, int]:
        """Return the offset up to which the owner of each queue reported to have taken it."""
        return {
            queue: self.members[name].pulled[queue]
            for queue, name in self.owners.names.items()
            if name in self.members and queue in self.members[name].pulled
        }

    def failing(self) -> dict[int, FailingMessage]:
        """Return the message at which the owner of each queue reported to hold it."""
        return {
            queue: self.members[name].failing[queue]
            for queue, name in self.owners.names.items()
            if name in self.members and queue in self.members[name].failing
        }

    def count(self, member: Member, beat: Heartbeat) -> None:
        """Add the growth of the member's filter counters since its last report."""
        if member.counters is not None:  # a restored member: earlier counts were added before
            self.counters += beat.counters - member.counters
        member.counters = beat.counters

    def forget(self, name: str) -> None:
        """Remove a member, or a predecessor, and release its queues."""
        self.members.pop(name, None)
        self.predecessors.pop(name, None)
        self.owners.release(self.owners.owned(name))
        self.has_changed_members = True

    def expire(self, now_ms: int) -> None:
        """Remove the members that were silent for longer than ``SESSION_TIMEOUT_MS``."""
        for name, member in [*self.members.items(), *self.predecessors.items()]:
            if now_ms - member.seen_ms > SESSION_TIMEOUT_MS:
                process = process_name(name.partition("\n")[0], member.instance)
                self.owners.expire(name, process)
                self.forget(name)

    def excuse(self, silent_ms: int) -> None:
        """Extend all sessions by *silent_ms*, during which no report could arrive."""
        for member in (*self.members.values(), *self.predecessors.values()):
            member.seen_ms += silent_ms

    def apps(self) -> set[str]:
        """Return the apps that own their queues together and have members here."""
        every = (*self.members.values(), *self.predecessors.values())
        return {each.together.app for each in every if each.together is not None}

    @property
    def changed(self) -> bool:
        """Whether members or owners changed since the last save."""
        return self.has_changed_members or self.owners.changed

    def saved(self) -> None:
        """Note that the result of :meth:`to_json` is on disk."""
        self.has_changed_members = self.owners.changed = False

    def to_json(self) -> dict[str, Any]:
        """Return the members and the owners."""
        return {
            "queues": self.queues,
            "members": {name: member.to_json() for name, member in self.members.items()},
            "former": list(self.former),
            "predecessors": {name: each.to_json() for name, each in self.predecessors.items()},
            "owners": {str(queue): name for queue, name in self.owners.names.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], seen_ms: int) -> Membership:
        """Restore the result of :meth:`to_json`; all members count as seen at *seen_ms*."""
        members = {name: Member.from_json(text, seen_ms) for name, text in value["members"].items()}
        owners = QueueOwners({int(queue): str(name) for queue, name in value["owners"].items()})
        predecessors = {
            name: Member.from_json(text, seen_ms)
            for name, text in value.get("predecessors", {}).items()
        }
        former = dict.fromkeys(map(str, value.get("former", ())))
        queues = int(value["queues"])
        return cls(queues, members, owners=owners, predecessors=predecessors, former=former)


def _way(member: Member | Heartbeat) -> str:
    if member.is_broadcast:
        return "broadcast, all queues to each member"
    if member.together is not None:
        return f"the queue numbers of app {member.together.app!r}"
    return f"strategy {member.strategy!r}"


def app_share(
    membership: Membership, name: str, memberships: Sequence[Membership], app: AppInstance
) -> set[int]:
    """Return the queues that a member may read so that its app's instances share no queue number.

    *memberships* are all those of the app. A number that an instance still holds in any of them
    belongs to no other instance in all of them. A topic with fewer queues lacks the higher numbers.
    """
    owners: dict[int, str] = {}
    instances = set()
    for each in memberships:
        for owner, member in (*each.members.items(), *each.predecessors.items()):
            if member.together is not None and member.together.app == app.app:
                if owner in each.members:
                    instances.add(member.together.instance)
                owners |= dict.fromkeys(each.owned(owner), member.together.instance)
    shares = sticky(max(each.queues for each in memberships), instances, owners)
    mine = [
        queue
        for queue in range(membership.queues)
        if shares[queue] == owners.get(queue, app.instance) == app.instance
    ]
    colleagues = [other for other, member in membership.members.items() if member.together == app]
    places = averagely(len(mine), colleagues)
    return {queue for place, queue in enumerate(mine) if places[place] == name}

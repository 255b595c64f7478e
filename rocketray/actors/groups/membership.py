"""The members of one group on one topic, who owns which queue, and what one app owns in all groups.

Invariants
  1. A queue has at most one owner in a membership.
  2. A member that was silent for ``SESSION_TIMEOUT_MS`` is forgotten, with what it owned.
  3. A process that joins under the name of another, which may live, gets nothing of what that one
     owned before it left, or was silent for so long: until then it is a predecessor.
  4. What a member lost by silence is its own again when it is heard of, unless somebody took it, or
     was to read it from elsewhere or in another way: nobody can have come further meanwhile.
  5. A heartbeat whose number is not newer than the last one's changes nothing. What an owner commits
     counts only when it said in this heartbeat or the one before that it holds the queue: an owner
     that does not know that it is one speaks of an earlier time.
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
from .heartbeat import AppInstance, Heartbeat
from .lease import SESSION_TIMEOUT_MS

__all__ = ["Membership", "app_share"]

_FORMER_MAX = 100  # processes whose name another took, and which are told so


@dataclass(slots=True)
class Member:
    """What a membership knows of a member."""

    instance: str
    together: AppInstance | None
    strategy: Strategy
    seen_ms: int
    counters: FilterCounters | None = None  # of its last report
    number: int = 0  # of its last report
    held: frozenset[int] = frozenset()  # as it said in its last report
    is_broadcast: bool = False
    plan: int = 0
    subscription: Subscription | None = None
    pulled: Mapping[int, int] = field(default_factory=dict)
    failing: Mapping[int, FailingMessage] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What another coordinator has to know of it."""
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
        """What :meth:`to_json` wrote."""
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
    counters: FilterCounters = NO_COUNTERS  # of all members, past ones too
    owners: dict[int, str] = field(default_factory=dict)
    predecessors: dict[str, Member] = field(default_factory=dict)  # by what stands among the owners
    former: dict[str, None] = field(default_factory=dict)  # instances whose name another took
    lapsed: dict[int, tuple[str, str]] = field(default_factory=dict)  # by silence; name, instance
    changed: bool = False  # who is a member or an owner, since it was saved

    def find(self, beat: Heartbeat) -> tuple[str, Member] | None:
        """The owner's name of who says this, and what is known of it; None for a stranger."""
        member = self.members.get(beat.member)
        if member is not None and member.instance == beat.instance:
            return beat.member, member
        name = _predecessor(beat.member, beat.instance)
        predecessor = self.predecessors.get(name)
        return None if predecessor is None else (name, predecessor)

    def is_late(self, beat: Heartbeat) -> bool:
        """This heartbeat of the member was handled already, or a later one."""
        member = self.members.get(beat.member)
        is_same = member is not None and member.instance == beat.instance
        return is_same and member is not None and beat.number <= member.number

    def check_name(self, beat: Heartbeat) -> None:
        """Raise :class:`StreamError` when another process took the member's name while it lived."""
        member = self.members.get(beat.member)
        is_taken = member is not None and member.instance != beat.instance
        if is_taken and beat.instance in self.former:
            raise StreamError(
                f"another process joined group {beat.group!r} on topic {beat.topic!r} as "
                f"{beat.member!r}, so this one has no part in it any more; give each member a "
                "client id of its own"
            )

    def see(self, beat: Heartbeat, now_ms: int) -> None:
        """Note that a member lives, and that it took another's name if that one's was the same."""
        member = self.members.get(beat.member)
        if member is None or member.instance != beat.instance:
            if member is not None:
                self._replace(beat.member, member)
            member = self.members[beat.member] = Member(
                beat.instance, beat.together, beat.strategy, now_ms
            )
            self.changed = True
        self.changed |= member.held != beat.held
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
        """Another process has that name now; what the first one owns stays its own for a while."""
        self.former[member.instance] = None
        if len(self.former) > _FORMER_MAX:
            del self.former[next(iter(self.former))]
        predecessor = _predecessor(name, member.instance)
        self.owners = {
            queue: predecessor if owner == name else owner for queue, owner in self.owners.items()
        }
        if predecessor in self.owners.values():
            self.predecessors[predecessor] = member

    def check_strategy(self, beat: Heartbeat) -> None:
        """Raise :class:`StrategyConflictError` when others divide the queues in another way."""
        for name, member in self.members.items():
            if name != beat.member and _way(member) != _way(beat):
                raise StrategyConflictError(beat.group, beat.topic, _way(member), _way(beat))

    def share(self, beat: Heartbeat) -> set[int]:
        """The queues that a member should have whose queues are its own business."""
        shares = divide(beat.strategy, beat.topic, self.queues, self.members.keys(), self.owners)
        return {queue for queue, name in shares.items() if name == beat.member}

    def give_up(self, beat: Heartbeat) -> None:
        """Free what the member owned and holds no more."""
        for queue in self.owned(beat.member) - beat.held:
            del self.owners[queue]
            self.changed = True

    def take(self, queue: int, name: str) -> bool:
        """Make the member the owner of a queue unless another one is."""
        if queue not in self.owners:
            self.lapsed.pop(queue, None)
            self.changed = True
        return self.owners.setdefault(queue, name) == name

    def take_back(self, beat: Heartbeat) -> set[int]:
        """What the member lost by silence and nobody took; it is no more its own than before."""
        who = beat.member, beat.instance
        found = {queue for queue, lapsed in self.lapsed.items() if lapsed == who}
        for queue in found:
            del self.lapsed[queue]
        return found

    def owned(self, name: str) -> set[int]:
        """The queues of one member."""
        if name in self.members and self.members[name].is_broadcast:
            return set(range(self.queues))
        return {queue for queue, owner in self.owners.items() if owner == name}

    def unheard(self) -> frozenset[str]:
        """The members that another coordinator knew, and that did not report to this one yet."""
        return frozenset(name for name, each in self.members.items() if each.counters is None)

    def pulled(self) -> dict[int, int]:
        """Up to which offset the owner of each queue said that it took it."""
        return {
            queue: self.members[name].pulled[queue]
            for queue, name in self.owners.items()
            if name in self.members and queue in self.members[name].pulled
        }

    def failing(self) -> dict[int, FailingMessage]:
        """The message at which the owner of a queue said that it holds the queue."""
        return {
            queue: self.members[name].failing[queue]
            for queue, name in self.owners.items()
            if name in self.members and queue in self.members[name].failing
        }

    def count(self, member: Member, beat: Heartbeat) -> None:
        """Add what the member's filters did since its last report."""
        if member.counters is not None:  # what came before was counted by who heard of it then
            self.counters += beat.counters - member.counters
        member.counters = beat.counters

    def forget(self, name: str) -> None:
        """Drop a member, or a predecessor, and what it owned."""
        self.members.pop(name, None)
        self.predecessors.pop(name, None)
        self.owners = {queue: owner for queue, owner in self.owners.items() if owner != name}
        self.changed = True

    def expire(self, now_ms: int) -> None:
        """Forget those that were silent for too long."""
        for name, member in [*self.members.items(), *self.predecessors.items()]:
            if now_ms - member.seen_ms > SESSION_TIMEOUT_MS:
                for queue in [queue for queue, owner in self.owners.items() if owner == name]:
                    self.lapsed[queue] = name.partition("\n")[0], member.instance
                self.forget(name)

    def excuse(self, silent_ms: int) -> None:
        """Nobody could be heard for so long."""
        for member in (*self.members.values(), *self.predecessors.values()):
            member.seen_ms += silent_ms

    def apps(self) -> set[str]:
        """The apps that own their queues together and have members here."""
        every = (*self.members.values(), *self.predecessors.values())
        return {each.together.app for each in every if each.together is not None}

    def to_json(self) -> dict[str, Any]:
        """Who is a member, and who owns what."""
        return {
            "queues": self.queues,
            "members": {name: member.to_json() for name, member in self.members.items()},
            "former": list(self.former),
            "predecessors": {name: each.to_json() for name, each in self.predecessors.items()},
            "owners": {str(queue): name for queue, name in self.owners.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], seen_ms: int) -> Membership:
        """What :meth:`to_json` wrote; all members were last heard of at *seen_ms*."""
        members = {name: Member.from_json(text, seen_ms) for name, text in value["members"].items()}
        owners = {int(queue): str(name) for queue, name in value["owners"].items()}
        predecessors = {
            name: Member.from_json(text, seen_ms)
            for name, text in value.get("predecessors", {}).items()
        }
        former = dict.fromkeys(map(str, value.get("former", ())))
        queues = int(value["queues"])
        return cls(queues, members, owners=owners, predecessors=predecessors, former=former)


def _predecessor(name: str, instance: str) -> str:
    """What stands among the owners for a process whose name another has; no member's name does."""
    return f"{name}\n{instance}"


def _way(member: Member | Heartbeat) -> str:
    if member.is_broadcast:
        return "broadcast, all queues to each member"
    if member.together is not None:
        return f"the queue numbers of app {member.together.app!r}"
    return f"strategy {member.strategy!r}"


def app_share(
    membership: Membership, name: str, memberships: Sequence[Membership], app: AppInstance
) -> set[int]:
    """The queues that a member may read so that its app's instances share no queue number.

    *memberships* are all of the app. A number that an instance still holds in any of them is
    nobody else's in all of them. A topic with fewer queues than others lacks the higher numbers.
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

"""The members of each group on each topic, and the share of an app.

The states of its queues, and how one is handed over, are in handover.py.

Invariants
  1. A queue has at most one owner in a membership.
  2. A member that was silent for ``SESSION_TIMEOUT_MS`` is removed, and its queues are revoked.
  3. A process that joins under the name of another that may live gets none of the other's queues
     before that one left, or was silent for as long. Until then the other is a predecessor.
  4. Queues lost to a session timeout are assigned to the returning member again, unless another
     member took them, or they were to be read from another offset or with another filter: no
     member can have read further meanwhile.
  5. A heartbeat whose number is not newer than the last one's changes nothing, also after its
     process left or was removed, and the coordinator was restarted. An owner's commits count only
     if it reported in this heartbeat or the one before that it holds the queue: the commits of an
     owner that does not know it is the owner are from an earlier ownership.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketray.errors import StreamError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters

from .assignment import averagely, divide, sticky
from .group_descriptions import MemberDescription
from .handover import QueueOwners, process_name
from .heartbeat import AppInstance, Heartbeat
from .lease import SESSION_TIMEOUT_MS
from .ownership_epochs import OwnershipEpochs, check_epoch
from .roster import MemberState, Roster

_MEMBERSHIPS, _EPOCH = "memberships", "ownershipEpoch"


@dataclass(slots=True)
class Membership:
    """The members of one group on one topic, and the owners of its queues."""

    queues: int = 0
    roster: Roster = field(default_factory=Roster)
    owners: QueueOwners = field(default_factory=QueueOwners)
    counters: FilterCounters = NO_COUNTERS  # of all members, present and past

    def see(self, beat: Heartbeat, now_ms: int, wall_ms: int) -> None:
        """Note that a member lives; a process that it replaces keeps its queues, if it has any."""
        predecessor = self.roster.see(beat, now_ms, wall_ms)
        if predecessor is not None:
            self.owners.replace(beat.member, predecessor)
            if not self.owners.owned(predecessor):
                del self.roster.predecessors[predecessor]
        self.count(self.roster.members[beat.member], beat)

    def share(self, beat: Heartbeat) -> set[int]:
        """Return the queues that a member without ``together`` should have."""
        names = self.roster.members.keys()
        shares = divide(beat.strategy, beat.topic, self.queues, names, self.owners.names)
        return {queue for queue, name in shares.items() if name == beat.member}

    def owned(self, name: str) -> set[int]:
        """Return the queues of one member; in a broadcast group all, none of which has an owner."""
        member = self.roster.members.get(name)
        if member is not None and member.is_broadcast:
            return set(range(self.queues))
        return self.owners.owned(name)

    def by_member(self) -> dict[str, list[int]]:
        """Return the members and the queues that each owns."""
        return {name: sorted(self.owned(name)) for name in self.roster.members}

    def described(self, now_ms: int) -> dict[str, MemberDescription]:
        """Return what is known of each member, at *now_ms* of the steady clock."""
        return {
            name: MemberDescription(
                member.release,
                member.machine,
                member.pid,
                member.joined_ms,
                None if member.heard_ms is None else now_ms - member.heard_ms,
                member.subscription,
                sorted(member.held),
            )
            for name, member in self.roster.members.items()
        }

    def reporting(self) -> dict[int, MemberState]:
        """Return the member that owns each queue, where a member does."""
        members = self.roster.members
        return {q: members[name] for q, name in self.owners.names.items() if name in members}

    def count(self, member: MemberState, beat: Heartbeat) -> None:
        """Add the growth of the member's filter counters since its last report."""
        if member.counters is not None:  # a restored member: earlier counts were added before
            self.counters += beat.counters - member.counters
        member.counters = beat.counters

    def forget_member(self, name: str) -> None:
        """Remove a member, or a predecessor, and release its queues."""
        self.roster.remove(name)
        self.owners.release(self.owners.owned(name))

    def expire(self, now_ms: int) -> None:
        """Remove the members that were silent for longer than ``SESSION_TIMEOUT_MS``."""
        self.roster.forget_gone(now_ms)
        for name, member in self.roster.every.items():
            if now_ms - member.seen_ms > SESSION_TIMEOUT_MS:
                process = process_name(name.partition("\n")[0], member.instance)
                self.owners.expire(name, process)
                self.forget_member(name)

    @property
    def changed(self) -> bool:
        """Whether members or owners changed since the last save."""
        return self.roster.changed or self.owners.changed

    def saved(self) -> None:
        """Note that the result of :meth:`to_json` is on disk."""
        self.roster.changed = self.owners.changed = False

    def to_json(self) -> dict[str, Any]:
        """Return the members and the owners."""
        owners = {str(queue): name for queue, name in self.owners.names.items()}
        epochs = {str(queue): epoch for queue, epoch in self.owners.epochs.items()}
        own = {"owners": owners, "epochs": epochs}
        return {"queues": self.queues, **self.roster.to_json(), **own}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], seen_ms: int) -> Membership:
        """Restore the result of :meth:`to_json`; all members count as seen at *seen_ms*."""
        names = {int(queue): str(name) for queue, name in value["owners"].items()}
        epochs = {int(queue): int(epoch) for queue, epoch in value.get("epochs", {}).items()}
        for epoch in epochs.values():
            check_epoch(epoch)
        owners = QueueOwners(names, epochs)
        return cls(int(value["queues"]), Roster.from_json(value, seen_ms), owners)


class Memberships:
    """The members and the queue owners of all groups: one table of the groups' snapshot."""

    def __init__(self) -> None:
        self._memberships: dict[tuple[str, str], Membership] = {}
        self._apps: dict[str, set[tuple[str, str]]] = {}  # where each app has, or had, members
        self._has_dropped = False  # since the last save
        self.epochs = OwnershipEpochs()

    def get(self, group: str, topic: str) -> Membership:
        """Return a membership, which is empty if no member has joined."""
        # A new one is not kept: a question about an unknown group creates none.
        return self._memberships.get((group, topic)) or Membership()

    def living(self, group: str, topic: str, now_ms: int) -> Membership:
        """Return a membership without the members that were silent for too long."""
        membership = self.get(group, topic)
        membership.expire(now_ms)
        return membership

    def join(self, beat: Heartbeat, membership: Membership, now_ms: int, wall_ms: int) -> None:
        """Let the sender of *beat* be a member of *membership* from now on."""
        key = beat.group, beat.topic
        self._memberships[key] = membership
        membership.see(beat, now_ms, wall_ms)
        if beat.together is not None:
            self._apps.setdefault(beat.together.app, set()).add(key)

    def of_app(self, app: str, now_ms: int) -> list[Membership]:
        """Return the memberships of an app, as :meth:`living`."""
        return [self.living(*key, now_ms) for key in self._apps[app]]

    def counters(self, group: str, topic: str) -> FilterCounters:
        """Return the filter counters of a group's members since the coordinator started."""
        return self.get(group, topic).counters

    def excuse(self, silent_ms: int, now_ms: int) -> None:
        """Extend all sessions by *silent_ms*, during which no report could arrive.

        Until *now_ms* at most: one pause may be excused for two reasons.
        """
        for membership in self._memberships.values():
            for member in membership.roster.every.values():
                member.seen_ms = min(member.seen_ms + silent_ms, now_ms)
            membership.roster.keep_gone(silent_ms, now_ms)

    def drop(self, doomed: Callable[[tuple[str, str]], bool]) -> None:
        """Remove the (group, topic) pairs for which *doomed* is true."""
        for key in [key for key in self._memberships if doomed(key)]:
            del self._memberships[key]
            self._has_dropped = True
        for keys in self._apps.values():
            keys -= {key for key in keys if doomed(key)}

    @property
    def changed(self) -> bool:
        """Whether the result of :meth:`to_json` has to be saved."""
        if self._has_dropped or self.epochs.changed:
            return True
        return any(each.changed for each in self._memberships.values())

    def saved(self) -> None:
        """Note that the result of :meth:`to_json` is on disk."""
        self._has_dropped = self.epochs.changed = False
        for membership in self._memberships.values():
            membership.saved()

    def to_json(self) -> dict[str, Any]:
        """Return the members, the owners and the last epoch.

        That is ``{"memberships": {"topic@group": …}, "ownershipEpoch": 17}``.
        """
        return {
            _EPOCH: self.epochs.last,
            _MEMBERSHIPS: {
                f"{topic}@{group}": membership.to_json()
                for (group, topic), membership in self._memberships.items()
                if membership.roster.every or membership.roster.gone
            },
        }

    def load(self, tables: Mapping[str, Any], seen_ms: int) -> None:
        """Load the result of :meth:`to_json`; all members count as seen at *seen_ms*."""
        try:
            self.epochs = OwnershipEpochs(int(tables.get(_EPOCH, 0)))
        except (TypeError, ValueError) as error:
            raise StreamError(
                f"the ownership epoch of the groups cannot be read ({error!r}); restore "
                "config/groups.json"
            ) from None
        for name, value in tables.get(_MEMBERSHIPS, {}).items():
            topic, _, group = name.rpartition("@")
            try:
                membership = Membership.from_json(value, seen_ms)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise StreamError(
                    f"the members of group {group!r} on topic {topic!r} cannot be read "
                    f"({error!r}); restore config/groups.json"
                ) from None
            self._memberships[group, topic] = membership
            for app in membership.roster.apps():
                self._apps.setdefault(app, set()).add((group, topic))
        # First beyond all epochs that are known, then new ones: none may be one that an owner has.
        for membership in self._memberships.values():
            self.epochs.pass_by(max(membership.owners.epochs.values(), default=0))
        for membership in self._memberships.values():
            membership.owners.number(self.epochs)


def app_share(
    membership: Membership, name: str, memberships: Sequence[Membership], app: AppInstance
) -> set[int]:
    """Return the queues that a member may read so that its app's instances share no queue number.

    *memberships* are all those of the app. A number that an instance still holds in any of them
    belongs to no other instance in all of them. A topic with fewer queues lacks the higher numbers.
    """
    owners: dict[int, str] = {}
    instances = set()
    for joined in memberships:
        for owner, member in joined.roster.every.items():
            if member.together is not None and member.together.app == app.app:
                if owner in joined.roster.members:
                    instances.add(member.together.instance)
                owners |= dict.fromkeys(joined.owned(owner), member.together.instance)
    shares = sticky(max(joined.queues for joined in memberships), instances, owners)
    # Its own by the division, and held by no other instance in any topic of the app.
    mine = [
        queue
        for queue in range(membership.queues)
        if shares[queue] == owners.get(queue, app.instance) == app.instance
    ]
    # An agent may have several members in an instance: these divide its queues among them.
    members = membership.roster.members.items()
    colleagues = [other for other, member in members if member.together == app]
    places = averagely(len(mine), colleagues)
    return {queue for place, queue in enumerate(mine) if places[place] == name}

"""The processes of a membership: its members, and their predecessors (membership.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rocketray.errors import StrategyConflictError, StreamError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription

from .assignment import Strategy, check_strategy
from .failing import FailingMessage
from .handover import process_name
from .heartbeat import AppInstance, Heartbeat

_FORMER_MAX = 100  # replaced processes that are still recognised and refused
# A report is on its way while its call waits, for CALL_TIMEOUT_S = 60 s, or until a coordinator
# that starts again gets it from Ray. Later a removed process is forgotten, else the snapshot of all
# groups would have up to a hundred for each group that ever had members.
_LATE_MS = 300_000


class _Removed(NamedTuple):
    """A removed process: the number of its last report, and when that came."""

    number: int
    seen_ms: int


@dataclass(slots=True)
class MemberState:
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
    joined_ms: int | None = None  # by the wall clock; None: in a release that did not note it
    heard_ms: int | None = None  # of its last report to this coordinator
    release: str = ""
    machine: str = ""
    pid: int = 0

    def take(self, beat: Heartbeat, now_ms: int) -> None:
        """Take the fields of the member's report."""
        self.seen_ms = self.heard_ms = now_ms
        self.number = beat.number
        self.held = beat.held
        self.plan = beat.plan
        self.is_broadcast = beat.is_broadcast
        self.subscription = beat.subscription
        self.pulled = beat.pulled
        self.failing = beat.failing
        self.release, self.machine, self.pid = beat.release, beat.machine, beat.pid

    def to_json(self) -> dict[str, Any]:
        """Return the fields that a restarted coordinator needs."""
        return {
            "instance": self.instance,
            "together": None if self.together is None else list(self.together),
            "strategy": self.strategy,
            "broadcast": self.is_broadcast,
            "number": self.number,
            "held": sorted(self.held),
            "joinedMs": self.joined_ms,
            "release": self.release,
            "machine": self.machine,
            "pid": self.pid,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], seen_ms: int) -> MemberState:
        """Restore a member from the result of :meth:`to_json`."""
        together, joined_ms = value["together"], value.get("joinedMs")
        return cls(
            str(value["instance"]),
            None if together is None else AppInstance(*map(str, together)),
            check_strategy(value["strategy"]),
            seen_ms,
            number=int(value.get("number", 0)),
            held=frozenset(map(int, value.get("held", ()))),
            is_broadcast=bool(value.get("broadcast", False)),
            joined_ms=None if joined_ms is None else int(joined_ms),
            release=str(value.get("release", "")),
            machine=str(value.get("machine", "")),
            pid=int(value.get("pid", 0)),
        )


@dataclass(slots=True)
class Roster:
    """The processes of one group on one topic; ``changed``: they have to be saved."""

    members: dict[str, MemberState] = field(default_factory=dict)
    predecessors: dict[str, MemberState] = field(default_factory=dict)  # by their names in owners
    former: dict[str, None] = field(default_factory=dict)  # instances whose name another took
    gone: dict[str, _Removed] = field(default_factory=dict)
    """Removed processes, of which a report may still be on its way, by their names."""
    changed: bool = False

    @property
    def every(self) -> dict[str, MemberState]:
        """The members and the predecessors, by their names as owners."""
        return {**self.members, **self.predecessors}

    def find(self, beat: Heartbeat) -> tuple[str, MemberState] | None:
        """Return the sender's name as an owner, and its state; None for an unknown sender."""
        member = self.members.get(beat.member)
        if member is not None and member.instance == beat.instance:
            return beat.member, member
        name = process_name(beat.member, beat.instance)
        predecessor = self.predecessors.get(name)
        return None if predecessor is None else (name, predecessor)

    def is_late(self, beat: Heartbeat) -> bool:
        """Return whether this heartbeat of the process, or a later one, was handled already."""
        member = self.members.get(beat.member)
        if member is None or member.instance != beat.instance:
            removed = self.gone.get(process_name(beat.member, beat.instance))
            return removed is not None and beat.number <= removed.number
        return beat.number <= member.number

    def check(self, beat: Heartbeat) -> None:
        """Check that the sender of *beat* may join.

        Raises:
            StreamError: another process took the member's name while it lived.
            StrategyConflictError: others divide the queues in another way.
        """
        member = self.members.get(beat.member)
        is_taken = member is not None and member.instance != beat.instance
        if is_taken and beat.instance in self.former:
            raise StreamError(
                f"another process joined group {beat.group!r} on topic {beat.topic!r} as "
                f"{beat.member!r}, so this process is no longer a member; give each member a "
                "client id of its own"
            )
        for name, member in self.members.items():
            if name != beat.member and _way(member) != _way(beat):
                raise StrategyConflictError(beat.group, beat.topic, _way(member), _way(beat))

    def see(self, beat: Heartbeat, now_ms: int, wall_ms: int) -> str | None:
        """Take a report; return the owner name of the process whose name the sender takes, if any.

        That process is a predecessor now. *wall_ms* is when a sender that is new has joined.
        """
        member, predecessor = self.members.get(beat.member), None
        if member is None or member.instance != beat.instance:
            if member is not None:
                self.former[member.instance] = None
                if len(self.former) > _FORMER_MAX:
                    del self.former[next(iter(self.former))]
                predecessor = process_name(beat.member, member.instance)
                self.predecessors[predecessor] = member
            member = MemberState(
                beat.instance, beat.together, beat.strategy, now_ms, joined_ms=wall_ms
            )
            self.members[beat.member] = member
            self.changed = True
        # After a restart, a commit counts by what was held in the report before (membership.py, 5).
        # A release is told by the first report, unless the coordinator was of an earlier one then.
        self.changed |= member.held != beat.held or member.release != beat.release
        member.take(beat, now_ms)
        return predecessor

    def remove(self, name: str) -> None:
        """Remove the member or the predecessor with that name as an owner."""
        removed = self.members.pop(name, None) or self.predecessors.pop(name, None)
        if removed is not None:
            # A report of it may still be on its way, and must not let it join again (is_late).
            process = process_name(name.partition("\n")[0], removed.instance)
            self.gone[process] = _Removed(removed.number, removed.seen_ms)
            if len(self.gone) > _FORMER_MAX:
                del self.gone[next(iter(self.gone))]
        self.changed = True

    def note_left(self, beat: Heartbeat) -> None:
        """Note the last report of a removed process: those before it may come later."""
        process = process_name(beat.member, beat.instance)
        removed = self.gone.get(process)
        if removed is not None and beat.number > removed.number:
            self.gone[process] = removed._replace(number=beat.number)
            self.changed = True

    def forget_gone(self, now_ms: int) -> None:
        """Forget the removed processes of which no report is on its way any more."""
        late = {
            process: removed
            for process, removed in self.gone.items()
            if now_ms - removed.seen_ms <= _LATE_MS
        }
        self.changed |= len(late) < len(self.gone)
        self.gone = late

    def keep_gone(self, silent_ms: int, now_ms: int) -> None:
        """Remember removed processes by *silent_ms* longer: their reports were held up so long."""
        self.gone = {
            process: removed._replace(seen_ms=min(removed.seen_ms + silent_ms, now_ms))
            for process, removed in self.gone.items()
        }

    def unheard(self) -> frozenset[str]:
        """Return the members restored from disk that have not reported to this coordinator yet."""
        return frozenset(name for name, each in self.members.items() if each.counters is None)

    def apps(self) -> set[str]:
        """Return the apps that own their queues together and have members here."""
        every = self.every.values()
        return {each.together.app for each in every if each.together is not None}

    def to_json(self) -> dict[str, Any]:
        """Return all processes, the removed ones with the numbers of their last reports."""
        return {
            "members": {name: member.to_json() for name, member in self.members.items()},
            "former": list(self.former),
            "predecessors": {name: each.to_json() for name, each in self.predecessors.items()},
            "gone": {process: removed.number for process, removed in self.gone.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], seen_ms: int) -> Roster:
        """Restore the result of :meth:`to_json`; all processes count as seen at *seen_ms*."""
        members, predecessors = (
            {name: MemberState.from_json(text, seen_ms) for name, text in table.items()}
            for table in (value["members"], value.get("predecessors", {}))
        )
        former = dict.fromkeys(map(str, value.get("former", ())))
        gone = {
            str(process): _Removed(int(number), seen_ms)
            for process, number in value.get("gone", {}).items()
        }
        return cls(members, predecessors, former, gone)


def _way(member: MemberState | Heartbeat) -> str:
    if member.is_broadcast:
        return "broadcast, all queues to each member"
    if member.together is not None:
        return f"the queue numbers of app {member.together.app!r}"
    return f"strategy {member.strategy!r}"

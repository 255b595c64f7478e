"""All consumer groups of a cluster: members, queue owners, offsets, subscriptions.

Plain values and a plain object; time is an argument of each call.

Invariants, beside those of membership.py and group_subscriptions.py
  1. Ownership outlives the coordinator: it is saved before the owner receives it.
  2. A queue number of an app that owns its queues together belongs to one of its instances, in all
     topics and groups of the app.
  3. Filter counters are counted once: members report sums, and only their growth is added.
  4. The journal records each change of an offset that is not a commit of read messages, and each
     filter that takes effect.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Any

from rocketray.errors import StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.journal.group_journal import EntryKind, GroupJournals

from .filter_plan import FilterPlan
from .filter_plans import PlanProgress
from .group_descriptions import GroupDescription, LiveSubscription
from .group_offsets import GroupOffsets
from .group_subscriptions import GroupSubscriptions
from .handover import process_name
from .heartbeat import Heartbeat, HeartbeatReply
from .later_queues import LaterQueues
from .member_options import check_client_id
from .membership import Membership, Memberships, app_share
from .offset_moves import OffsetMoves

_MIGRATE = "rocketray groups migrate"


class GroupRegistry:
    """All groups of a cluster."""

    def __init__(self, journals: GroupJournals | None = None) -> None:
        self.journals = journals or GroupJournals(lambda: 0)
        self.subscriptions = GroupSubscriptions()
        self.changes = self.subscriptions.changes
        self.offsets = GroupOffsets()
        self.moves = OffsetMoves(self.offsets, self.journals)
        self.later_queues = LaterQueues(self.subscriptions, self.offsets, self.journals)
        self.memberships = Memberships()

    def heartbeat(
        self, beat: Heartbeat, queues: int, now_ms: int, wall_ms: int | None = None
    ) -> HeartbeatReply:
        """Take a member's report; return which of the topic's *queues* it may read.

        *now_ms* is monotonic, as everywhere here; *wall_ms* is the wall-clock time from which a new
        subscription counts as known. A member that holds queues which it lost by silence has to
        release them before it gets more. The numbers are those of the steps in handover.py.

        Raises:
            SubscriptionConflictError: living members of the group subscribe differently.
            StrategyConflictError: living members divide the queues in another way.
            StreamError: another process took the member's name while it lived.
        """
        key = beat.group, beat.topic
        membership = self.memberships.get(*key)
        if membership.roster.is_late(beat):
            return self._repeat(beat, membership)
        wall_ms = now_ms if wall_ms is None else wall_ms
        previous = membership.roster.find(beat)
        # Its last commits are of queues that it held in the report before, and has released since.
        held = beat.held if previous is None else beat.held | previous[1].held
        self._join(beat, membership, queues, now_ms, wall_ms)  # 1, 2
        owners = membership.owners
        held |= owners.reclaim(beat.member, process_name(beat.member, beat.instance))  # 3
        self.subscriptions.note_mode(beat)
        if beat.is_broadcast:
            return HeartbeatReply(dict.fromkeys(range(queues), -1), len(membership.roster.members))
        owned = owners.owned(beat.member)
        self._take_offsets(beat, owned & held)  # 4
        self._take_proposals(beat, owned & beat.held)  # it reads no others up to its proposal
        self.settle_change(*key, wall_ms)
        owners.release(owned - beat.held)  # 5
        self.moves.carry_out(*key, membership)  # 6
        # A queue that it lost and still reads would be read on from its own position if it got it
        # back now; once released, it begins at the group's offset.
        withheld = (beat.held - owned) | self.moves.waiting(*key)
        epochs = self.memberships.epochs
        epochs.pass_by(beat.newest_epoch)  # before the grants: these have to be above it
        granted = {
            queue: self.offsets.get(*key, queue)
            for queue in sorted(self._share(beat, membership, now_ms) - withheld)
            if owners.assign(queue, beat.member, epochs)  # 7
        }
        owners.revoke(beat.member, granted)
        self.journals.changed_hands(*key, granted.keys() - (owned & beat.held))
        plan = self.changes.get(*key)
        if plan is None:  # with a plan all members read as it says
            self.journals.is_read(*key, granted, beat.subscription, beat.member)
        return _reply(granted, membership, plan)

    def leave(self, beat: Heartbeat) -> None:
        """Take a member's last commits and release its queues; *held* is what it had until now."""
        membership = self.memberships.get(beat.group, beat.topic)
        entry = membership.roster.find(beat)
        if entry is None:
            # It was silent for too long: its commits count where no other member took the queue.
            lapsed = membership.owners.lapsed(process_name(beat.member, beat.instance))
            membership.owners.forget(lapsed)
            membership.roster.note_left(beat)
            self._take_offsets(beat, lapsed)
            return
        name, member = entry
        membership.count(member, beat)
        if not beat.is_broadcast:
            self._take_offsets(beat, membership.owned(name) & (beat.held | member.held))
        membership.forget_member(name)
        membership.roster.note_left(beat)
        self.moves.carry_out(beat.group, beat.topic, membership)

    def carry_out_moves(self, group: str, topic: str, now_ms: int) -> None:
        """Carry out the moves of offsets that waited for a member that has left or expired."""
        self.moves.carry_out(group, topic, self.memberships.living(group, topic, now_ms))

    def needed_from(self, topic: str, queue: int) -> int | None:
        """Return the first offset that some group of *topic* has not finished; None without groups.

        A group without an offset needs everything: its start offset is not known here. A broadcast
        group protects nothing: the number and the places of its members are unknown.
        """
        return min(
            (
                max(self.offsets.get(group, topic, queue), 0)
                for group in self.subscriptions.sharing(topic)
            ),
            default=None,
        )

    def describe(self, queues: Mapping[str, int], now_ms: int) -> list[GroupDescription]:
        """Describe all groups, one entry a topic; *queues* is the number of queues by topic."""
        return [
            self._describe(group, topic, subscription, range(queues[topic]), now_ms)
            for group, topic, subscription in self.subscriptions
        ]

    def _describe(
        self, group: str, topic: str, subscription: Subscription, queues: range, now_ms: int
    ) -> GroupDescription:
        membership = self.memberships.living(group, topic, now_ms)
        owners = membership.reporting().items()
        return GroupDescription(
            group,
            topic,
            subscription,
            {queue: self.offsets.get(group, topic, queue) for queue in queues},
            {queue: self.offsets.start(group, topic, queue) for queue in queues},
            membership.by_member(),
            membership.counters,
            self.subscriptions.since_ms(group, topic),
            self.changes.get(group, topic),
            {queue: member.pulled[queue] for queue, member in owners if queue in member.pulled},
            (group, topic) in self.subscriptions.broadcasts,
            {queue: member.failing[queue] for queue, member in owners if queue in member.failing},
            membership.roster.unheard(),
            membership.described(now_ms),
        )

    def live_subscriptions(self, now_ms: int) -> list[LiveSubscription]:
        """Return the subscriptions that have members."""
        return [
            LiveSubscription(group, topic, subscription, self.subscriptions.since_ms(group, topic))
            for group, topic, subscription in self.subscriptions
            if self.memberships.living(group, topic, now_ms).roster.members
        ]

    def delete(self, group: str, now_ms: int) -> None:
        """Remove a group and its offsets.

        Raises:
            StreamError: there is no such group, or it has members.
        """
        for topic in self.subscriptions.topics_of(group):
            # Also processes that lost their name to another one: they may still read.
            members = len(self.memberships.living(group, topic, now_ms).roster.every)
            if members:
                raise StreamError(
                    f"topic {topic!r} is still read by {members} members of group {group!r}; stop "
                    "them first"
                )
        self.subscriptions.delete(group)
        self.later_queues.forget_group(group)
        self.journals.note(EntryKind.GROUP_DELETED, group, "", {})
        self._drop(lambda key: key[0] == group)

    def keep_topics(self, kept: Container[str]) -> None:
        """Remove all state of topics that are not among *kept*: they were deleted."""
        for group, topic, _ in self.subscriptions:
            if topic not in kept:
                self.later_queues.note_deleted(topic)
                self.journals.note(EntryKind.TOPIC_DELETED, group, topic, {})
        self.subscriptions.keep_topics(kept)
        self._drop(lambda key: key[1] not in kept)

    @property
    def must_save(self) -> bool:
        """Whether a change has to be on disk before the coordinator answers: any but a commit."""
        return self.subscriptions.changed or self.moves.changed or self.memberships.changed

    def to_json(self, *, only_unsaved: bool = False) -> dict[str, Any]:
        """Return the snapshot's tables (groups_file.py), or those changed since the last save."""
        tables: dict[str, Any] = {}
        for part in (self.subscriptions, self.offsets, self.moves, self.memberships):
            if part.changed or not only_unsaved:
                tables |= part.to_json()
        return tables

    def saved(self) -> None:
        """Note that the result of :meth:`to_json` is on disk."""
        self.subscriptions.saved()
        self.memberships.saved()
        self.offsets.changed = self.moves.changed = False

    def load(self, tables: Mapping[str, Any], seen_ms: int) -> None:
        """Load the result of :meth:`to_json`; a missing table is empty.

        Members count as seen at *seen_ms*: from then on they have the session timeout to report
        again (invariant 1).
        """
        self.subscriptions.load(tables)
        self.offsets.load(tables)
        self.moves.load(tables)
        self.memberships.load(tables, seen_ms)

    def agree_with_journals(self) -> None:
        """Have the journals record how the offsets loaded from disk differ from those they know."""
        for group, topic, subscription in self.subscriptions:
            plan = self.changes.get(group, topic)
            if (group, topic) not in self.subscriptions.broadcasts:
                offsets = self.offsets.of(group, topic)
                read = partial(_read_with, subscription, plan)
                self.journals.agree(group, topic, offsets, read)

    def _join(
        self, beat: Heartbeat, membership: Membership, queues: int, now_ms: int, wall_ms: int
    ) -> None:
        membership.expire(now_ms)
        check_client_id(beat.member)
        membership.roster.check(beat)
        is_shared = any(name != beat.member for name in membership.roster.members)
        since_ms = self.subscriptions.since_ms(beat.group, beat.topic)
        self.subscriptions.take_subscription(beat, is_shared=is_shared, wall_ms=wall_ms)
        is_other = since_ms != self.subscriptions.since_ms(beat.group, beat.topic)
        if is_other or self.changes.get(beat.group, beat.topic) is not None:
            # Lapsed queues are to be read by another filter by now (membership.py, invariant 4).
            membership.owners.forget()
        membership.queues = queues
        self.memberships.join(beat, membership, now_ms, wall_ms)

    def _share(self, beat: Heartbeat, membership: Membership, now_ms: int) -> set[int]:
        if beat.together is None:
            return membership.share(beat)
        memberships = self.memberships.of_app(beat.together.app, now_ms)
        return app_share(membership, beat.member, memberships, beat.together)

    def _repeat(self, beat: Heartbeat, membership: Membership) -> HeartbeatReply:
        """Answer a heartbeat that was handled before; if the caller waits, it lost the reply."""
        if beat.is_broadcast:
            granted = dict.fromkeys(range(membership.queues), -1)
            return HeartbeatReply(granted, len(membership.roster.members))
        owned = membership.owned(beat.member) - self.moves.waiting(beat.group, beat.topic)
        granted = {queue: self.offsets.get(beat.group, beat.topic, queue) for queue in owned}
        return _reply(granted, membership, self.changes.get(beat.group, beat.topic))

    def _take_offsets(self, beat: Heartbeat, queues: set[int]) -> None:
        """Take the offsets of queues that the member owns, and knows that it owns."""
        key = beat.group, beat.topic
        begins = {
            queue: (-1, beat.starts[queue])
            for queue in queues & beat.starts.keys()
            if self.offsets.get(*key, queue) < 0
        }
        self.journals.note(EntryKind.BEGIN, *key, begins, who=beat.member)
        for queue in queues & beat.starts.keys():
            self.offsets.begin(*key, queue, beat.starts[queue])
        commits = {queue: beat.commits[queue] for queue in queues & beat.commits.keys()}
        self.journals.told_again(*key, commits, beat.member)
        # As in RocketMQ, whose broker only warns, a commit may be below the one before it.
        before = {queue: self.offsets.get(*key, queue) for queue in commits}
        back = {q: (before[q], at) for q, at in commits.items() if at < before[q]}
        self.journals.note(EntryKind.BACK, *key, back, who=beat.member)
        for queue, offset in commits.items():
            self.offsets.commit(*key, queue, offset)

    def _take_proposals(self, beat: Heartbeat, owned: set[int]) -> None:
        key = beat.group, beat.topic
        before = self.changes.get(*key)
        self.changes.take_proposals(beat, owned)
        plan = self.changes.get(*key)
        if before is not None and plan is not None and plan is not before:
            fresh = plan.switches.keys() - before.switches.keys()
            pairs = {q: (self.offsets.get(*key, q), plan.switches[q]) for q in fresh}
            self.journals.note(EntryKind.SWITCH, *key, pairs, who=_MIGRATE, subscription=plan.new)

    def progress(self, group: str, topic: str, now_ms: int) -> PlanProgress | None:
        """Return the progress of the group's change of subscription; None without one."""
        membership = self.memberships.living(group, topic, now_ms)
        return self.changes.progress(group, topic, membership, self._offsets_in(group, topic))

    def settle_change(
        self, group: str, topic: str, wall_ms: int, *, goes_back: bool = False
    ) -> None:
        """End a change that every queue, and unless *goes_back* every member, has completed."""
        membership, offsets = self.memberships.get(group, topic), self._offsets_in(group, topic)
        found = self.changes.progress(group, topic, membership, offsets)
        # Without a member since the restart, no queue is known: none is not all.
        is_through = found is not None and bool(offsets) and found.plan.is_through(offsets)
        if found is not None and is_through and (goes_back or not found.outdated):
            self.changes.end(group, topic)
            self.subscriptions.subscribe(group, topic, found.plan.new, wall_ms)

    def _offsets_in(self, group: str, topic: str) -> dict[int, int]:
        """Return the group's offset in every queue, -1 where it has none."""
        queues = range(self.memberships.get(group, topic).queues)
        return {queue: self.offsets.get(group, topic, queue) for queue in queues}

    def _drop(self, doomed: Callable[[tuple[str, str]], bool]) -> None:
        self.offsets.drop(doomed)
        self.moves.drop(doomed)
        self.memberships.drop(doomed)


def _reply(
    granted: Mapping[int, int], membership: Membership, plan: FilterPlan | None
) -> HeartbeatReply:
    known = membership.owners.epochs
    epochs = {queue: known[queue] for queue in granted}
    return HeartbeatReply(granted, len(membership.roster.members), plan, epochs=epochs)


def _read_with(
    subscription: Subscription, plan: FilterPlan | None, queue: int
) -> list[tuple[int, Subscription]]:
    """Return the filters of a queue, each with the offset from which it applies."""
    if plan is None or queue not in plan.switches:
        return [(0, subscription)]
    return [(0, plan.old), (plan.switches[queue], plan.new)]

"""Consumer groups: who is a member, who owns which queue, and how far a group has come.

Plain values and a plain object; time comes in with each call.

Invariants
  1. A queue has at most one owner in a group. It changes hands only after the old owner reported
     that it holds it no more, or was silent for ``SESSION_TIMEOUT_MS``.
  2. Only the owner's commits move a group's offset.
  3. Members of one group subscribe to a topic alike; a group without members may change.
  4. Who owns what outlives the coordinator: it is saved before the owner hears of it.
  5. A queue number of an app that owns its queues together belongs to one of its instances, in all
     topics and groups of the app.
  6. What filters did is counted once: members report sums, and only their growth is added.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from rocketray.errors import StreamError, SubscriptionConflictError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.filters.subscription import Subscription, describe_difference
from rocketray.names import RETRY_PREFIX, check_case_clash, check_group

from .filter_changes import FilterChanges, PlanProgress
from .group_offsets import GroupOffsets
from .group_views import GroupDescription, LiveSubscription
from .heartbeat import Heartbeat, HeartbeatReply
from .membership import Membership, app_share
from .offset_moves import OffsetMoves

__all__ = ["GroupRegistry"]


class GroupRegistry:
    """All groups of a cluster."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, dict[str, Subscription]] = {}
        self._since_ms: dict[tuple[str, str], int] = {}
        self.offsets = GroupOffsets()
        self.moves = OffsetMoves(self.offsets)
        self.changes = FilterChanges()
        self.broadcasts: set[tuple[str, str]] = set()  # whose members keep their offsets themselves
        self._memberships: dict[tuple[str, str], Membership] = {}
        self.groups_changed = False
        self._apps: dict[str, set[tuple[str, str]]] = {}  # where each app has, or had, members

    def heartbeat(
        self, beat: Heartbeat, queues: int, now_ms: int, wall_ms: int | None = None
    ) -> HeartbeatReply:
        """Take a member's report; answer which of the topic's *queues* it may read.

        *now_ms* is of a clock that never jumps, as everywhere here; *wall_ms*, when a new
        subscription counts as heard of, is of the one that people look at. A member that holds
        what is not its own, because it was taken for dead, has to give it up before it gets more.

        Raises:
            SubscriptionConflictError: living members of the group subscribe differently.
            StrategyConflictError: living members divide the queues in another way.
        """
        membership = self._memberships.setdefault((beat.group, beat.topic), Membership())
        if membership.is_late(beat):
            return HeartbeatReply({}, len(membership.members))  # nobody waits for it any more
        wall_ms = now_ms if wall_ms is None else wall_ms
        self._join(beat, membership, queues, now_ms, wall_ms)
        self._note_mode(beat)
        if beat.is_broadcast:
            return HeartbeatReply(dict.fromkeys(range(queues), -1), len(membership.members))
        self._take_offsets(beat, membership)
        lost = beat.held - membership.owned(beat.member)
        self.changes.take_proposals(beat, membership.owned(beat.member) & beat.held)
        self._settle_change(beat.group, beat.topic, membership, wall_ms)
        membership.give_up(beat)
        self.moves.carry_out(beat.group, beat.topic, membership)
        lost |= self.moves.waiting(beat.group, beat.topic)
        granted = {
            queue: self.offsets.get(beat.group, beat.topic, queue)
            for queue in sorted(self._share(beat, membership, now_ms) - lost)
            if membership.take(queue, beat.member)
        }
        plan = self.changes.get(beat.group, beat.topic)
        return HeartbeatReply(granted, len(membership.members), plan)

    def leave(self, beat: Heartbeat) -> None:
        """Take a member's last commits and give up what it owned."""
        membership = self._memberships.get((beat.group, beat.topic))
        if membership is None:
            return
        member = membership.members.get(beat.member)
        if member is None or member.instance != beat.instance:
            return
        membership.count(beat)
        if not beat.is_broadcast:
            self._take_offsets(beat, membership)
        membership.forget(beat.member)
        self.moves.carry_out(beat.group, beat.topic, membership)

    def subscription(self, group: str, topic: str) -> Subscription:
        """What a group subscribes to; raises :class:`StreamError` unless it reads the topic."""
        found = self._subscriptions.get(group, {}).get(topic)
        if found is None:
            raise StreamError(
                f"group {group!r} does not read topic {topic!r}; see: rocketray groups list"
            )
        return found

    def carry_out_moves(self, group: str, topic: str, now_ms: int) -> None:
        """Move the offsets that wait for a member that left or died meanwhile."""
        membership = self._memberships.get((group, topic))
        if membership is not None:
            membership.expire(now_ms)
        self.moves.carry_out(group, topic, membership)

    def needed_from(self, topic: str, queue: int) -> int | None:
        """The first queue offset that some group of *topic* has not finished; None without groups.

        A group without an offset needs everything: where it will begin is not known here. A
        broadcast group holds nothing: nobody knows how many members it has, and where they are.
        """
        groups = [
            group
            for group, topics in self._subscriptions.items()
            if topic in topics and (group, topic) not in self.broadcasts
        ]
        return min(
            (max(self.offsets.get(group, topic, queue), 0) for group in groups), default=None
        )

    def describe(self, queues: Mapping[str, int], now_ms: int) -> list[GroupDescription]:
        """All groups, an entry for each topic; *queues* says how many each topic has."""
        return [
            GroupDescription(
                group,
                topic,
                subscription,
                {queue: self.offsets.get(group, topic, queue) for queue in range(queues[topic])},
                {queue: self.offsets.start(group, topic, queue) for queue in range(queues[topic])},
                self.members(group, topic, now_ms),
                self.counters(group, topic),
                self._since_ms.get((group, topic), 0),
                self.changes.get(group, topic),
                self._pulled(group, topic),
                (group, topic) in self.broadcasts,
            )
            for group, topics in self._subscriptions.items()
            for topic, subscription in topics.items()
        ]

    def members(self, group: str, topic: str, now_ms: int) -> dict[str, list[int]]:
        """The living members and the queues that each owns."""
        membership = self._memberships.get((group, topic))
        if membership is None:
            return {}
        membership.expire(now_ms)
        return {name: sorted(membership.owned(name)) for name in membership.members}

    def _pulled(self, group: str, topic: str) -> dict[int, int]:
        membership = self._memberships.get((group, topic))
        return {} if membership is None else membership.pulled()

    def live_subscriptions(self, now_ms: int) -> list[LiveSubscription]:
        """The subscriptions that have members."""
        return [
            LiveSubscription(group, topic, subscription, self._since_ms.get((group, topic), 0))
            for group, topics in self._subscriptions.items()
            for topic, subscription in topics.items()
            if self.members(group, topic, now_ms)
        ]

    def counters(self, group: str, topic: str) -> FilterCounters:
        """What the filters of the group's members did, since this registry was made."""
        membership = self._memberships.get((group, topic))
        return NO_COUNTERS if membership is None else membership.counters

    def delete(self, group: str, now_ms: int) -> None:
        """Forget a group and its offsets.

        Raises:
            StreamError: there is no such group, or it has members.
        """
        if group not in self._subscriptions:
            raise StreamError(f"group {group!r} does not exist; see: rocketray groups list")
        for topic in self._subscriptions[group]:
            members = self.members(group, topic, now_ms)
            if members:
                raise StreamError(
                    f"group {group!r} has {len(members)} members on topic {topic!r}; stop them first"
                )
        self._drop(lambda key: key[0] == group)
        del self._subscriptions[group]
        self.groups_changed = True

    def keep_topics(self, kept: Container[str]) -> None:
        """Drop everything about topics that are not among *kept*: they were deleted."""
        self._drop(lambda key: key[1] not in kept)
        for topics in self._subscriptions.values():
            for topic in [topic for topic in topics if topic not in kept]:
                del topics[topic]
        self.groups_changed = True

    def groups_to_json(self) -> dict[str, Any]:
        """The subscriptions, in the form of RocketMQ's ``subscriptionGroup.json``."""
        return {
            "subscriptionGroupTable": {
                group: {
                    "groupName": group,
                    "consumeEnable": True,
                    "retryMaxTimes": 16,
                    "subscriptions": {
                        topic: {
                            **value.to_json(),
                            **self.changes.to_json(group, topic),
                            **({"broadcast": True} if (group, topic) in self.broadcasts else {}),
                            "subVersion": self._since_ms.get((group, topic), 0),
                        }
                        for topic, value in topics.items()
                    },
                }
                for group, topics in self._subscriptions.items()
            }
        }

    def offsets_to_json(self) -> dict[str, Any]:
        """The offsets, and the moves that wait, in the form of RocketMQ's ``consumerOffset.json``."""
        return {**self.offsets.to_json(), **self.moves.to_json()}

    @property
    def offsets_changed(self) -> bool:
        """What :meth:`offsets_to_json` says is to be saved."""
        return self.offsets.changed or self.moves.changed

    def offsets_saved(self) -> None:
        """What :meth:`offsets_to_json` said is on disk."""
        self.offsets.changed = self.moves.changed = False

    @property
    def owners_changed(self) -> bool:
        """Who is a member, or who owns what, is to be saved."""
        return any(membership.changed for membership in self._memberships.values())

    def owners_to_json(self) -> dict[str, Any]:
        """The members and what each owns."""
        return {
            f"{topic}@{group}": membership.to_json()
            for (group, topic), membership in self._memberships.items()
            if membership.members
        }

    def owners_saved(self) -> None:
        """What :meth:`owners_to_json` said is on disk."""
        for membership in self._memberships.values():
            membership.changed = False

    def load(
        self,
        groups: Mapping[str, Any] | None,
        offsets: Mapping[str, Any] | None,
        owners: Mapping[str, Any] | None,
        seen_ms: int,
    ) -> None:
        """Take the state that the three ``…_to_json`` methods wrote.

        ``subVersion`` is RocketMQ's name for the time of a subscription. Members were last heard
        of at *seen_ms*: from then on they have the session time to come back (invariant 4).
        """
        for group, value in (groups or {}).get("subscriptionGroupTable", {}).items():
            topics = value.get("subscriptions", {})
            self._subscriptions[check_group(group)] = {
                topic: Subscription.from_json(text) for topic, text in topics.items()
            }
            for topic, text in topics.items():
                self._since_ms[group, topic] = int(text.get("subVersion", 0))
                if text.get("broadcast"):
                    self.broadcasts.add((group, topic))
                self.changes.load(group, topic, text, self._subscriptions[group][topic])
        self.offsets.load(offsets or {})
        self.moves.load(offsets or {})
        for name, value in (owners or {}).items():
            topic, _, group = name.rpartition("@")
            try:
                membership = Membership.from_json(value, seen_ms)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise StreamError(
                    f"the members of group {group!r} on topic {topic!r} cannot be read ({error!r}); "
                    "restore config/consumerOwners.json, or remove it while no consumer runs"
                ) from None
            self._memberships[group, topic] = membership
            for app in membership.apps():
                self._apps.setdefault(app, set()).add((group, topic))

    def _join(
        self, beat: Heartbeat, membership: Membership, queues: int, now_ms: int, wall_ms: int
    ) -> None:
        membership.expire(now_ms)
        membership.check_strategy(beat)
        self._check_subscription(beat, membership, wall_ms)
        membership.queues = queues
        membership.see(beat, now_ms)
        if beat.together is not None:
            self._apps.setdefault(beat.together.app, set()).add((beat.group, beat.topic))

    def _share(self, beat: Heartbeat, membership: Membership, now_ms: int) -> set[int]:
        """The queues that the member should have now."""
        if beat.together is None:
            return membership.share(beat)
        memberships = [self._memberships[key] for key in self._apps[beat.together.app]]
        for each in memberships:
            each.expire(now_ms)
        return app_share(membership, beat.member, memberships, beat.together)

    def _note_mode(self, beat: Heartbeat) -> None:
        """Whether the group's members share the messages, which is saved with the groups."""
        key = beat.group, beat.topic
        if beat.is_broadcast != (key in self.broadcasts):
            self.broadcasts ^= {key}
            self.groups_changed = True

    def _take_offsets(self, beat: Heartbeat, membership: Membership) -> None:
        """Only what the member owns (invariant 2)."""
        owned = membership.owned(beat.member)
        for queue in owned & beat.starts.keys():
            self.offsets.begin(beat.group, beat.topic, queue, beat.starts[queue])
        for queue in owned & beat.commits.keys():
            self.offsets.commit(beat.group, beat.topic, queue, beat.commits[queue])

    def _check_subscription(self, beat: Heartbeat, membership: Membership, wall_ms: int) -> None:
        if beat.group not in self._subscriptions:
            check_group(beat.group)
            check_case_clash("group", beat.group, self._subscriptions)
        topics = self._subscriptions.setdefault(beat.group, {})
        existing, offered = topics.get(beat.topic), beat.subscription
        plan = self.changes.get(beat.group, beat.topic)
        if existing == offered or (plan is not None and plan.new == offered):
            return
        is_shared = any(name != beat.member for name in membership.members)
        if is_shared and beat.topic == RETRY_PREFIX + beat.group:
            return  # what waits there is read with the filter that its reader has
        if existing is not None and (is_shared or plan is not None):
            difference = describe_difference(existing, offered)
            raise SubscriptionConflictError(
                beat.group, beat.topic, str(existing), str(offered), difference
            )
        self._subscribe(beat.group, beat.topic, offered, wall_ms)

    def _subscribe(self, group: str, topic: str, subscription: Subscription, wall_ms: int) -> None:
        self._subscriptions[group][topic] = subscription
        key = group, topic
        self._since_ms[key] = max(wall_ms, self._since_ms.get(key, -1) + 1)  # clocks go back
        self.groups_changed = True

    def progress(self, group: str, topic: str, now_ms: int) -> PlanProgress | None:
        """How far the group is on its way to another subscription; None when it is on none."""
        membership = self._memberships.get((group, topic))
        if membership is not None:
            membership.expire(now_ms)
        queues = range(0 if membership is None else membership.queues)
        offsets = {queue: self.offsets.get(group, topic, queue) for queue in queues}
        return self.changes.progress(group, topic, membership, offsets)

    def _settle_change(self, group: str, topic: str, membership: Membership, wall_ms: int) -> None:
        """End a change that every queue and every member is through with."""
        offsets = {q: self.offsets.get(group, topic, q) for q in range(membership.queues)}
        found = self.changes.progress(group, topic, membership, offsets)
        if found is not None and found.plan.is_through(offsets) and not found.outdated:
            self.changes.end(group, topic)
            self._subscribe(group, topic, found.plan.new, wall_ms)

    def _drop(self, doomed: Callable[[tuple[str, str]], bool]) -> None:
        self.offsets.drop(doomed)
        self.moves.drop(doomed)
        self.changes.drop(doomed)
        self.broadcasts -= {key for key in self.broadcasts if doomed(key)}
        for key in [key for key in self._memberships if doomed(key)]:
            del self._memberships[key]
        for keys in self._apps.values():
            keys -= {key for key in keys if doomed(key)}
        for key in [key for key in self._since_ms if doomed(key)]:
            del self._since_ms[key]

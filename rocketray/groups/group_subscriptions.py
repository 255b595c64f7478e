"""The subscriptions of all groups, their times, and whether the members share the messages.

Invariants
  1. The members of one group have the same subscription to a topic.
  2. A group without members may change it. A group with members changes it by a plan
     (filter_plans.py).
  3. The name of a filter is not part of it (subscription.py). A group has the name that its first
     member gave, or the first one with a name.
  4. A group reads its own retry topic without a filter, because each message in it was matched
     before. A member of an earlier release may still ask for one there; it is not taken.
  5. A change that leaves the text of the filter as it is, as an upgrade to a release with another
     default dialect does, is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rocketray.base.names import check_case_clash, check_group, is_retry_topic
from rocketray.errors import StreamError, SubscriptionConflictError
from rocketray.filters.subscription import EVERYTHING, Subscription, describe_difference

from .filter_plans import FilterChanges
from .heartbeat import Heartbeat

_LOG = logging.getLogger(__name__)


class GroupSubscriptions:
    """The subscriptions by group and topic; ``changed`` means that they have to be saved."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, dict[str, Subscription]] = {}
        self._since_ms: dict[tuple[str, str], int] = {}
        self._changed = False
        self.changes = FilterChanges()
        self.broadcasts: set[tuple[str, str]] = set()  # the members keep the offsets

    def __iter__(self) -> Iterator[tuple[str, str, Subscription]]:
        """Iterate over the (group, topic, subscription) triples."""
        for group, topics in self._subscriptions.items():
            for topic, subscription in topics.items():
                yield group, topic, subscription

    def find(self, group: str, topic: str) -> Subscription | None:
        """Return a group's subscription, None if it does not read the topic."""
        return self._subscriptions.get(group, {}).get(topic)

    def get(self, group: str, topic: str) -> Subscription:
        """Return a group's subscription; raise :class:`StreamError` unless it reads the topic."""
        found = self.find(group, topic)
        if found is None:
            raise StreamError(
                f"group {group!r} does not read topic {topic!r}; see: rocketray groups list"
            )
        return found

    def since_ms(self, group: str, topic: str) -> int:
        """Return when the subscription was first known, in milliseconds since 1970; 0 if never."""
        return self._since_ms.get((group, topic), 0)

    def sharing(self, topic: str) -> list[str]:
        """Return the groups that read *topic* and share its messages among their members."""
        return [
            group
            for group, topics in self._subscriptions.items()
            if topic in topics and (group, topic) not in self.broadcasts
        ]

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that a group reads; raise :class:`StreamError` if it is unknown."""
        if group not in self._subscriptions:
            raise StreamError(f"group {group!r} does not exist; see: rocketray groups list")
        return list(self._subscriptions[group])

    def take_subscription(self, beat: Heartbeat, *, is_shared: bool, wall_ms: int) -> None:
        """Take a member's subscription; *is_shared* says that the group has other members.

        Raises:
            SubscriptionConflictError: other members subscribe differently.
        """
        topics = self._enter(beat.group)
        if is_retry_topic(beat.topic, beat.group):
            beat = replace(beat, subscription=EVERYTHING)
        existing, offered = topics.get(beat.topic), beat.subscription
        plan = self.changes.get(beat.group, beat.topic)
        if existing == offered:
            self._take_name(beat, is_shared=is_shared)
            return
        if plan is not None and plan.new == offered:
            return  # a member that was updated already; it reads as the plan says
        if existing is not None and (is_shared or plan is not None):
            difference = describe_difference(existing, offered)
            raise SubscriptionConflictError(
                beat.group, beat.topic, str(existing), str(offered), difference
            )
        if existing is not None and existing.expression == offered.expression:
            # The text is the same: an upgrade changed the default.
            difference = describe_difference(existing, offered)
            where = f"group {beat.group!r}, topic {beat.topic!r}"
            _LOG.warning("%s: its filter changed: %s", where, difference)
        self.subscribe(beat.group, beat.topic, offered, wall_ms)

    def _take_name(self, beat: Heartbeat, *, is_shared: bool) -> None:
        """Take the name of a filter that the group has: from a member alone, or if it has none."""
        topics, offered = self._subscriptions[beat.group], beat.subscription
        named = topics[beat.topic].named
        if is_shared and (named or not offered.named):
            return
        if offered.named != named:
            topics[beat.topic] = offered
            self._changed = True

    def add(self, group: str, topic: str, subscription: Subscription, wall_ms: int) -> None:
        """Let a group without members there read *topic*; it may be a new group.

        Raises:
            InvalidNameError: the name of the group is not valid, or differs from that of another
                group in its case only.
        """
        self._enter(group)
        self.subscribe(group, topic, subscription, wall_ms)

    def _enter(self, group: str) -> dict[str, Subscription]:
        """Return the subscriptions of a group by topic; a new group has none."""
        if group not in self._subscriptions:
            check_group(group)
            check_case_clash("group", group, self._subscriptions)
        return self._subscriptions.setdefault(group, {})

    def subscribe(self, group: str, topic: str, subscription: Subscription, wall_ms: int) -> None:
        """Set the group's subscription from now on; its time is later than that of the last one."""
        self._subscriptions[group][topic] = subscription
        key = group, topic
        self._since_ms[key] = max(wall_ms, self._since_ms.get(key, -1) + 1)  # clocks go back
        self._changed = True

    def note_mode(self, beat: Heartbeat) -> None:
        """Note whether the group's members share the messages, which is saved with the groups."""
        key = beat.group, beat.topic
        if beat.is_broadcast != (key in self.broadcasts):
            self.broadcasts ^= {key}
            self._changed = True

    def delete(self, group: str) -> None:
        """Remove a group, with its plans; one of the same name begins as a new group."""
        self._drop(lambda key: key[0] == group)
        del self._subscriptions[group]

    def keep_topics(self, kept: Container[str]) -> None:
        """Remove the subscriptions to topics that are not among *kept*."""
        self._drop(lambda key: key[1] not in kept)
        for topics in self._subscriptions.values():
            for topic in [topic for topic in topics if topic not in kept]:
                del topics[topic]

    @property
    def changed(self) -> bool:
        """Whether the result of :meth:`to_json` has to be saved."""
        return self._changed or self.changes.changed

    def saved(self) -> None:
        """Note that the result of :meth:`to_json` is on disk."""
        self._changed = self.changes.changed = False

    def to_json(self) -> dict[str, Any]:
        """Return the subscriptions in the form of RocketMQ's ``subscriptionGroup.json``."""
        return {
            "subscriptionGroupTable": {
                group: {
                    "groupName": group,
                    "consumeEnable": True,
                    "subscriptions": {
                        topic: {
                            **value.to_json(),
                            **self.changes.to_json(group, topic),
                            **({"broadcast": True} if (group, topic) in self.broadcasts else {}),
                            "subVersion": self.since_ms(group, topic),
                        }
                        for topic, value in topics.items()
                    },
                }
                for group, topics in self._subscriptions.items()
            }
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Load the result of :meth:`to_json`; ``subVersion`` is RocketMQ's name for the time."""
        for group, found in value.get("subscriptionGroupTable", {}).items():
            topics = found.get("subscriptions", {})
            self._subscriptions[check_group(group)] = {
                topic: EVERYTHING if is_retry_topic(topic, group) else Subscription.from_json(text)
                for topic, text in topics.items()
            }
            for topic, text in topics.items():
                self._since_ms[group, topic] = int(text.get("subVersion", 0))
                if text.get("broadcast"):
                    self.broadcasts.add((group, topic))
                self.changes.load(group, topic, text, self._subscriptions[group][topic])

    def _drop(self, doomed: Callable[[tuple[str, str]], bool]) -> None:
        self.changes.drop(doomed)
        self.broadcasts -= {key for key in self.broadcasts if doomed(key)}
        for key in [key for key in self._since_ms if doomed(key)]:
            del self._since_ms[key]
        self._changed = True

"""The memberships of all groups, by group and topic, and the apps that own queues together.

Saved as one table of the groups' snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rocketray.errors import StreamError
from rocketray.filters.counters import FilterCounters

from .heartbeat import Heartbeat
from .membership import Membership

__all__ = ["Memberships"]

_MEMBERSHIPS = "memberships"


class Memberships:
    """The members and the queue owners of all groups."""

    def __init__(self) -> None:
        self._memberships: dict[tuple[str, str], Membership] = {}
        self._apps: dict[str, set[tuple[str, str]]] = {}  # where each app has, or had, members
        self._has_dropped = False  # since the last save

    def get(self, group: str, topic: str) -> Membership:
        """Return a membership, which is empty if no member has joined."""
        return self._memberships.get((group, topic)) or Membership()

    def living(self, group: str, topic: str, now_ms: int) -> Membership:
        """Return a membership without the members that were silent for too long."""
        membership = self.get(group, topic)
        membership.expire(now_ms)
        return membership

    def join(self, beat: Heartbeat, membership: Membership, now_ms: int) -> None:
        """Let the sender of *beat* be a member of *membership* from now on."""
        key = beat.group, beat.topic
        self._memberships[key] = membership
        membership.see(beat, now_ms)
        if beat.together is not None:
            self._apps.setdefault(beat.together.app, set()).add(key)

    def of_app(self, app: str, now_ms: int) -> list[Membership]:
        """Return the memberships of an app, as :meth:`living`."""
        return [self.living(*key, now_ms) for key in self._apps[app]]

    def counters(self, group: str, topic: str) -> FilterCounters:
        """Return the filter counters of a group's members since the coordinator started."""
        return self.get(group, topic).counters

    def excuse(self, silent_ms: int) -> None:
        """Extend all sessions by *silent_ms*, during which no report could arrive."""
        for membership in self._memberships.values():
            for member in membership.roster.every.values():
                member.seen_ms += silent_ms

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
        return self._has_dropped or any(each.changed for each in self._memberships.values())

    def saved(self) -> None:
        """Note that the result of :meth:`to_json` is on disk."""
        self._has_dropped = False
        for membership in self._memberships.values():
            membership.saved()

    def to_json(self) -> dict[str, Any]:
        """Return the members and the owners: ``{"memberships": {"topic@group": …}}``."""
        return {
            _MEMBERSHIPS: {
                f"{topic}@{group}": membership.to_json()
                for (group, topic), membership in self._memberships.items()
                if membership.roster.every
            }
        }

    def load(self, tables: Mapping[str, Any], seen_ms: int) -> None:
        """Load the result of :meth:`to_json`; all members count as seen at *seen_ms*.

        Raises:
            StreamError: the value has another form.
        """
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

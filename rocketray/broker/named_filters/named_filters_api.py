"""The coordinator's service for named filters."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME, Endpoint

from .filter_book import NamedFilter


class SavedFilter(NamedTuple):
    """The latest version of a filter, and whether the call made it."""

    filter: NamedFilter
    is_new: bool


class FilterUse(NamedTuple):
    """A group that subscribes to a topic with a version of a named filter.

    ``members`` is how many of its members live. With ``is_coming`` it is about to change to it.
    """

    group: str
    name: str
    version: int
    members: int
    is_coming: bool = False


class GroupFilter(NamedTuple):
    """What a member of a group subscribes with if it asks for a filter by name.

    ``latest`` is the latest version of the filter, as ``large@3``. ``before`` is the version of it
    that the group has read, if the member's is another one, and no change says so; else empty.
    """

    subscription: Subscription
    latest: str
    before: str = ""


class NamedFiltersApi(Protocol):
    """The calls about named filters; see ``NamedFilters``."""

    def save(
        self, topic: str, name: str, subscription: Subscription, note: str = "", who: str = ""
    ) -> SavedFilter:
        """Save *subscription* as the next version of filter *name* of a topic; durable on return.

        If the latest version is the same filter, there is no new one, and its note stays. Groups
        are not changed: see :meth:`for_group`.

        Raises:
            TopicNotFoundError: there is no such topic.
            FilterSyntaxError: it does not parse. PredicateError: its predicate is not allowed.
            ConfigError: SQL92 is switched off, the name or the note is invalid, or there is no
                room.
        """

    def all(self, topic: str) -> list[NamedFilter]:
        """Return the latest version of each filter of a topic, by name."""

    def versions(self, topic: str, name: str) -> list[NamedFilter]:
        """Return all versions of a filter, oldest first; raise :class:`ConfigError` for none."""

    def get(self, topic: str, name: FilterName) -> NamedFilter:
        """Return a version of a filter, by default the latest; raise as :meth:`versions`."""

    def uses(self, topic: str) -> list[FilterUse]:
        """Return which groups use which filters of a topic."""

    def for_group(self, group: str, topic: str, name: FilterName) -> GroupFilter:
        """Return what a member of *group* that asks for a filter by name subscribes with.

        A name with a version is that one. Without a version it is the one that the group reads
        now, or switches to, if that is a version of the same filter and the group has members; else
        the latest one. So members of one group that start at different times subscribe alike.

        Raises:
            TopicNotFoundError, ConfigError: there is no such topic, filter or version.
        """

    def remove(self, topic: str, name: str, *, force: bool = False) -> list[FilterUse]:
        """Remove a filter with all its versions, whose numbers are not used again.

        Groups that use it keep the filter as it is; *force* removes it in spite of them. Return
        those groups.

        Raises:
            ConfigError: there is no such filter, or a group uses it, without *force*.
        """


NAMED_FILTERS = Endpoint(COORDINATOR_NAME, NamedFiltersApi)

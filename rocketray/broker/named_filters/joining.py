"""Joining a group with a filter that is given by its name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from rocketray.errors import SubscriptionConflictError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription

from .named_filters_api import GroupFilter, NamedFiltersApi

_LOG = logging.getLogger(__name__)
_MemberT = TypeVar("_MemberT")
_ATTEMPTS_MAX = 5  # each that fails means that the group has changed its filter meanwhile


def join_by_filter(
    filters: NamedFiltersApi,
    group: str,
    topic: str,
    chosen: Subscription | FilterName,
    join: Callable[[Subscription], _MemberT],
) -> _MemberT:
    """Return the member that *join* makes; a filter's name is looked up for its group.

    Between the look-up and the join, another member may be the first of the group, with a version
    that was saved meanwhile, or the group may switch: then both are done again.

    Raises:
        TopicNotFoundError, ConfigError: there is no such topic, filter or version.
        SubscriptionConflictError: the group's members subscribe differently.
    """
    if not isinstance(chosen, FilterName):
        return join(chosen)
    named = filters.for_group(group, topic, chosen)
    for _ in range(_ATTEMPTS_MAX):
        try:
            member = join(named.subscription)
        except SubscriptionConflictError:
            now = filters.for_group(group, topic, chosen)
            if now.subscription == named.subscription:
                raise
            named = now
        else:
            _tell(group, topic, chosen, named)
            return member
    return join(named.subscription)  # its error, if any, is the caller's


def _tell(group: str, topic: str, chosen: FilterName, found: GroupFilter) -> None:
    """Log that a group has another version than before, or not the latest one."""
    named = found.subscription.named
    if found.before:
        said = "group %s reads topic %s with filter %s from now on; it read with %s before"
        _LOG.warning(said, group, topic, named, found.before)
    elif chosen.version is None and named != found.latest:
        _LOG.info(
            "group %s reads topic %s with filter %s, and %s is the latest; to switch the group: "
            "rocketray groups migrate %s %s --filter %s",
            *(group, topic, named, found.latest, group, topic, found.latest),
        )

"""Joining a group with a filter that is given by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rocketray.errors import SubscriptionConflictError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription

from .named_filters_api import NamedFiltersApi

__all__ = ["join_by_filter"]

_MemberT = TypeVar("_MemberT")
_ATTEMPTS_MAX = 5


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
    subscription = filters.for_group(group, topic, chosen)
    for _ in range(_ATTEMPTS_MAX - 1):
        try:
            return join(subscription)
        except SubscriptionConflictError:
            now = filters.for_group(group, topic, chosen)
            if now == subscription:
                raise
            subscription = now
    return join(subscription)

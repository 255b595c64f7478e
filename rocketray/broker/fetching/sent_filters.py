"""Filters that other machines send to the fetch service of a disk: they parse."""

from __future__ import annotations

from typing import Annotated

from rocketray.errors import ConfigError
from rocketray.filters.subscription import Subscription


def _parses(subscription: Subscription) -> Subscription:
    subscription.check_text()
    return subscription


def _has_no_predicate(subscription: Subscription) -> Subscription:
    if subscription.expression_type == "CLASS":  # users' code, for which it has no thread
        raise ConfigError("the fetch service runs no predicates; filter by tags or sql")
    return subscription


SentFilter = Annotated[Subscription, _parses]
SentTextFilter = Annotated[SentFilter, _has_no_predicate]
"""A filter by tags or SQL92."""

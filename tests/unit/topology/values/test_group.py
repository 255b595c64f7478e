from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rocketray.errors import (
    ConfigError,
    InvalidNameError,
    StrategyConflictError,
    SubscriptionConflictError,
)
from rocketray.filters.subscription import Subscription
from rocketray.topology.values.group import DeclaredGroups, GroupMembership, make_start

PAY = Subscription.tags("pay")


def test_members_of_a_group_subscribe_alike() -> None:
    registry = DeclaredGroups()
    registry.join(GroupMembership("g", PAY), ["T"])
    registry.join(GroupMembership("g", Subscription.tags("pay")), ["T"])
    registry.join(GroupMembership("other", Subscription.tags("order")), ["T"])
    with pytest.raises(SubscriptionConflictError, match=r"'pay'.*'order'"):
        registry.join(GroupMembership("g", Subscription.tags("order")), ["T"])


def test_members_of_a_group_divide_the_queues_alike() -> None:
    registry = DeclaredGroups()
    registry.join(GroupMembership("g", PAY, strategy="sticky"), ["T"])
    with pytest.raises(StrategyConflictError, match=r"'sticky'.*asks for strategy 'averagely'"):
        registry.join(GroupMembership("g", PAY), ["T"])


def test_members_of_a_group_read_the_same_topics() -> None:
    registry = DeclaredGroups()
    registry.join(GroupMembership("g", PAY), ["T", "U"])
    with pytest.raises(SubscriptionConflictError, match=r"'U'.*asks for no subscription"):
        registry.join(GroupMembership("g", PAY), ["T"])
    with pytest.raises(SubscriptionConflictError, match=r"with no subscription"):
        registry.join(GroupMembership("g", PAY), ["T", "U", "V"])


def test_group_names_are_checked() -> None:
    with pytest.raises(InvalidNameError):
        DeclaredGroups().join(GroupMembership("has.dot", PAY), ["T"])


def test_members_of_a_group_agree_on_what_becomes_of_errors() -> None:
    registry = DeclaredGroups()
    path = "support.predicates:is_even"
    registry.join(GroupMembership("g", Subscription.where(path, "skip")), ["T"])
    with pytest.raises(SubscriptionConflictError, match="on an error: skip"):
        registry.join(GroupMembership("g", Subscription.where(path)), ["T"])
    assert registry.predicates() == (path,)


def test_a_group_begins_at_one_of_the_ends_or_at_a_time() -> None:
    assert make_start("latest") == "latest"
    assert make_start(None) is None
    assert make_start(datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)) == 1_700_000_000_000
    assert make_start(datetime(1900, 1, 1, tzinfo=UTC)) == 0
    with pytest.raises(ConfigError, match="start is 'yesterday'"):
        make_start("yesterday")  # type: ignore[arg-type]

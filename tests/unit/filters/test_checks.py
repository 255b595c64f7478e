"""The order of the checks, and that the first one that fails is the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketray.filters.checks import (
    CheckStatus,
    FilterKnowledge,
    FilterRequest,
    GroupKnowledge,
    check_subscription,
)
from rocketray.filters.consumer_filter_data import ConsumerFilterData
from rocketray.filters.subscription import Subscription

SQL = Subscription.sql("a > 5")
TAGS = Subscription.tags("pay")
FILTER = ConsumerFilterData(
    "g", "T", Subscription.sql("a > 5"), (1, 2, 3), 112, 1000, client_version=7
)
BY_SQL = GroupKnowledge({"T": (SQL, 7)})
ALL_GOOD = FilterKnowledge(BY_SQL, FILTER)
REGISTERED = FilterRequest("g", "T", version=7)


def status(request: FilterRequest, known: FilterKnowledge) -> CheckStatus | None:
    refusal = check_subscription(request, known)
    assert refusal is None or refusal.remark
    return None if refusal is None else refusal.status


def own(subscription: Subscription) -> FilterRequest:
    return FilterRequest("g", "T", subscription, 7)


@pytest.mark.parametrize("subscription", [SQL, TAGS, Subscription.where("a:f")], ids=str)
def test_a_subscription_that_comes_along_needs_no_heartbeat(subscription: Subscription) -> None:
    assert status(own(subscription), FilterKnowledge()) is None


@pytest.mark.parametrize(
    "wrong", [Subscription.sql("a >"), Subscription.tags("||"), Subscription.where("a")], ids=str
)
def test_one_that_does_not_parse_is_refused_and_lets_nothing_through(wrong: Subscription) -> None:
    refusal = check_subscription(own(wrong), FilterKnowledge(property_filter=False))
    assert refusal is not None
    assert str(refusal).startswith("SUBSCRIPTION_PARSE_FAILED (23): ")


def test_a_registered_group_is_filtered_for() -> None:
    assert status(REGISTERED, ALL_GOOD) is None
    assert status(replace(REGISTERED, version=3), ALL_GOOD) is None
    by_tags = FilterKnowledge(GroupKnowledge({"T": (TAGS, 7)}), property_filter=False)
    assert status(REGISTERED, by_tags) is None


def test_the_first_check_that_fails_is_the_answer() -> None:
    """From all wrong to all right, one step at a time, in RocketMQ's order."""
    request = FilterRequest("g", "T", version=9)
    known = FilterKnowledge(None, None, broadcast_allowed=False, property_filter=False)
    assert status(request, known) is CheckStatus.SUBSCRIPTION_NOT_EXIST
    known = replace(known, group=GroupKnowledge(is_broadcasting=True))
    assert status(request, known) is CheckStatus.NO_PERMISSION
    known = replace(known, broadcast_allowed=True)
    assert status(request, known) is CheckStatus.SUBSCRIPTION_NOT_EXIST
    known = replace(known, group=BY_SQL)
    assert status(request, known) is CheckStatus.SUBSCRIPTION_NOT_LATEST
    known = replace(known, group=GroupKnowledge({"T": (SQL, 9)}))
    assert status(request, known) is CheckStatus.FILTER_DATA_NOT_EXIST
    known = replace(known, registered=FILTER)
    assert status(request, known) is CheckStatus.FILTER_DATA_NOT_LATEST
    known = replace(known, registered=replace(FILTER, client_version=9))
    assert status(request, known) is CheckStatus.SYSTEM_ERROR
    assert status(request, replace(known, property_filter=True)) is None


def test_the_codes_are_rocketmqs() -> None:
    assert {each.name: each.value for each in CheckStatus} == {
        "SYSTEM_ERROR": 1,
        "NO_PERMISSION": 16,
        "SUBSCRIPTION_PARSE_FAILED": 23,
        "SUBSCRIPTION_NOT_EXIST": 24,
        "SUBSCRIPTION_NOT_LATEST": 25,
        "FILTER_DATA_NOT_EXIST": 27,
        "FILTER_DATA_NOT_LATEST": 28,
    }

"""Bitmaps are ordered where they pay, and filters registered when all shards know them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketray.broker.filtering.bitmap_orders import AUTO_GROUPS, BitmapBoard, BitmapOrder
from rocketray.broker.topics.catalog import BitmapMode, TopicConfig
from rocketray.filters.consumer_filter_data import ConsumerFilterData
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.groups.group_descriptions import LiveSubscription

SELECTIVE = FilterCounters(scanned=20_000, bloom_rejected=17_000, sql_rejected=2_000, delivered=900)
GREEDY = FilterCounters(scanned=20_000, sql_rejected=10_000, delivered=10_000)
NEW = FilterCounters(scanned=100, sql_rejected=100)


def topic(mode: BitmapMode, name: str = "T") -> TopicConfig:
    return TopicConfig(name, 1, (("10.0.0.1", 10911),), "0" * 32, bitmaps=mode)


def sql(group: str, expression: str = "a > 1") -> LiveSubscription:
    return LiveSubscription(group, "T", Subscription.sql(expression), 7)


def groups(count: int) -> list[LiveSubscription]:
    return [sql(f"group-{number}") for number in range(count)]


def ordered(
    board: BitmapBoard,
    one: TopicConfig,
    living: list[LiveSubscription],
    counters: FilterCounters = SELECTIVE,
) -> BitmapOrder | None:
    orders = board.orders({one.name: one}, living, lambda _group, _topic: counters)
    return orders[0] if orders else None


def answer(
    living: list[LiveSubscription] | tuple[LiveSubscription, ...], born_ms: int
) -> dict[str, ConsumerFilterData]:
    return {
        one.group: ConsumerFilterData(one.group, "T", one.subscription, (1, 2, 3), 112, born_ms)
        for one in living
    }


@pytest.mark.parametrize(
    ("count", "counters", "wanted"),
    [
        (AUTO_GROUPS, SELECTIVE, True),
        (AUTO_GROUPS - 1, SELECTIVE, False),
        (2 * AUTO_GROUPS, GREEDY, False),
        (2 * AUTO_GROUPS, NEW, False),
    ],
)
def test_auto_keeps_bitmaps_for_many_groups_that_leave_most_messages_out(
    count: int, counters: FilterCounters, *, wanted: bool
) -> None:
    order = ordered(BitmapBoard([]), topic("auto"), groups(count), counters)
    assert (order is not None and order.living is not None) == wanted


def test_auto_goes_on_with_half_of_the_groups_and_ends_below() -> None:
    board = BitmapBoard([])
    assert ordered(board, topic("auto"), groups(AUTO_GROUPS)) is not None
    half = groups(AUTO_GROUPS // 2)
    assert ordered(board, topic("auto"), half) == BitmapOrder(topic("auto"), tuple(half))
    last = ordered(board, topic("auto"), half[1:])
    assert last == BitmapOrder(topic("auto"), None)
    assert ordered(board, topic("auto"), groups(AUTO_GROUPS - 1)) == last  # until it is confirmed
    board.take_answers(last, [{}])
    assert ordered(board, topic("auto"), groups(AUTO_GROUPS - 1)) is None


def test_on_and_off_are_the_operators_word() -> None:
    tags = LiveSubscription("tags", "T", Subscription.tags("a"), 1)
    order = ordered(BitmapBoard([]), topic("on"), [tags, *groups(1)], NEW)
    assert order == BitmapOrder(topic("on"), tuple(groups(1)))
    assert ordered(BitmapBoard([]), topic("off"), groups(100)) is None


def test_an_internal_topic_keeps_none_by_itself() -> None:
    internal = replace(topic("auto"), internal=True)
    assert ordered(BitmapBoard([]), internal, groups(100)) is None


def test_shards_that_may_still_keep_bitmaps_are_told_to_end() -> None:
    board = BitmapBoard([topic("auto")])  # an earlier coordinator may have ordered them
    order = ordered(board, topic("auto"), groups(1))
    assert order == BitmapOrder(topic("auto"), None)
    assert board.known(groups(1)) == ([], {})
    board.take_answers(order, None)  # a shard is away
    assert board.known(groups(1)) == ([], {})
    board.take_answers(order, [{}])
    assert board.known(groups(1)) == (groups(1), {})


def test_a_filter_is_registered_when_every_shard_knows_it_and_born_with_the_last() -> None:
    board = BitmapBoard([])
    living = groups(2)
    order = ordered(board, topic("on"), living)
    assert order is not None
    assert board.known(living) == ([], {})
    board.take_answers(order, [answer(living, 5), answer(living[:1], 9)])
    assert board.known(living) == (living[:1], {("T", "group-0"): 9})
    board.take_answers(order, [answer(living, 5), answer(living, 9)])
    assert board.known(living)[0] == living
    board.take_answers(order, None)  # what they knew they know
    assert board.known(living)[0] == living
    changed = [sql("group-0", "a > 2"), living[1]]
    assert board.known(changed)[0] == changed[1:]
    theirs = LiveSubscription("group-0", "T", Subscription.sql("a > 1", "rocketmq"), 7)
    assert board.known([theirs, living[1]])[0] == living[1:], "another dialect is another filter"


def test_an_answer_that_comes_late_changes_nothing() -> None:
    board = BitmapBoard([])
    on = ordered(board, topic("on"), groups(1))
    off = ordered(board, topic("off"), groups(1))
    assert on is not None
    assert off == BitmapOrder(topic("off"), None)
    board.take_answers(on, [answer(groups(1), 5)])
    assert board.known(groups(1)) == ([], {})


def test_a_deleted_topic_is_forgotten() -> None:
    board = BitmapBoard([])
    assert ordered(board, topic("on"), groups(1)) is not None
    assert ordered(board, topic("off", "Other"), []) is None
    assert board.known(groups(1)) == (groups(1), {})


def test_other_subscriptions_are_of_no_concern() -> None:
    board = BitmapBoard([])
    tags = LiveSubscription("tags", "T", Subscription.tags("a"), 1)
    assert ordered(board, topic("on"), [tags]) is not None
    assert board.known([tags]) == ([tags], {})

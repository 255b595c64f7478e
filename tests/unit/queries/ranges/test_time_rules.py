"""A query starts and ends at the first message of a time, in each queue."""

from __future__ import annotations

import pytest

from rocketray.broker.fetching.read_plan import Bounds, QueueKey
from rocketray.errors import ConfigError
from rocketray.queries.ranges.offset_rules import EARLIEST, LATEST, OffsetRule
from rocketray.queries.ranges.time_rules import TimeRule, offsets_at

pytestmark = pytest.mark.proves(
    "spark",
    "The options `startingTimestamp`, `startingOffsetsByTimestamp`, "
    "`startingOffsetsByTimestampStrategy`, `endingTimestamp` and "
    "`endingOffsetsByTimestamp`",
)

BOUNDS = {("T", 0): Bounds(5, 20), ("T", 1): Bounds(0, 10), ("U", 0): Bounds(0, 0)}


def find(key: QueueKey, held: Bounds, time_ms: int) -> int | None:
    """A message is stored every ten milliseconds, the first of a queue at 100."""
    found = held.minimum + max(-(-(time_ms - 100) // 10), 0)
    return found if found < held.visible else None


def test_a_time_of_all_queues_is_an_offset_of_each() -> None:
    rule = TimeRule("startingTimestamp", 125, {}, EARLIEST)

    assert offsets_at(rule, BOUNDS, find) == OffsetRule(
        EARLIEST, {("T", 0): 8, ("T", 1): 3, ("U", 0): LATEST}
    )


def test_queues_without_a_time_follow_the_rule_of_the_others() -> None:
    rule = TimeRule("endingOffsetsByTimestamp", None, {("T", 1): 100}, LATEST)

    assert offsets_at(rule, BOUNDS, find) == OffsetRule(LATEST, {("T", 1): 0})


def test_a_queue_without_a_message_so_late_is_an_error_if_the_rule_is_strict() -> None:
    rule = TimeRule("startingTimestamp", 240, {}, EARLIEST, is_strict=True)

    with pytest.raises(
        ConfigError, match=r"'T' queue 1 has no message .* at 240 .*Strategy=latest"
    ):
        offsets_at(rule, BOUNDS, find)


def test_an_unknown_queue_is_an_error() -> None:
    rule = TimeRule("startingOffsetsByTimestamp", None, {("T", 7): 1}, EARLIEST)

    with pytest.raises(ConfigError, match="startingOffsetsByTimestamp names queue 7 of topic 'T'"):
        offsets_at(rule, BOUNDS, find)


def test_messages_that_are_deleted_meanwhile_give_the_first_that_is_left() -> None:
    rule = TimeRule("startingTimestamp", 1, {}, EARLIEST)

    found = offsets_at(rule, {("T", 0): Bounds(5, 20)}, lambda *_: 3)
    assert found.named == {("T", 0): 5}

"""Messages that are not finished for too long."""

from __future__ import annotations

import pytest
from support.nodes.batches import list_batch

from rocketray.topology.delivery.delivery import Delivery, split
from rocketray.topology.delivery.overdue import CONSUME_TIMEOUT_MS, OverdueWatch


def manual(count: int) -> Delivery:
    """A delivery that its handler passed without acknowledging anything."""
    (delivery,) = split(list_batch([*range(5, 5 + count)]), 1)
    delivery.acks.require(delivery.cursor)
    delivery.cursor = count
    return delivery


@pytest.mark.proves("delivery", "A message held too long is logged once")
def test_a_message_that_is_held_too_long_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    (delivery,) = split(list_batch([5, 6]), 1)
    watch = OverdueWatch("g")
    delivery.is_active = True
    for now_ms in (0, CONSUME_TIMEOUT_MS - 1, CONSUME_TIMEOUT_MS, CONSUME_TIMEOUT_MS * 2):
        assert watch.find_overdue([delivery], now_ms) == []
    assert watch.count == 1
    assert "topic T queue 0 offset 5 is not finished for 15 minutes" in caplog.text
    delivery.cursor = 1  # another message, which begins now
    watch.find_overdue([delivery], CONSUME_TIMEOUT_MS * 2)
    delivery.is_active = False
    watch.find_overdue([delivery], CONSUME_TIMEOUT_MS * 9)
    assert watch.count == 1


@pytest.mark.proves("delivery", "A message that is not acknowledged in time is sent back once")
def test_a_message_that_was_passed_and_not_acknowledged_in_time_comes_out_once() -> None:
    delivery, watch = manual(3), OverdueWatch("g")
    assert watch.find_overdue([delivery], 0) == []
    delivery.acks.acknowledge(1)
    assert watch.find_overdue([delivery], CONSUME_TIMEOUT_MS - 1) == []
    assert watch.find_overdue([delivery], CONSUME_TIMEOUT_MS) == [(delivery, 0), (delivery, 2)]
    assert watch.find_overdue([delivery], CONSUME_TIMEOUT_MS * 2) == []
    assert watch.count == 2


def test_a_message_of_a_queue_that_was_taken_away_is_left_to_the_next_owner() -> None:
    delivery, watch = manual(1), OverdueWatch("g")
    watch.find_overdue([delivery], 0)
    delivery.is_withdrawn = True
    assert watch.find_overdue([delivery], CONSUME_TIMEOUT_MS) == []


def test_a_clock_that_is_set_back_lengthens_no_wait_by_more_than_the_timeout() -> None:
    delivery, watch = manual(1), OverdueWatch("g")
    watch.find_overdue([delivery], 10**12)
    assert watch.find_overdue([delivery], 0) == []
    assert watch.find_overdue([delivery], CONSUME_TIMEOUT_MS) == [(delivery, 0)]

"""Messages that a handler holds for too long."""

from __future__ import annotations

import pytest
from support.batches import list_batch

from rocketray.topology.delivery import split
from rocketray.topology.overdue import CONSUME_TIMEOUT_S, OverdueWatch


def test_a_message_that_is_held_too_long_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    (delivery,) = split(list_batch([5, 6]), 1)
    watch = OverdueWatch("g")
    delivery.is_active = True
    for now_s in (0, CONSUME_TIMEOUT_S - 1, CONSUME_TIMEOUT_S, CONSUME_TIMEOUT_S * 2):
        watch.look([delivery], now_s)
    assert watch.count == 1
    assert "topic T queue 0 offset 5 for 15 minutes" in caplog.text
    delivery.cursor = 1  # another message, which begins now
    watch.look([delivery], CONSUME_TIMEOUT_S * 2)
    delivery.is_active = False
    watch.look([delivery], CONSUME_TIMEOUT_S * 9)
    assert watch.count == 1

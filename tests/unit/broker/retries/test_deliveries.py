"""OutboundDeliveries at targets that may be away, and messages of which a target takes not all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from rocketray.broker.retries.deliveries import (
    LOOK_MS,
    Attempt,
    OutboundDeliveries,
    at_once,
    attempt,
)
from rocketray.errors import (
    InvalidMessageError,
    ShardUnavailableError,
    StreamError,
    TopicNotFoundError,
)

TRADE, BILL = ("Trade", 0), ("Bill", 0)
AWAY = ShardUnavailableError("shard Trade/0", "it is away")


def test_a_target_has_one_delivery_at_a_time_and_others_have_theirs() -> None:
    futures: list[Future[Any]] = []

    def later(_delivery: Callable[[], Any]) -> Future[Any]:
        futures.append(Future())
        return futures[-1]

    deliveries = OutboundDeliveries[str, int](later)
    deliveries.begin(TRADE, "first", lambda: 1)
    assert not deliveries.may_begin(TRADE, 0)
    assert deliveries.may_begin(BILL, 0)
    deliveries.begin(BILL, "other", lambda: 2)
    futures[1].set_result(2)
    assert deliveries.ended() == [(BILL, "other", 2)]
    assert list(deliveries.under_way()) == ["first"]
    assert deliveries.next_ms(7, [BILL]) == 7, "what waits for a free target waits for nothing"
    assert deliveries.next_ms(7, [TRADE]) == 7 + LOOK_MS
    futures[0].set_result(1)
    assert deliveries.ended() == [(TRADE, "first", 1)]
    assert deliveries.may_begin(TRADE, 0)
    assert deliveries.next_ms(7, []) is None


def test_a_target_that_fails_is_left_alone_for_twice_as_long_each_time_up_to_a_minute() -> None:
    deliveries = OutboundDeliveries[str, int]()
    now, pauses = 0, []
    for _ in range(9):
        deliveries.failed(TRADE, now)
        ready_ms = deliveries.next_ms(now, [TRADE])
        assert ready_ms is not None
        assert not deliveries.may_begin(TRADE, ready_ms - 1)
        assert deliveries.may_begin(TRADE, ready_ms)
        pauses.append((ready_ms - now) // 1000)
        now = ready_ms
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    deliveries.succeeded(TRADE)
    deliveries.failed(TRADE, now)
    assert deliveries.next_ms(now, [TRADE]) == now + 1000
    deliveries.end_pauses()
    assert deliveries.may_begin(TRADE, 0)


def test_what_an_delivery_raises_is_raised_where_its_end_is_asked_for() -> None:
    failed: Future[Any] = Future()
    failed.set_exception(ValueError("on purpose"))
    deliveries = OutboundDeliveries[str, int](lambda _delivery: failed)
    deliveries.begin(TRADE, "first", lambda: 1)
    with pytest.raises(ValueError, match="on purpose"):
        deliveries.ended()
    assert deliveries.abandon() == ["first"]
    assert not deliveries.ended()
    assert at_once(lambda: 5).result() == 5


class Shard:
    """It takes numbers, all or none of a batch, but not those in ``errors``."""

    def __init__(self, errors: dict[int, StreamError]) -> None:
        self.taken: list[int] = []
        self._errors = errors

    def store(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number in self._errors:
                raise self._errors[number]
        self.taken += numbers


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ({}, Attempt([0, 1, 2, 3, 4, 5, 6], [], [])),
        ({3: InvalidMessageError("no")}, Attempt([0, 1, 2, 4, 5, 6], [3], [])),
        ({0: AWAY}, Attempt([], [], [0, 1, 2, 3, 4, 5, 6])),
        ({0: TopicNotFoundError("Trade")}, Attempt([], [0, 1, 2, 3, 4, 5, 6], [])),
        # Whatever stands behind a message that waits does not pass it.
        ({1: InvalidMessageError("no"), 2: AWAY}, Attempt([0], [1], [2, 3, 4, 5, 6])),
    ],
)
def test_one_message_that_is_never_taken_keeps_no_other(
    errors: dict[int, StreamError], expected: Attempt[int]
) -> None:
    shard = Shard(errors)
    assert attempt(range(7), shard.store, "Trade/0") == expected
    assert shard.taken == expected.done

"""Both stages of SQL92: what a bitmap can rule out, and what it must let pass."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from rocketray.errors import FilterSyntaxError
from rocketray.filters.bloom import RocketBloomFilter
from rocketray.filters.consumer_filter import ConsumerFilterManager, ConsumerSubscription
from rocketray.filters.consumer_filter_data import ConsumerFilterData
from rocketray.filters.expression_filter import ExpressionFilter
from rocketray.filters.subscription import Subscription
from rocketray.message import Message

BORN_MS = 1000
SQL = Subscription.sql("a > 5", "rocketmq")


@dataclass(frozen=True)
class Unit:
    bitmap: bytes | None
    store_timestamp_ms: int = BORN_MS + 1


def record(**properties: str) -> Message:
    return Message("T", b"", properties=properties)


@pytest.fixture
def registered() -> ConsumerFilterData:
    manager = ConsumerFilterManager(clock_ms=lambda: BORN_MS)
    manager.register("g", [ConsumerSubscription("T", SQL, 1)])
    data = manager.find("T", "g")
    assert data is not None
    return data


def bitmap_of(*consumers: str) -> bytes:
    bloom = RocketBloomFilter()
    for consumer in consumers:
        bloom.add(consumer)
    return bloom.to_bytes()


def test_a_bitmap_rules_out_what_does_not_have_all_bits(registered: ConsumerFilterData) -> None:
    chosen = ExpressionFilter(SQL, registered)
    assert chosen.matches_entry(0, Unit(bitmap_of("g#T", "h#T")))
    assert not chosen.matches_entry(0, Unit(bitmap_of("h#T")))
    assert not chosen.matches_entry(None, Unit(bytes(14)))


def test_what_a_bitmap_cannot_know_passes(registered: ConsumerFilterData) -> None:
    chosen = ExpressionFilter(SQL, registered)
    nothing = bytes(14)
    assert chosen.matches_entry(0, None)
    assert chosen.matches_entry(0, Unit(None))
    assert chosen.matches_entry(0, Unit(nothing, BORN_MS)), "stored when the filter was born"
    assert chosen.matches_entry(0, Unit(bytes(12))), "a bitmap of another size"
    assert ExpressionFilter(SQL).matches_entry(0, Unit(nothing)), "not registered"
    other = Subscription.sql("a > 6", "rocketmq")
    assert ExpressionFilter(other, registered).matches_entry(0, Unit(nothing)), "another one"


def test_an_expression_that_fails_does_not_match() -> None:
    chosen = ExpressionFilter(SQL)
    assert chosen.matches_record(record(a="6"))
    assert not chosen.matches_record(record())
    assert not chosen.matches_record(record(a="six"))


def test_a_wrong_expression_is_refused() -> None:
    with pytest.raises(FilterSyntaxError):
        ExpressionFilter(Subscription.sql("a >"))

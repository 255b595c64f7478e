from __future__ import annotations

from typing import Any

import pytest
from support.nodes.batches import stored

from rocketray.errors import PredicateError
from rocketray.filters.consumer_filter_data import ConsumerFilterData
from rocketray.filters.filter_verdict import explain_filter
from rocketray.filters.sql92 import Dialect
from rocketray.filters.subscription import Subscription
from rocketray.filters.verdict_values import BitmapFacts, FilterReason, FilterVerdict
from rocketray.hashing import tags_code
from rocketray.message import Message, StoredMessage


def message(tags: str | None = None, **properties: str) -> StoredMessage:
    return stored(Message("T", b"body", tags=tags, properties=properties), 0, 0)


def verdict(subscription: Subscription, about: StoredMessage, answer: Any = None) -> FilterVerdict:
    def ask(_: Subscription, __: Any) -> bool:
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    return explain_filter(subscription, about, tags_code(about.tags), ask)


def looks(found: FilterVerdict) -> list[tuple[str, str]]:
    return [(step.stage, step.result) for step in found.steps]


def test_tags_are_looked_at_by_code_and_then_by_text() -> None:
    found = verdict(Subscription.tags("Aa || C"), message("Aa"))
    assert found.reason is FilterReason.MATCHED
    assert looks(found) == [("tag code", "equal"), ("tag text", "equal")]
    found = verdict(Subscription.tags("Aa"), message("BB"))
    assert found.reason is FilterReason.TAG_COLLISION
    assert looks(found) == [("tag code", "equal"), ("tag text", "collided")]
    found = verdict(Subscription.tags("Aa"), message(None))
    assert found.reason is FilterReason.TAG_MISMATCH
    assert "no tag" in found.steps[0].detail
    assert verdict(Subscription.tags("*"), message("x")).reason is FilterReason.MATCHED


def test_a_code_that_cannot_be_read_passes_the_first_look() -> None:
    found = explain_filter(Subscription.tags("a"), message("b"), None, lambda _, __: True)
    assert found.reason is FilterReason.TAG_COLLISION


def test_sql_is_read_in_the_dialect_of_the_group() -> None:
    found = verdict(Subscription.sql("a LIKE 'x%'", "rocketray"), message(a="xy"))
    assert found.reason is FilterReason.MATCHED
    assert looks(found) == [("sql", "true")]


def test_sql_is_shown_part_by_part_with_its_values() -> None:
    found = verdict(Subscription.sql("a > 5 AND b = 'x'"), message(a="6"))
    assert found.reason is FilterReason.SQL_NULL
    assert [(step.depth, step.result) for step in found.steps] == [
        (0, "null"),
        (1, "true"),
        (1, "null"),
    ]
    assert found.steps[1].values == {"a": "6"}
    assert found.steps[2].values == {"b": None}
    assert verdict(Subscription.sql("a > 5"), message(a="1")).reason is FilterReason.SQL_FALSE
    assert verdict(Subscription.sql("a > 5"), message(a="5.5")).reason is FilterReason.MATCHED
    failed = verdict(Subscription.sql("a > 5"), message(a="5d"))
    assert failed.reason is FilterReason.SQL_ERROR
    assert failed.steps[0].detail == "a > 5: '5d' is not a number"
    failed = verdict(Subscription.sql("a > 5", "rocketmq"), message(a="5.5"))
    assert failed.reason is FilterReason.SQL_ERROR
    assert failed.steps[0].detail == "a > 5: '5.5' is not a 32-bit integer"
    inner = verdict(Subscription.sql("b IS NULL AND a > 5"), message(a="x"))
    assert inner.steps[0].detail.startswith("b IS NULL AND a > 5: a > 5: 'x'")


def test_a_predicate_is_asked() -> None:
    where = Subscription.where("shop.filters:is_large")
    assert verdict(where, message(), answer=True).reason is FilterReason.MATCHED
    assert verdict(where, message(), answer=False).reason is FilterReason.CLASS_FALSE
    found = verdict(where, message(), answer=PredicateError("it broke"))
    assert found.reason is FilterReason.CLASS_ERROR
    assert found.steps[0].detail == "it broke"


def known(sql: str, dialect: Dialect = "rocketray", rules: int = 2) -> ConsumerFilterData:
    subscription = Subscription("SQL92", sql, dialect=dialect, rules=rules)
    return ConsumerFilterData("g", "T", subscription, (0, 9), 16, 10)


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        (BitmapFacts(None, 11, known("a > 5")), "no bitmap"),
        (BitmapFacts(b"\x00\x00", 11), "unknown"),
        (BitmapFacts(b"\x00\x00", 11, known("a > 4")), "unknown"),
        (BitmapFacts(b"\x00\x00", 11, known("a > 5", "rocketmq", 1)), "unknown"),
        (BitmapFacts(b"\x00\x00", 11, known("a > 5", "rocketray", 1)), "unknown"),
        (BitmapFacts(b"\x00\x00", 10, known("a > 5")), "too early"),
        (BitmapFacts(b"\x01\x02", 11, known("a > 5")), "may match"),
        (BitmapFacts(b"\x01\x00", 11, known("a > 5")), "rejected"),
    ],
)
def test_what_a_bitmap_says_comes_before_the_expression(facts: BitmapFacts, result: str) -> None:
    found = explain_filter(Subscription.sql("a > 5"), message(a="1"), 0, lambda _, __: True, facts)
    assert found.reason is FilterReason.SQL_FALSE
    assert looks(found) == [("bloom", result), ("sql", "false")]


def test_a_bitmap_that_hides_a_message_is_the_reason() -> None:
    facts = BitmapFacts(b"\x01\x00", 11, known("a > 5"))
    found = explain_filter(Subscription.sql("a > 5"), message(a="6"), 0, lambda _, __: True, facts)
    assert found.reason is FilterReason.BLOOM_WRONG
    assert looks(found)[-1] == ("bloom", "wrong")

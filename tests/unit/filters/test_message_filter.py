from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rocketray.errors import FilterEvaluationError, FilterSyntaxError, PredicateError
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import Subscription
from rocketray.hashing import tags_code


@dataclass(frozen=True)
class Record:
    """The least that a filter may look at."""

    topic: str = "Trade"
    tags: str | None = None
    keys: tuple[str, ...] = ("order-17",)
    properties: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def test_tags_are_decided_by_code_and_then_exactly() -> None:
    tag_filter = MessageFilter(Subscription.tags("Aa || TagHello"))
    assert tag_filter.tag_codes is not None
    assert tag_filter.tag_codes.dtype == np.int32
    assert tag_filter.tag_codes.tolist() == [-720863880, 2112]
    assert not tag_filter.needs_record
    assert tag_filter.matches_entry(tags_code("BB"))
    assert not tag_filter.matches_entry(tags_code("other"))
    assert tag_filter.matches_record(Record())
    assert tag_filter.matches_tags("Aa")
    assert not tag_filter.matches_tags("BB")


def test_all_tags_pass_every_stage_and_blank_ones_none() -> None:
    everything = MessageFilter(Subscription.tags("*"))
    assert everything.tag_codes is None
    assert everything.matches_entry(5)
    assert everything.matches_tags(None)
    nothing = MessageFilter(Subscription.tags(" || "))
    assert nothing.tag_codes is not None
    assert nothing.tag_codes.size == 0
    assert not nothing.matches_entry(0)


def test_sql_is_decided_by_the_record() -> None:
    sql_filter = MessageFilter(Subscription.sql("amount > 5 AND TAGS = 'pay'"))
    assert sql_filter.tag_codes is None
    assert sql_filter.needs_record
    assert sql_filter.matches_entry(123)
    assert sql_filter.matches_tags(None)
    assert sql_filter.sql is not None
    assert sql_filter.sql.names == ("TAGS", "amount")
    pay = {"amount": "6", "TAGS": "pay"}
    assert sql_filter.matches_record(Record(properties=pay))
    assert not sql_filter.matches_record(Record())
    with pytest.raises(FilterEvaluationError, match="'much'"):
        sql_filter.matches_record(Record(properties={"amount": "much"}))


def test_a_predicate_is_decided_by_the_record() -> None:
    class_filter = MessageFilter(Subscription.where("support.predicates:body_is_short"))
    assert class_filter.tag_codes is None
    assert class_filter.needs_record
    assert class_filter.sql is None
    assert class_filter.matches_record(Record(body=b"short")) is True
    assert class_filter.matches_record(Record(body=b"not so short")) is False


def test_a_predicate_that_raises_says_on_which_message() -> None:
    class_filter = MessageFilter(Subscription.where("support.predicates:fails_always"))
    with pytest.raises(PredicateError, match=r"order-17.*RuntimeError") as caught:
        class_filter.matches_record(Record())
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_predicate_may_answer_with_a_numpy_bool(monkeypatch: pytest.MonkeyPatch) -> None:
    class_filter = MessageFilter(Subscription.where("support.predicates:body_is_short"))
    monkeypatch.setattr(class_filter, "_predicate", lambda _: np.bool_(1))
    assert class_filter.matches_record(Record()) is True


@pytest.mark.parametrize("answer", [None, 1, "yes", np.array([True])], ids=repr)
def test_a_predicate_answers_true_or_false(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    class_filter = MessageFilter(Subscription.where("support.predicates:body_is_short"))
    monkeypatch.setattr(class_filter, "_predicate", lambda _: answer)
    with pytest.raises(PredicateError, match="must return True or False"):
        class_filter.matches_record(Record())


def test_what_cannot_be_used_is_found_when_it_is_made() -> None:
    with pytest.raises(FilterSyntaxError):
        MessageFilter(Subscription.sql("a >"))
    with pytest.raises(FilterSyntaxError):
        MessageFilter(Subscription.tags("||"))
    with pytest.raises(PredicateError, match="not allowed"):
        MessageFilter(Subscription.where("support.predicates:body_is_short"), allowed=["shop"])


def test_the_codes_cannot_be_changed() -> None:
    codes = MessageFilter(Subscription.tags("A")).tag_codes
    assert codes is not None
    with pytest.raises(ValueError, match="read-only"):
        codes[0] = 1


def test_it_shows_its_subscription() -> None:
    assert repr(MessageFilter(Subscription.tags("A"))) == "MessageFilter(tags 'A')"


BATCH = pa.record_batch({"tags": ["a", "b", None]})


@pytest.mark.parametrize(
    "answer",
    [
        pa.array([True, False, None]),
        pa.chunked_array([[True], [False, None]], pa.bool_()),
        np.array([True, False, False]),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_a_batch_predicate_answers_with_an_array(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_filter = MessageFilter(Subscription.where("support.predicates:are_tagged"))
    assert batch_filter.batch_columns == ("tags", "properties")
    monkeypatch.setattr(batch_filter, "_predicate", lambda _: answer)
    found = batch_filter.matches_batch(BATCH)
    assert found.dtype == np.bool_
    assert found.tolist() == [True, False, False]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        [True, False, True],
        np.array([1, 0, 1]),
        np.array([[True, False, True]]),
        np.array([True, False]),
        pa.array([1, 0, 1]),
        pa.array([True]),
    ],
    ids=lambda answer: f"{type(answer).__name__} {answer!s:.8}",
)
def test_a_batch_predicate_answers_for_each_message(
    answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_filter = MessageFilter(Subscription.where("support.predicates:are_tagged"))
    monkeypatch.setattr(batch_filter, "_predicate", lambda _: answer)
    with pytest.raises(PredicateError, match=r"batch of 3: it returned .* one boolean"):
        batch_filter.matches_batch(BATCH)


def test_a_batch_predicate_may_even_try_to_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    batch_filter = MessageFilter(Subscription.where("support.predicates:are_tagged"))
    monkeypatch.setattr(batch_filter, "_predicate", sys.exit)
    with pytest.raises(PredicateError, match="SystemExit"):
        batch_filter.matches_batch(BATCH)

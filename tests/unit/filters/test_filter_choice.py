from __future__ import annotations

import pytest

from rocketray.errors import ConfigError, FilterSyntaxError, PredicateError
from rocketray.filters.filter_choice import FilterChoice
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription

PREDICATE = "support.predicates:is_even"


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (FilterChoice(), Subscription.tags("*")),
        (FilterChoice("a || b"), Subscription.tags("a || b")),
        (FilterChoice(sql="a > 1"), Subscription.sql("a > 1")),
        (FilterChoice(sql="a = 1", dialect="rocketmq"), Subscription.sql("a = 1", "rocketmq")),
        (FilterChoice(where=PREDICATE), Subscription.where(PREDICATE)),
        (
            FilterChoice(where=PREDICATE, on_filter_error="skip"),
            Subscription.where(PREDICATE, "skip"),
        ),
        (FilterChoice(named="large@2"), FilterName("large", 2)),
        (FilterChoice(named=FilterName("large")), FilterName("large")),
    ],
)
def test_what_is_given_is_the_filter(
    choice: FilterChoice, chosen: Subscription | FilterName
) -> None:
    assert choice.filter() == chosen


@pytest.mark.parametrize(
    ("choice", "error", "said"),
    [
        (FilterChoice("pay", "a > 1"), ConfigError, "one of tags, sql and where, not tags and sql"),
        (FilterChoice(sql="a > 1", where=PREDICATE), ConfigError, "not sql and where"),
        (FilterChoice("pay", dialect="rocketray"), ConfigError, "is for SQL"),
        (FilterChoice(where=PREDICATE, dialect="rocketray"), ConfigError, "is for SQL"),
        (FilterChoice(sql="a > 1", on_filter_error="deliver"), ConfigError, "leave it out"),
        (FilterChoice(sql="a >"), FilterSyntaxError, r"\^"),
        (FilterChoice("||"), FilterSyntaxError, "needs a tag"),
        (FilterChoice(where="no path"), PredicateError, "'module:callable'"),
        (FilterChoice("pay", named="large"), ConfigError, "filter='large' names.* leave out tags"),
        (
            FilterChoice(named="large", dialect="rocketmq", on_filter_error="skip"),
            ConfigError,
            "leave out dialect and on_filter_error",
        ),
        (FilterChoice(named="large@latest"), ConfigError, "is not a version"),
    ],
)
def test_what_does_not_go_together_is_refused(
    choice: FilterChoice, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        choice.filter()


def test_a_predicate_is_imported_where_it_is_declared_and_not_by_a_command() -> None:
    elsewhere = FilterChoice(where="only.the.node:has_it")
    assert elsewhere.subscription() == Subscription.where("only.the.node:has_it")
    with pytest.raises(PredicateError):
        elsewhere.filter()

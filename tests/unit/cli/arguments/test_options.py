from __future__ import annotations

import pytest
import typer

from rocketray.cli.arguments.options import chosen_subscription
from rocketray.filters.subscription import Subscription


def test_without_an_option_every_message_comes() -> None:
    assert chosen_subscription(None, None, None) == Subscription.tags("*")


def test_each_kind_of_filter() -> None:
    assert chosen_subscription("a || b", None, None) == Subscription.tags("a || b")
    assert chosen_subscription(None, "a > 1", None) == Subscription.sql("a > 1")
    path = "rocketray_demo.predicates:is_red_eye"
    assert chosen_subscription(None, None, path) == Subscription.where(path)
    assert chosen_subscription(None, None, "only.the.node:has_it", "skip").on_error == "skip"


@pytest.mark.parametrize(
    ("tags", "sql", "where", "says"),
    [
        ("a", "a > 1", None, "--tags and --sql exclude each other"),
        ("||", None, None, "needs a tag"),
        (None, "a >", None, "^"),
        (None, None, "no path", "'module:callable'"),
    ],
)
def test_a_wrong_filter_is_wrong_usage(
    tags: str | None, sql: str | None, where: str | None, says: str
) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        chosen_subscription(tags, sql, where)
    assert says in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_policy_for_errors_goes_with_a_predicate_only() -> None:
    with pytest.raises(typer.BadParameter, match="leave it out"):
        chosen_subscription("a", None, None, "skip")

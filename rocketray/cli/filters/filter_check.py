"""``rocketray filter check``: the meaning of a filter, and likely mistakes in it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.cli.arguments.options import (
    DATA_DEFAULT,
    AnyDataOption,
    DialectOption,
    JsonOption,
    TagsOption,
    checked,
    chosen_subscription,
)
from rocketray.cli.terminal.output import print_json, print_line
from rocketray.errors import FilterSyntaxError
from rocketray.names import check_topic

if TYPE_CHECKING:
    from rocketray.filters.sql92.advice import Advice
    from rocketray.filters.sql92.nodes import Expression
    from rocketray.filters.subscription import Subscription

__all__ = ["check"]


def check(
    expression: Annotated[
        str | None, typer.Argument(metavar="[EXPR]", help="An SQL92 expression.")
    ] = None,
    *,
    tags: TagsOption = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            callback=checked(check_topic),
            help="Compare with its recent messages: unknown names, values that will fail.",
        ),
    ] = None,
    sample_count: Annotated[
        int,
        typer.Option(
            "--sample", metavar="N", min=1, max=100_000, help="Number of recent messages."
        ),
    ] = 1000,
    dialect: DialectOption = None,
    data: AnyDataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Check an SQL92 expression, or --tags; no node is needed.

    Prints the expression as it was parsed, with the parentheses that it needs, and warnings:
    conditions that are always or never true, NOT that binds tighter than a comparison, the outcome
    for messages without a property, and more. If the expression does not parse, the exit code is 1
    and a caret marks the place. Warnings do not change the exit code. The last line names the
    dialect: the same text can have another meaning in the other dialect.

    With --tags it prints each tag by itself, and warns of several tags that seem to be written as
    one, and, with --topic, of tags that no recent message has.
    """
    from rocketray.actors.filtering.filter_advice import advise_filter  # noqa: PLC0415 - NumPy
    from rocketray.filters.subscription import Subscription  # noqa: PLC0415 - the same

    if (expression is None) == (tags is None):
        raise typer.BadParameter("give an SQL92 expression or --tags")
    if tags is not None:
        subscription = chosen_subscription(tags, None, None, dialect=dialect)
        warnings = advise_filter(subscription, data, topic, sample_count)
        _show_tags(subscription, warnings, as_json=as_json)
        return
    assert expression is not None
    subscription = Subscription.sql(expression, dialect)
    try:
        tree = subscription.compiled().tree
    except FilterSyntaxError as error:
        if not as_json:
            raise
        print_json(_failed(error))
        sys.exit(1)
    warnings = advise_filter(subscription, data, topic, sample_count)
    if as_json:
        print_json(_passed(subscription, tree, warnings))
        return
    for line in _lines(tree, warnings):
        print_line(line)
    print_line(f"dialect: {subscription.dialect_words}")


def _show_tags(subscription: Subscription, warnings: list[Advice], *, as_json: bool) -> None:
    from rocketray.filters.subscription import parse  # noqa: PLC0415 - imports NumPy

    parsed = parse(subscription.expression)
    tags = sorted(parsed.tags_set)
    if as_json:
        shown = {"expression": subscription.expression, "valid": True, "tags": tags}
        print_json({**shown, "warnings": _warnings(warnings), "error": None})
        return
    everything = "all messages" if parsed.sub_string == "*" else "none"
    print_line(f"tags: {', '.join(map(repr, tags)) or everything}")
    for each in warnings:
        print_line(str(each))


def _warnings(warnings: list[Advice]) -> list[dict[str, Any]]:
    return [
        {"code": each.code.value, "subject": each.subject, "message": each.sentence}
        for each in warnings
    ]


def _lines(tree: Expression, warnings: list[Advice]) -> list[str]:
    from rocketray.filters.sql92 import to_sql  # noqa: PLC0415 - imports NumPy

    return [to_sql(tree), *map(str, warnings)]


def _passed(subscription: Subscription, tree: Expression, warnings: list[Advice]) -> dict[str, Any]:
    from rocketray.filters.sql92 import to_sql  # noqa: PLC0415 - imports NumPy
    from rocketray.filters.sql92.nodes import property_names  # noqa: PLC0415 - the same

    return {
        "expression": subscription.expression,
        "dialect": subscription.dialect,
        "dialectRules": subscription.rules,
        "valid": True,
        "canonical": to_sql(tree),
        "properties": sorted(property_names(tree)),
        "warnings": _warnings(warnings),
        "error": None,
    }


def _failed(error: FilterSyntaxError) -> dict[str, Any]:
    return {
        "expression": error.expression,
        "valid": False,
        "error": {"message": error.reason, "start": error.start, "end": error.end},
    }

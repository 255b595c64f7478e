"""``rocketray filter check``: what an SQL92 expression says, and what may surprise its author."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.errors import FilterSyntaxError
from rocketray.names import check_topic

from .filter_preview import AnyDataOption
from .options import DATA_DEFAULT, DialectOption, JsonOption, checked
from .output import print_json, print_line

if TYPE_CHECKING:
    from rocketray.filters.sql92.advice import Advice, Sample
    from rocketray.filters.sql92.nodes import Expression

__all__ = ["ExpressionArgument", "check"]

ExpressionArgument = Annotated[str, typer.Argument(metavar="EXPR", help="An SQL92 expression.")]


def check(
    expression: ExpressionArgument,
    *,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            callback=checked(check_topic),
            help="Compare with its recent messages: names never seen, values that will fail.",
        ),
    ] = None,
    sample_count: Annotated[
        int, typer.Option("--sample", metavar="N", min=1, max=100_000, help="So many of them.")
    ] = 1000,
    dialect: DialectOption = "rocketmq",
    data: AnyDataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Check an SQL92 expression; a node need not run.

    Prints the expression as it was understood, with the parentheses that it needs, and warnings:
    conditions that are always or never true, NOT that binds tighter than a comparison, what becomes
    of messages without a property, and more. The exit code is 1 when it does not parse; a caret
    shows the place. Warnings do not change the exit code.
    """
    from rocketray.filters.sql92 import parse  # noqa: PLC0415 - imports NumPy
    from rocketray.filters.sql92.advice import advise  # noqa: PLC0415 - the same

    try:
        tree = parse(expression, dialect)
    except FilterSyntaxError as error:
        if not as_json:
            raise
        print_json(_failed(error))
        sys.exit(1)
    warnings = advise(tree, _sample(data, topic, tree, sample_count))
    if as_json:
        print_json(_passed(expression, tree, warnings))
        return
    for line in _lines(tree, warnings):
        print_line(line)


def _sample(data: Path, topic: str | None, tree: Expression, count: int) -> Sample | None:
    from rocketray.filters.sql92.nodes import property_names  # noqa: PLC0415 - imports NumPy

    if topic is None:
        return None
    from rocketray.actors.preview import sample_recent  # noqa: PLC0415 - imports Numba

    return sample_recent(data, topic, property_names(tree), count)


def _lines(tree: Expression, warnings: list[Advice]) -> list[str]:
    from rocketray.filters.sql92 import to_sql  # noqa: PLC0415 - imports NumPy

    texts = [f"{each.code.value}: {each.subject} {each.sentence}" for each in warnings]
    return [to_sql(tree), *texts]


def _passed(expression: str, tree: Expression, warnings: list[Advice]) -> dict[str, Any]:
    from rocketray.filters.sql92 import to_sql  # noqa: PLC0415 - imports NumPy
    from rocketray.filters.sql92.nodes import property_names  # noqa: PLC0415 - the same

    return {
        "expression": expression,
        "valid": True,
        "canonical": to_sql(tree),
        "properties": sorted(property_names(tree)),
        "warnings": [
            {"code": each.code.value, "subject": each.subject, "message": each.sentence}
            for each in warnings
        ],
        "error": None,
    }


def _failed(error: FilterSyntaxError) -> dict[str, Any]:
    return {
        "expression": error.expression,
        "valid": False,
        "error": {"message": error.reason, "start": error.start, "end": error.end},
    }

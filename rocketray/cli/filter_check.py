"""``rocketray filter check``: what an SQL92 expression says, and what may surprise its author."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.errors import FilterSyntaxError

from .options import JsonOption
from .output import print_json, print_line

if TYPE_CHECKING:
    from rocketray.filters.sql92.advice import Advice, Sample
    from rocketray.filters.sql92.nodes import Expression

__all__ = ["ExpressionArgument", "check"]

ExpressionArgument = Annotated[str, typer.Argument(metavar="EXPR", help="An SQL92 expression.")]


def check(expression: ExpressionArgument, *, as_json: JsonOption = False) -> None:
    """Check an SQL92 expression; no node is needed.

    Prints the expression as it was understood, with the parentheses that it needs, and warnings:
    conditions that are always or never true, NOT that binds tighter than a comparison, what becomes
    of messages without a property, and more. The exit code is 1 when it does not parse; a caret
    shows the place. Warnings do not change the exit code.
    """
    from rocketray.filters.sql92 import parse  # noqa: PLC0415 - imports NumPy
    from rocketray.filters.sql92.advice import advise  # noqa: PLC0415 - the same

    try:
        tree = parse(expression)
    except FilterSyntaxError as error:
        if not as_json:
            raise
        print_json(_failed(error))
        sys.exit(1)
    sample: Sample | None = None
    warnings = advise(tree, sample)
    if as_json:
        print_json(_passed(expression, tree, warnings))
        return
    for line in _lines(tree, warnings):
        print_line(line)


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

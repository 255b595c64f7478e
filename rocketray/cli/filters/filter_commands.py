"""``rocketray filter``: try expressions, and show the statistics of the groups' filters."""

from __future__ import annotations

import sys
from typing import Annotated, Any, TypeGuard

import typer

from rocketray.cli.terminal.lines import parse_object, read_lines
from rocketray.cli.terminal.output import print_json
from rocketray.errors import FilterEvaluationError, FilterSyntaxError
from rocketray.hashing import tags_code

from .filter_check import check
from .filter_preview import preview
from .filter_stats import stats

__all__ = ["evaluate", "filters"]

filters = typer.Typer(
    help="Try filter expressions, and show filter statistics.", no_args_is_help=True
)
filters.command()(check)
filters.command()(preview)
filters.command()(stats)


@filters.command("eval")
def evaluate_lines(
    *,
    _json: Annotated[
        bool, typer.Option("--json", help="No effect: the output is always JSON.")
    ] = False,
) -> None:
    """Evaluate filter expressions from stdin.

    Each line is a JSON object, and so is its answer.

    \b
    SQL92 over properties (null: no properties at all):
      {"expr": "a > 5 AND region = 'eu'", "props": {"a": "7", "region": "eu"}}
      {"result": true, "message": null}

    The dialect is "rocketray" by default; "dialect": "rocketmq" in a line evaluates as a broker
    does, down to its errors. result is true, false or null (unknown: the message does not match);
    "error" if the expression fails on these properties (the message does not match); or
    "parse-error".

    \b
    Tags, in the two steps of a delivery, the hash and the exact text (null: no tag):
      {"type": "TAG", "expr": "Aa || TagC", "tag": "BB"}
      {"broker": true, "consumer": false}

    The exit code is 0 for all results. The answer to an invalid line is "parse-error", and the
    command continues with the next line.
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    for number, line in read_lines(sys.stdin.buffer):
        try:
            request = parse_object(line)
        except ValueError as error:
            print_json(_failed("parse-error", f"line {number}: {error}"))
        else:
            print_json(evaluate(request))


def evaluate(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one line of ``filter eval``."""
    kind, expression = request.get("type", "SQL92"), request.get("expr")
    if kind == "TAG" and isinstance(expression, str | None):
        return _evaluate_tag(expression, request.get("tag"))
    if kind == "SQL92" and isinstance(expression, str):
        return _evaluate_sql(expression, request)
    return _failed("parse-error", '"expr" must be a string, and "type" "SQL92" or "TAG"')


def _evaluate_sql(expression: str, request: dict[str, Any]) -> dict[str, Any]:
    from rocketray.filters.sql92 import compile_expression  # noqa: PLC0415 - imports NumPy
    from rocketray.filters.sql92.dialect import DEFAULT_DIALECT, DIALECTS  # noqa: PLC0415 - same

    properties, dialect = request.get("props"), request.get("dialect", DEFAULT_DIALECT)
    if dialect not in DIALECTS:
        return _failed("parse-error", '"dialect" must be "rocketmq" or "rocketray"')
    if properties is not None and not _is_texts(properties):
        return _failed("parse-error", '"props" must be an object of strings, or null')
    try:
        compiled = compile_expression(expression, dialect)
    except FilterSyntaxError as error:
        return _failed("parse-error", str(error))
    try:
        return {"result": compiled.evaluate(properties), "message": None}
    except FilterEvaluationError as error:
        return _failed("error", str(error))


def _evaluate_tag(expression: str | None, tag: object) -> dict[str, Any]:
    from rocketray.filters.subscription import parse  # noqa: PLC0415 - imports NumPy
    from rocketray.filters.tag import matches_code, matches_exactly  # noqa: PLC0415 - the same

    if not isinstance(tag, str | None):
        return _failed("parse-error", '"tag" must be a string, or null')
    try:
        subscription = parse(expression)
    except FilterSyntaxError as error:
        return _failed("parse-error", str(error))
    return {
        "broker": matches_code(subscription, tags_code(tag)),
        "consumer": matches_exactly(subscription, tag),
    }


def _failed(result: str, message: str) -> dict[str, Any]:
    return {"result": result, "message": message}


def _is_texts(value: object) -> TypeGuard[dict[str, str]]:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())

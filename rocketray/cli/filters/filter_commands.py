"""``rocketray filter``: try expressions, keep them under names; statistics of groups' filters."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

import typer

from rocketray.base.json_fields import json_fields
from rocketray.base.names import check_stored_topic
from rocketray.cli.arguments.directories import refuse_cluster
from rocketray.cli.arguments.filter_choice import (
    FilterNameOption,
    FilterOptions,
    filter_in_files,
)
from rocketray.cli.arguments.lookup_options import BeginOption, EndOption, span_of
from rocketray.cli.arguments.messages import one_line
from rocketray.cli.arguments.options import (
    DATA_DEFAULT,
    SCAN_DEFAULT,
    AnyDataOption,
    DialectOption,
    JsonOption,
    MaxScanOption,
    OnlyQueueOption,
    SqlOption,
    StoredTopicArgument,
    TagsOption,
    WhereOption,
    checked,
    chosen_subscription,
    tell_doubts,
    tell_note,
)
from rocketray.cli.terminal.lines import parse_object, read_lines
from rocketray.cli.terminal.output import TextTable, emit, print_json
from rocketray.errors import FilterEvaluationError, FilterSyntaxError
from rocketray.filters.filter_choice import FilterChoice
from rocketray.hashing import tags_code
from rocketray.views.message_records import seen_record, to_json, why_of

from .filter_diff_command import diff
from .filter_stats_command import stats
from .named_filter_commands import list_filters, remove, save, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketray.broker.filtering.preview import Preview
    from rocketray.broker.filtering.seen_messages import SeenMessage
    from rocketray.filters.subscription import Subscription

filters = typer.Typer(
    help="Try filters, keep them under names, and show statistics.",
    no_args_is_help=True,
)

for function in (diff, stats, save, show, remove):
    filters.command()(function)
filters.command("list")(list_filters)


@filters.command()
def check(
    expression: Annotated[
        str | None, typer.Argument(metavar="[EXPR]", help="An SQL92 expression.")
    ] = None,
    *,
    tags: TagsOption = None,
    filter_name: FilterNameOption = None,
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            callback=checked(check_stored_topic),
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
    one, and, with --topic, of tags that no recent message has. With --filter it checks that named
    filter of the --topic.

    Examples:
        rocketray filter check "amount > 100 AND region = 'eu'"
        rocketray filter check --tags "pay || order" --topic Trade
    """
    from rocketray.filters.subscription import Subscription
    from rocketray.views.filter_records import checked_filter, refused_filter

    if sum(given is not None for given in (expression, tags, filter_name)) != 1:
        raise typer.BadParameter("give one of an SQL92 expression, --tags and --filter")
    if filter_name is not None:
        if topic is None or dialect is not None:
            said = "add --topic" if topic is None else "it has its dialect: leave out --dialect"
            raise typer.BadParameter(f"--filter is a filter of a topic; {said}")
        subscription = filter_in_files(data, topic, filter_name)
    elif expression is not None:
        subscription = Subscription.sql(expression, dialect)
    else:
        subscription = chosen_subscription(FilterChoice(tags, dialect=dialect))
    try:
        found = checked_filter(subscription, data, topic, sample_count)
    except FilterSyntaxError as error:
        if not as_json:
            raise
        print_json(refused_filter(error))
        sys.exit(1)
    first, *rest = found.lines
    shown = map(str, (first, *found.warnings, *rest))
    emit(found.record(), shown, as_json=as_json)


@filters.command()
def preview(
    topic: StoredTopicArgument,
    expression: Annotated[
        str | None, typer.Argument(metavar="EXPR", help="An SQL92 expression, as --sql.")
    ] = None,
    *,
    tags: TagsOption = None,
    sql: SqlOption = None,
    where: WhereOption = None,
    filter_name: FilterNameOption = None,
    begin_ms: BeginOption = None,
    end_ms: EndOption = None,
    begin_offset: Annotated[
        int,
        typer.Option("--from-offset", metavar="N", min=0, help="From this offset of each queue."),
    ] = 0,
    end_offset: Annotated[
        int | None,
        typer.Option("--to-offset", metavar="N", min=0, help="Up to, not including, this offset."),
    ] = None,
    queue_id: OnlyQueueOption = None,
    rejected: Annotated[
        bool,
        typer.Option(
            "--rejected", help="Show messages that the filter rejects, or fails on, and why."
        ),
    ] = False,
    failed: Annotated[
        bool,
        typer.Option("--failed", help="Show messages on which the filter fails, and why."),
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, help="Maximum number of messages to show.")
    ] = 10,
    max_scan: MaxScanOption = SCAN_DEFAULT,
    dialect: DialectOption = None,
    data: AnyDataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show what a filter would match in a topic, or would not. No group is involved.

    The command changes nothing and moves no offset; the node need not run. It warns on stderr of
    likely mistakes in the filter. A predicate (--where) is imported and run by this command. --json
    prints one object: scanned, matched, rejected, failed, failures by kind, bytesRead, and the
    first matches as "store scan" prints them; with --rejected or --failed those messages instead,
    with their verdict and why. The number of rejected ones is without those that failed.

    Examples:
        rocketray filter preview Trade "amount > 100"
        rocketray filter preview Trade "amount > 100" --rejected --limit 20
    """
    from rocketray.broker.filtering.left_out import left_out  # imports NumPy
    from rocketray.broker.filtering.preview import PreviewRange  # NumPy and Arrow
    from rocketray.broker.filtering.preview import preview as run  # NumPy and Arrow
    from rocketray.broker.filtering.seen_messages import SeenMessage  # Arrow
    from rocketray.filters.verdict_values import FilterReason
    from rocketray.messaging.api.queues_here import queues_in

    if expression is not None and sql is not None:
        raise typer.BadParameter("EXPR and --sql are the same; give one")
    refuse_cluster("filter preview", data)
    sql = sql if expression is None else expression
    chosen = FilterOptions(tags, sql, dialect, where, filter_name=filter_name).chosen()
    subscription = filter_in_files(data, topic, chosen)
    span_of(begin_ms, end_ms)  # only for its check
    within = PreviewRange(begin_offset, end_offset, begin_ms, end_ms, queue_id, max_scan)
    if rejected and failed:
        raise typer.BadParameter("--rejected shows those of --failed, too; give one")
    is_other = rejected or failed
    here = queues_in(data, topic)
    tell_note(here.note(queue_id))
    found = run(data, topic, subscription, within, show=0 if is_other else limit)
    seen = [SeenMessage(message, FilterReason.MATCHED) for message in found.matches]
    if is_other:
        seen = left_out(data, topic, subscription, within, show=limit, only_failed=failed)
    tell_doubts(data, [topic], subscription)
    shown = [seen_record(each) if is_other else to_json(each.message) for each in seen]
    record = _preview_fields(topic, subscription, found, shown)
    record["queuesElsewhere"] = list(here.elsewhere)
    emit(record, _shown_preview(found, seen), as_json=as_json)


def _preview_fields(
    topic: str, subscription: Subscription, found: Preview, shown: list[dict[str, Any]]
) -> dict[str, Any]:
    counters = found.counters
    kinds = (
        "evaluationErrors",
        "predicateErrors",
        "notInt32",
        "notInt64",
        "notDouble",
        "booleanWithText",
    )
    by_name = json_fields(counters)
    return {
        "topic": topic,
        "subscription": subscription.to_json(),
        "held": found.held,
        "scanned": counters.scanned,
        "matched": counters.delivered,
        "rejected": counters.rejected + counters.collisions,
        "failed": counters.errors,
        "failures": {kind: by_name[kind] for kind in kinds if by_name[kind]},
        "error": found.error or None,
        "bytesRead": found.bytes_read,
        "messages": shown,
    }


def _shown_preview(found: Preview, seen: list[SeenMessage]) -> Iterator[str | TextTable]:
    for each in seen:
        yield one_line(each.message)
        if each.step is not None:
            yield f"    {each.reason.value.replace('_', ' ')}: {why_of(each)}"
    counters = found.counters
    rejected = counters.rejected + counters.collisions
    row = (counters.scanned, counters.delivered, rejected, counters.errors, found.bytes_read)
    yield TextTable(("scanned", "matched", "rejected", "failed", "bytes read"), [row])
    if counters.scanned < found.held:
        yield f"only {counters.scanned} of {found.held} messages were scanned: --max-scan"
    if found.error:
        yield f"the first failure: {found.error}"


@filters.command("eval", hidden=True)  # it answers tests, not people
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

    Examples:
        echo '{"expr": "a > 5", "props": {"a": "7"}}' | rocketray filter eval
        rocketray filter eval < expressions.jsonl
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
    from rocketray.filters.sql92 import compile_expression
    from rocketray.filters.sql92.dialect import DEFAULT_DIALECT, DIALECTS  # slow

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
    from rocketray.filters.subscription import matches_code, matches_exactly, parse

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

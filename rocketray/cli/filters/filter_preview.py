"""``rocketray filter preview``: the matches of a filter among stored messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.cli.arguments.doubts import tell_doubts
from rocketray.cli.arguments.lookup_options import BeginOption, EndOption, check_span
from rocketray.cli.arguments.messages import one_line, to_json
from rocketray.cli.arguments.options import (
    DATA_DEFAULT,
    AnyDataOption,
    DialectOption,
    JsonOption,
    SqlOption,
    TagsOption,
    TopicArgument,
    WhereOption,
    chosen_subscription,
)
from rocketray.cli.terminal.output import print_json, print_line, print_table

if TYPE_CHECKING:
    from rocketray.actors.filtering.preview import Preview
    from rocketray.filters.subscription import Subscription

__all__ = ["preview"]

_SCAN_DEFAULT = 10_000_000


def preview(
    topic: TopicArgument,
    expression: Annotated[
        str | None, typer.Argument(metavar="EXPR", help="An SQL92 expression, as --sql.")
    ] = None,
    *,
    tags: TagsOption = None,
    sql: SqlOption = None,
    where: WhereOption = None,
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
    queue_id: Annotated[
        int | None, typer.Option("--queue", metavar="N", min=0, help="Only this queue.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Maximum number of matches to show.")
    ] = 10,
    max_scan: Annotated[
        int,
        typer.Option("--max-scan", metavar="N", min=1, help="Maximum number of messages to scan."),
    ] = _SCAN_DEFAULT,
    dialect: DialectOption = None,
    data: AnyDataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show what a filter would match in a topic. No group is involved.

    The command changes nothing and moves no offset; the node need not run. It warns on stderr of
    likely mistakes in the filter. A predicate (--where) is imported and run by this command. --json
    prints one object: scanned, matched, rejected, failed, failures by kind, bytesRead, and the
    first matches as "store scan" prints them.
    """
    from rocketray.actors.filtering.preview import PreviewRange  # noqa: PLC0415 - imports NumPy
    from rocketray.actors.filtering.preview import preview as run  # noqa: PLC0415 - the same

    if expression is not None and sql is not None:
        raise typer.BadParameter("EXPR and --sql are the same; give one")
    chosen = sql if expression is None else expression
    subscription = chosen_subscription(tags, chosen, where, dialect=dialect)
    check_span(begin_ms, end_ms)
    within = PreviewRange(begin_offset, end_offset, begin_ms, end_ms, queue_id, max_scan)
    found = run(data, topic, subscription, within, show=limit)
    tell_doubts(data, [topic], subscription)
    if as_json:
        print_json(_fields(topic, subscription, found))
    else:
        _print(found)


def _fields(topic: str, subscription: Subscription, found: Preview) -> dict[str, Any]:
    counters = found.counters
    kinds = (
        "evaluationErrors",
        "predicateErrors",
        "notInt32",
        "notInt64",
        "notDouble",
        "booleanWithText",
    )
    by_name = counters.to_json()
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
        "messages": [to_json(message) for message in found.matches],
    }


def _print(found: Preview) -> None:
    for message in found.matches:
        print_line(one_line(message))
    counters = found.counters
    rejected = counters.rejected + counters.collisions
    row = (counters.scanned, counters.delivered, rejected, counters.errors, found.bytes_read)
    columns = ("scanned", "matched", "rejected", "failed", "bytes read")
    print_table(columns, [row], right=columns)
    if counters.scanned < found.held:
        print_line(f"only {counters.scanned} of {found.held} messages were scanned: --max-scan")
    if found.error:
        print_line(f"the first failure: {found.error}")

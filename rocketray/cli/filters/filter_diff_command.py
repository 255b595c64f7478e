"""``rocketray filter diff``: what another filter would change, on messages that are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.cli.arguments.directories import refuse_cluster
from rocketray.cli.arguments.filter_choice import filter_in_files
from rocketray.cli.arguments.filter_diffs import diff_lines
from rocketray.cli.arguments.lookup_options import BeginOption, EndOption, span_of
from rocketray.cli.arguments.options import (
    DATA_DEFAULT,
    SCAN_DEFAULT,
    AnyDataOption,
    DialectOption,
    JsonOption,
    MaxScanOption,
    OnlyQueueOption,
    StoredTopicArgument,
    chosen_subscription,
    tell_doubts,
    tell_note,
)
from rocketray.cli.terminal.output import emit
from rocketray.cli.terminal.usage import usage_error
from rocketray.filters.filter_choice import FilterChoice
from rocketray.filters.filter_name import FilterName
from rocketray.views.message_records import diff_record

if TYPE_CHECKING:
    from rocketray.filters.sql92.dialect import Dialect
    from rocketray.filters.subscription import Subscription

_BY_NAME = "filter"
_KINDS = ("tags", "sql", "where")
_FORM = "SQL92, or tags:TAG || TAG, or where:MODULE:FUNCTION, or filter:NAME@V."


def diff(
    topic: StoredTopicArgument,
    old: Annotated[str, typer.Argument(metavar="OLD", help=_FORM)],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same.")],
    *,
    begin_ms: BeginOption = None,
    end_ms: EndOption = None,
    queue_id: OnlyQueueOption = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, help="Maximum number of examples of each difference.")
    ] = 5,
    max_scan: MaxScanOption = SCAN_DEFAULT,
    dialect: DialectOption = None,
    data: AnyDataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Compare two filters on the messages of a topic. No group is involved.

    Shows how many messages both filters deliver, or one of them alone, with the first examples and
    what the other filter says of each. The command changes nothing; the node need not run. Ahead of
    a change of a group's filter, "groups migrate --dry-run" compares from where the group is.

    Examples:
        rocketray filter diff Trade "amount > 10" "amount > 20" --from 2026-11-01
        rocketray filter diff Trade filter:large@1 filter:large
    """
    from rocketray.broker.filtering.filter_diff import diff_filters  # imports NumPy
    from rocketray.broker.filtering.preview import PreviewRange  # NumPy and Arrow
    from rocketray.messaging.api.queues_here import queues_in

    refuse_cluster("filter diff", data)
    chosen = _filter_of(old, dialect, "OLD"), _filter_of(new, dialect, "NEW")
    filters = filter_in_files(data, topic, chosen[0]), filter_in_files(data, topic, chosen[1])
    span_of(begin_ms, end_ms)  # only for its check
    within = PreviewRange(begin_ms=begin_ms, end_ms=end_ms, queue_id=queue_id, limit=max_scan)
    here = queues_in(data, topic)
    tell_note(here.note(queue_id))
    found = diff_filters(here.directories, topic, filters, within, show=limit)
    for each in filters:
        tell_doubts(data, [topic], each)
    record = {"topic": topic, **diff_record(filters, found)}
    emit(record | {"queuesElsewhere": list(here.elsewhere)}, diff_lines(found), as_json=as_json)


def _filter_of(text: str, dialect: Dialect | None, name: str) -> Subscription | FilterName:
    """Return the filter of an argument, or its name; an expression without a kind is SQL92."""
    kind, colon, rest = text.partition(":")
    if kind == _BY_NAME:
        with usage_error(hint=name):
            return FilterName.parse(rest)
    if not colon or kind not in _KINDS:
        kind, rest = "sql", text
    if not rest.strip():
        raise typer.BadParameter("the filter is empty; tags:* is all messages", param_hint=name)
    tags, sql, where = (rest.strip() if kind == each else None for each in _KINDS)
    try:
        return chosen_subscription(FilterChoice(tags, sql, where, dialect=dialect))
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message, param_hint=name) from None

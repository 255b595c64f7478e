"""``rocketray filter stats``: what the filters of groups rejected and delivered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.base.json_fields import json_fields
from rocketray.base.quantity import agreed, counted
from rocketray.cli.arguments.lookup_options import parse_since
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import (
    SCAN_DEFAULT,
    CommonOptions,
    MaxScanOption,
    OptionalGroupArgument,
    chosen_groups,
    tell_note,
)
from rocketray.cli.terminal.output import TextTable, print_json, print_table, progress
from rocketray.errors import FilterError, NodeElsewhereError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketray.broker.filtering.preview import Preview
    from rocketray.filters.counters import FilterCounters
    from rocketray.groups.group_descriptions import GroupDescription
    from rocketray.messaging.api.node_client import NodeClient
    from rocketray.messaging.api.queues_here import QueuesHere

_COLUMNS = {
    "scanned": "scanned",
    "by tag": "tag_rejected",
    "by bitmap": "bloom_rejected",
    "by SQL": "sql_rejected",
    "by predicate": "class_rejected",
    "collisions": "collisions",
    "errors": "errors",
    "delivered": "delivered",
}


def stats(
    group: OptionalGroupArgument = None,
    *,
    rate: Annotated[
        bool, typer.Option("--rate", help="Show messages in a second, from two samples.")
    ] = False,
    over_s: Annotated[
        float,
        typer.Option(
            "--over", metavar="SECONDS", min=1, max=3600, help="The time between the samples."
        ),
    ] = 5.0,
    since_ms: Annotated[
        int | None,
        typer.Option(
            "--since",
            parser=parse_since,
            metavar="TIME",
            help="Compute them for the messages stored since a time, or within the last 10m or 2h.",
        ),
    ] = None,
    max_scan: MaxScanOption = SCAN_DEFAULT,
    common: CommonOptions,
) -> None:
    """Show the counters of groups' filters, or their rates.

    \b
    They begin at 0 when the coordinator starts.
    scanned                             messages that a filter evaluated
    by tag, bitmap, SQL, predicate      messages that this step rejected
    collisions                          rejected by the consumer: right hash, other tag
    errors                              the filter failed on the message
    delivered                           delivered to the group

    A member reports about once a second. With --since the counters are those of a group that reads
    the messages stored since then with the filter of today: each group's filter is evaluated by
    this command, at most --max-scan messages a group, and "matched" says what the group gets or
    got. --json names every counter, and errors by their kind: evaluationErrors, predicateErrors,
    predicateTimeouts.

    Examples:
        rocketray filter stats --rate
        rocketray filter stats audit --since 2h
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    if rate and since_ms is not None:
        raise typer.BadParameter("--rate samples what happens now, --since reads the log; give one")
    with ask(common.data) as connection:
        chosen, begun_s = chosen_groups(connection.groups.all(), group), time.monotonic()
        if since_ms is not None:
            _print_since(connection, chosen, since_ms, max_scan, common)
            return
        if rate:
            time.sleep(over_s)
            before = {(each.group, each.topic): each.counters for each in chosen}
            chosen = chosen_groups(connection.groups.all(), group)
        seconds = time.monotonic() - begun_s
        stuck = connection.filters.statistics().stuck_calls
    if stuck:
        progress(
            f"warning: {counted(stuck, 'call')} of predicates {agreed(stuck, 'do')} not return; "
            "see predicateTimeouts"
        )
    if rate:
        _print_rates(chosen, before, seconds, common)
        return
    rows = ((each.group, each.topic, *_numbers(each.counters)) for each in chosen)
    records = (_names(each) | {"counters": json_fields(each.counters)} for each in chosen)
    common.emit(records, TextTable(("group", "topic", *_COLUMNS), rows))


def _names(group: GroupDescription) -> dict[str, Any]:
    return {"group": group.group, "topic": group.topic}


def _print_since(
    node: NodeClient,
    chosen: Sequence[GroupDescription],
    since_ms: int,
    max_scan: int,
    common: CommonOptions,
) -> None:
    """Print the counters of messages in the log; of a group where that fails, why."""
    rows = []
    for each in chosen:
        read = _since(node, each, since_ms, max_scan)
        if isinstance(read, str):
            if common.as_json:
                print_json(_names(each) | {"sinceMs": since_ms, "unknown": read})
            else:
                progress(f"group {each.group}, topic {each.topic}: unknown, because {read}")
            continue
        found, here = read
        tell_note(here.note())
        if common.as_json:
            held = {"sinceMs": since_ms, "held": found.held, "queuesElsewhere": [*here.elsewhere]}
            counters = {
                _since_name(name): number for name, number in json_fields(found.counters).items()
            }
            print_json(_names(each) | held | {"counters": counters})
        rows.append((each.group, each.topic, *_numbers(found.counters)))
        if found.counters.scanned < found.held:
            progress(
                f"group {each.group}, topic {each.topic}: only {found.counters.scanned:,} of "
                f"{found.held:,} messages were scanned: --max-scan"
            )
    if not common.as_json:
        print_table(("group", "topic", *map(_since_name, _COLUMNS)), rows)


def _since_name(counter: str) -> str:
    """Return the name of a counter of messages in the log: nothing was delivered."""
    return "matched" if counter == "delivered" else counter


def _since(
    node: NodeClient, group: GroupDescription, since_ms: int, max_scan: int
) -> tuple[Preview, QueuesHere] | str:
    """Evaluate the filter of *group* on what is stored; return why, if that is not possible."""
    from rocketray.broker.filtering.preview import PreviewRange, preview  # Arrow
    from rocketray.messaging.api.queues_here import queues_of

    topic = node.topics.all().get(group.topic)
    if topic is None:
        return "the topic does not exist any more"
    within = PreviewRange(begin_ms=since_ms, limit=max_scan)
    try:
        here = queues_of(node, topic)
        found = preview(here.directories, group.topic, group.subscription, within, show=0)
    except (FilterError, NodeElsewhereError) as error:
        return str(error)
    return found, here


def _print_rates(
    chosen: Sequence[GroupDescription],
    before: Mapping[tuple[str, str], FilterCounters],
    seconds: float,
    common: CommonOptions,
) -> None:
    """Print how much the counters grew in a second; of a group that was not there, nothing."""
    grown = [
        (each, each.counters - before[each.group, each.topic])
        for each in chosen
        if (each.group, each.topic) in before
    ]
    records = (
        _names(each)
        | {"seconds": seconds}
        | {"perSecond": {name: n / seconds for name, n in json_fields(counters).items()}}
        for each, counters in grown
    )
    rows = (
        (each.group, each.topic, *(f"{number / seconds:,.1f}" for number in _numbers(counters)))
        for each, counters in grown
    )
    shown: list[str | TextTable] = [
        TextTable(("group", "topic", *_COLUMNS), rows, right=tuple(_COLUMNS)),
        f"messages in a second, over {seconds:.1f} s; members report each second",
    ]
    if any(min(counters.numbers()) < 0 for _, counters in grown):
        shown.append(
            "the coordinator started again meanwhile, and its counters begin at 0: look again"
        )
    common.emit(records, shown)


def _numbers(counters: FilterCounters) -> list[int]:
    return [getattr(counters, name) for name in _COLUMNS.values()]

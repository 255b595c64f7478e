"""``rocketray groups``: the consumer groups, their subscriptions and their progress."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.base.quantity import counted
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import (
    CommonOptions,
    GroupArgument,
    OptionalGroupArgument,
    chosen_groups,
)
from rocketray.cli.terminal.output import TextTable, as_time, table_of
from rocketray.errors import ConfigError, StreamError
from rocketray.views.node_records import group_record, progress_record, progress_rows

from .group_changes import clone, migrate, reset, seek, skip
from .group_members import members

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rocketray.broker.filtering.filtered_lag import FilteredLag
    from rocketray.groups.group_descriptions import GroupDescription
    from rocketray.messaging.api.node_client import NodeClient

groups = typer.Typer(
    help="List groups, show their progress, move their offsets.", no_args_is_help=True
)
_PROGRESS_COLUMNS = {
    "queue": "queueId",
    "broker offset": "brokerOffset",
    "consumer offset": "consumerOffset",
    "diff": "diff",
    "inflight": "inflight",
    "lag": "lag",
    "last time": "lastTime",
    "client id": "clientId",
}


def progress(group: OptionalGroupArgument = None, *, common: CommonOptions) -> None:
    """Show the progress of groups, as mqadmin's consumerProgress.

    Diff counts all messages between the consumer's offset and the broker's; lag counts those of
    them that match the group's filter, exact unless marked otherwise, as in "groups lag". The
    client is the member that reads the queue now, and inflight is what it has taken and not
    finished, as reported about a second ago. Last time is when the message before the consumer's
    offset was stored. Members of a broadcast group keep their own offsets: its rows have no such
    numbers. Below the table are the queues that are held at a failing message, and the number of
    messages on which a group's filter failed since the coordinator started.

    Examples:
        rocketray groups progress
        rocketray groups progress audit --json
    """
    with ask(common.data) as connection:
        found = chosen_groups(connection.groups.all(), group)
        rows = [row for each in found for row in progress_rows(connection, each)]
    errors = {(each.group, each.topic): each.counters.errors for each in found}
    records = (progress_record(row, errors[row["group"], row["topic"]]) for row in rows)
    common.emit(records, _shown_progress(rows, errors))


def _shown_progress(
    rows: Sequence[dict[str, Any]], errors: Mapping[tuple[str, str], int]
) -> Iterator[str | TextTable]:
    for (name, topic), of_topic in groupby(rows, key=itemgetter("group", "topic")):
        yield f"group {name}, topic {topic}"
        cells = [
            {**row, "lag": _lag(row), "lastTime": as_time(row["lastTime"])} for row in of_topic
        ]
        shown = [[row[key] for key in _PROGRESS_COLUMNS.values()] for row in cells]
        yield TextTable(tuple(_PROGRESS_COLUMNS), shown, right=("lag",))
        for row in cells:
            if row["held"]:
                yield f"queue {row['queueId']} is {row['held']}"
        if errors[name, topic]:
            yield f"the filter failed on {counted(errors[name, topic], 'message')}"
        yield ""
    known = [row for row in rows if row["diff"] is not None]  # not those of broadcast groups
    left_out = ", without broadcast groups" if known and len(known) < len(rows) else ""
    for name in ("diff", "inflight"):
        total = sum(row[name] or 0 for row in known) if known or not rows else "unknown"
        yield f"{name} total: {total}{left_out}"


def _lags_of(
    connection: NodeClient, groups: Sequence[GroupDescription]
) -> Iterator[tuple[GroupDescription, dict[int, FilteredLag]]]:
    from rocketray.messaging.api.node_client import lags_of

    topics = connection.topics.all()
    for group, found in zip(groups, lags_of(connection, groups, topics), strict=True):
        if isinstance(found, StreamError):
            raise found
        yield group, found


def _lag(row: dict[str, Any]) -> str | None:
    """Return the number, with its exactness if it is not exact."""
    if row["lag"] is None or row["exactness"] == "exact":
        return None if row["lag"] is None else str(row["lag"])
    return f"{row['lag']} ({row['exactness'].replace('_', ' ')})"


for command in (progress, members, migrate, reset, skip, seek, clone):
    groups.command()(command)


@groups.command("list")
def list_all(*, common: CommonOptions) -> None:
    """List the consumer groups: subscriptions and offsets.

    An offset is the next message that the group will get from a queue; -1: it has none yet. Missed
    counts messages that were deleted before the group read them; sent back counts failed messages
    that are redelivered, dead letters those that are not. The counts begin when the coordinator
    starts.

    Examples:
        rocketray groups list
        rocketray groups list --json
    """
    with ask(common.data) as connection:
        found = chosen_groups(connection.groups.all(), None)
    rows = (
        (
            group.group,
            group.topic,
            _subscribed(group),
            len(group.members),
            group.counters.missed,
            group.counters.sent_back,
            group.counters.dead_lettered,
            " ".join(str(offset) for _, offset in sorted(group.offsets.items())),
        )
        for group in found
    )
    counts = ("members", "missed", "sent back", "dead letters")
    columns = ("group", "topic", "subscribed to", *counts, "next offsets")
    common.emit(map(group_record, found), TextTable(columns, rows))


@groups.command()
def lag(group: OptionalGroupArgument = None, *, common: CommonOptions) -> None:
    """Show the lag of groups, queue by queue.

    Diff counts all messages that a group has not finished, lag those of them that match its
    filter. A lag is exact, or "at least" if counting further would have cost too much: repeat the
    command, and the count continues from there. A predicate is not evaluated: then lag counts all
    messages ("unfiltered").

    Examples:
        rocketray groups lag
        rocketray groups lag audit --json
    """
    with ask(common.data) as connection:
        rows = [
            {
                "group": each.group,
                "topic": each.topic,
                "queueId": queue,
                "offset": each.offsets[queue],
                "diff": found.diff,
                "lag": found.count,
                "exactness": found.exactness.value,
            }
            for each, lags in _lags_of(connection, chosen_groups(connection.groups.all(), group))
            for queue, found in lags.items()
        ]
    columns = ("group", "topic", "queue", "next offset", "diff", "lag", "exactness")
    keys = {"queue": "queueId", "next offset": "offset"}
    common.emit(rows, table_of(rows, columns, keys))


@groups.command()
def delete(group: GroupArgument, *, common: CommonOptions) -> None:
    """Delete a group without members. A new group of that name starts afresh.

    Examples:
        rocketray groups delete audit
        rocketray groups delete audit --data /srv/stream
    """
    with ask(common.data) as connection:
        connection.groups.delete(group)
    common.emit({"group": group, "deleted": True}, f"group {group} was deleted")


@groups.command()
def export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to write the files; created if missing.")
    ],
    *,
    common: CommonOptions,
) -> None:
    """Export groups and offsets in RocketMQ's own files.

    They are subscriptionGroup.json and consumerOffset.json, as a RocketMQ broker keeps them.

    The groups are those of the node's last save: at the stop of the node, and at most 5 seconds old
    while it runs. A file that exists is not overwritten.

    Examples:
        rocketray groups export ./exported
        rocketray groups export ./exported --data /srv/stream
    """
    from rocketray.actors.cluster.groups_file import rocketmq_files  # imports orjson
    from rocketray.runtime.files.state_files import write_json

    files = {directory / name: value for name, value in rocketmq_files(common.data).items()}
    for path in files:
        if path.exists():
            raise ConfigError(f"{path} exists and is not overwritten; name another directory")
    for path, value in files.items():
        write_json(path, value, backup=False)
        common.emit({"file": str(path)}, f"{path} is written")


def _subscribed(group: GroupDescription) -> str:
    change = "" if group.plan is None else f", changing to {group.plan.new}"
    return f"{group.subscription}{change}"

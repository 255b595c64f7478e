"""``rocketray groups``: the consumer groups, their subscriptions and their progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.cli.arguments.group_choice import OptionalGroupArgument, chosen_groups
from rocketray.cli.arguments.node import connect
from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption, GroupArgument, JsonOption
from rocketray.cli.terminal.output import print_json, print_line, print_table
from rocketray.errors import ConfigError

from .group_migrate import migrate
from .group_moves import reset, seek, skip
from .group_progress import progress

if TYPE_CHECKING:
    from rocketray.actors.groups.group_descriptions import GroupDescription

__all__ = ["groups"]

groups = typer.Typer(
    help="List groups, show their progress, move their offsets.", no_args_is_help=True
)
for command in (progress, migrate, reset, skip, seek):
    groups.command()(command)


@groups.command("list")
def list_all(*, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False) -> None:
    """List the consumer groups: subscriptions and offsets.

    An offset is the next message that the group will get from a queue; -1: it has none yet. Missed
    counts messages that were deleted before the group read them; sent back counts failed messages
    that are redelivered, dead letters those that are not. The counts begin when the coordinator
    starts.
    """
    with connect(data) as connection:
        found = chosen_groups(connection.groups.all(), None)
    if as_json:
        for group in found:
            print_json(_fields(group))
        return
    rows = [
        (
            group.group,
            group.topic,
            _subscribed(group),
            len(group.members),
            group.counters.missed,
            group.counters.sent_back,
            group.counters.dead_lettered,
            _offsets(group),
        )
        for group in found
    ]
    numbers = ("members", "missed", "sent back", "dead letters")
    columns = ("group", "topic", "subscribed to", *numbers, "next offsets")
    print_table(columns, rows, right=numbers)


@groups.command()
def lag(
    group: OptionalGroupArgument = None,
    *,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the lag of groups, queue by queue.

    Behind counts all messages that a group has not finished, lag those of them that match its
    filter. A lag is exact, or "at least" if counting further would have cost too much: repeat the
    command, and the count continues from there. A predicate is not evaluated: then lag counts all
    messages ("unfiltered").
    """
    with connect(data) as connection:
        rows = [
            (each.group, each.topic, queue, each.offsets[queue], found)
            for each in chosen_groups(connection.groups.all(), group)
            for queue, found in connection.filters.lag(each).items()
        ]
    if as_json:
        for name, topic, queue, offset, found in rows:
            print_json(
                {
                    "group": name,
                    "topic": topic,
                    "queueId": queue,
                    "offset": offset,
                    "behind": found.behind,
                    "lag": found.count,
                    "exactness": found.exactness.value,
                }
            )
        return
    cells = [
        (name, topic, queue, offset, found.behind, found.count, found.exactness.value)
        for name, topic, queue, offset, found in rows
    ]
    columns = ("group", "topic", "queue", "next offset", "behind", "lag", "exactness")
    print_table(columns, cells, right=columns[2:6])


@groups.command()
def delete(
    group: GroupArgument, *, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False
) -> None:
    """Delete a group without members. A new group of that name starts afresh."""
    with connect(data) as connection:
        connection.groups.delete(group)
    if as_json:
        print_json({"group": group, "deleted": True})
    else:
        print_line(f"group {group} was deleted")


@groups.command()
def export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to write the files; created if missing.")
    ],
    *,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Export groups and offsets in RocketMQ's own files.

    They are subscriptionGroup.json and consumerOffset.json, as a RocketMQ broker keeps them.

    The groups are those of the node's last save: at the stop of the node, and at most 5 seconds old
    while it runs. A file that exists is not overwritten.
    """
    from rocketray.actors.cluster.groups_file import rocketmq_files  # noqa: PLC0415 - imports orjson
    from rocketray.actors.files.state_files import write_json  # noqa: PLC0415 - as above

    files = {directory / name: value for name, value in rocketmq_files(data).items()}
    for path in files:
        if path.exists():
            raise ConfigError(f"{path} exists and is not overwritten; name another directory")
    for path, value in files.items():
        write_json(path, value, backup=False)
        if as_json:
            print_json({"file": str(path)})
        else:
            print_line(f"{path} is written")


def _fields(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group,
        "topic": group.topic,
        "subscription": group.subscription.to_json(),
        "changingTo": None if group.plan is None else group.plan.new.to_json(),
        "offsets": {str(queue): offset for queue, offset in sorted(group.offsets.items())},
        "members": group.members,
        "counters": group.counters.to_json(),
    }


def _subscribed(group: GroupDescription) -> str:
    change = "" if group.plan is None else f", changing to {group.plan.new}"
    return f"{group.subscription}{change}"


def _offsets(group: GroupDescription) -> str:
    return " ".join(str(offset) for _, offset in sorted(group.offsets.items()))

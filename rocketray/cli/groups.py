"""``rocketray groups``: who consumes what, and how far each group has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from .node import connect
from .options import DATA_DEFAULT, DataOption, GroupArgument, JsonOption
from .output import print_json, print_line, print_table

if TYPE_CHECKING:
    from rocketray.actors.groups import GroupDescription

__all__ = ["groups"]

groups = typer.Typer(help="List and remove consumer groups.", no_args_is_help=True)


@groups.command("list")
def list_all(*, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False) -> None:
    """List the consumer groups, with what each is subscribed to and how far it has come.

    An offset is the next message that the group will get from a queue; -1: it has none yet.
    Missed are messages that were deleted before the group read them, since the node started.
    """
    with connect(data) as connection:
        found = sorted(connection.groups(), key=lambda group: (group.group, group.topic))
    if as_json:
        for group in found:
            print_json(_fields(group))
        return
    rows = [
        (
            group.group,
            group.topic,
            group.subscription,
            len(group.members),
            group.counters.missed,
            _offsets(group),
        )
        for group in found
    ]
    columns = ("group", "topic", "subscribed to", "members", "missed", "next offsets")
    print_table(columns, rows, right=("members", "missed"))


@groups.command()
def delete(
    group: GroupArgument, *, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False
) -> None:
    """Forget a group that has no members; one of that name will start anew."""
    with connect(data) as connection:
        connection.delete_group(group)
    if as_json:
        print_json({"group": group, "deleted": True})
    else:
        print_line(f"group {group} is removed")


def _fields(group: GroupDescription) -> dict[str, Any]:
    return {
        "group": group.group,
        "topic": group.topic,
        "subscription": group.subscription.to_json(),
        "offsets": {str(queue): offset for queue, offset in sorted(group.offsets.items())},
        "members": group.members,
        "counters": group.counters.to_json(),
    }


def _offsets(group: GroupDescription) -> str:
    return " ".join(str(offset) for _, offset in sorted(group.offsets.items()))

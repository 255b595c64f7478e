"""``rocketray groups members``: the processes that are members of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketray.base.quantity import counted
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import CommonOptions, OptionalGroupArgument, chosen_groups
from rocketray.cli.terminal.output import TextTable, as_time
from rocketray.views.message_records import printable
from rocketray.views.node_records import UNKNOWN_RELEASE, members_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rocketray.groups.group_descriptions import GroupDescription

_COLUMNS = ("member", "machine", "process", "release", "joined", "heard", "queues", "asks for")
_UNKNOWN = "unknown"


def members(group: OptionalGroupArgument = None, *, common: CommonOptions) -> None:
    """Show the members of groups, as mqadmin's consumerConnection.

    Release is that of rocketray in the member's process. Joined is since when it is a member
    without interruption, heard how long ago its last heartbeat came: it sends one a second. Queues
    are those that it owns; if it still reads others, which it has to release, they are named. Asks
    for is the filter that it asks for, which differs from the group's during a change. What a
    member of an earlier release does not tell is unknown.

    Examples:
        rocketray groups members
        rocketray groups members audit --json
    """
    with ask(common.data) as connection:
        found = chosen_groups(connection.groups.all(), group)
    records = [members_record(each) for each in found]
    common.emit(records, _shown(found, records))


def _shown(
    groups: Sequence[GroupDescription], records: Sequence[dict[str, Any]]
) -> Iterator[str | TextTable]:
    for group, record in zip(groups, records, strict=True):
        where = f"group {group.group}, topic {group.topic}, {group.subscription}"
        if not record["members"]:
            yield f"{where}: no members"
            continue
        yield where
        yield TextTable(_COLUMNS, [_row(group, each) for each in record["members"]])
        if len(record["releases"]) > 1:
            yield f"the members are of different releases: {_releases(record['releases'])}"
        yield ""


def _row(group: GroupDescription, record: Mapping[str, Any]) -> list[object]:
    client = group.clients[record["clientId"]]
    silent_ms = record["silentMs"]
    queues = " ".join(map(str, record["queues"])) or "none"
    if late := sorted({*record["reads"]} - {*record["queues"]}):
        queues += f", releases {' '.join(map(str, late))}"
    return [
        record["clientId"],
        printable(record["machine"] or _UNKNOWN),
        record["pid"] or _UNKNOWN,
        printable(record["release"] or _UNKNOWN),
        as_time(record["joinedMs"]) or _UNKNOWN,
        _UNKNOWN if silent_ms is None else f"{silent_ms / 1000:.1f} s ago",
        queues,
        client.subscription or _UNKNOWN,
    ]


def _releases(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{counted(count, 'member')} of {'an unknown release' if name == UNKNOWN_RELEASE else name}"
        for name, count in counts.items()
    )

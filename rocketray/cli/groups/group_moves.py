"""``rocketray groups reset``, ``skip`` and ``seek``: move a group's offsets."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.actors.runtime.machine import user_name
from rocketray.cli.arguments.lookup_options import parse_place, parse_time_ms
from rocketray.cli.arguments.node import connect
from rocketray.cli.arguments.options import (
    DATA_DEFAULT,
    DataOption,
    GroupArgument,
    JsonOption,
    TopicArgument,
    chosen_groups,
)
from rocketray.cli.terminal.output import print_line, print_records
from rocketray.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from rocketray.actors.admin.seeking import OffsetMove
    from rocketray.actors.client.connection import Connection
    from rocketray.actors.groups.group_descriptions import GroupDescription

__all__ = ["reset", "seek", "skip"]

_WAIT_S = 30.0

OnlyTopicOption = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")
]
QueueOption = Annotated[
    int | None, typer.Option("--queue", metavar="N", min=0, help="Only this queue.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would change; change nothing.")
]


def reset(
    group: GroupArgument,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHEN",
            help="earliest, latest, or a time: the first message stored then or later.",
        ),
    ],
    topic: OnlyTopicOption = None,
    queue: QueueOption = None,
    dry_run: DryRunOption = False,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Reset a group's offsets, to a time or to an end.

    Members need not stop: each releases the queues that move, with its last commits, and resumes
    after the move. Messages between the old and the new offset are skipped, or redelivered.
    """
    goal = parse_place(to)

    def plan(connection: Connection, found: list[GroupDescription]) -> list[OffsetMove]:
        from rocketray.actors.admin.seeking import plan_moves  # noqa: PLC0415 - imports the node

        if isinstance(goal, int):
            return plan_moves(connection, found, time_ms=goal, queue_id=queue)
        return plan_moves(connection, found, to=goal, queue_id=queue)

    _move("reset", data, group, topic, plan, dry_run=dry_run, as_json=as_json)


def skip(
    group: GroupArgument,
    *,
    topic: OnlyTopicOption = None,
    queue: QueueOption = None,
    dry_run: DryRunOption = False,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Skip all messages that a group has not finished.

    It continues with messages that are sent from now on. Members need not stop; see "groups reset".
    """

    def plan(connection: Connection, found: list[GroupDescription]) -> list[OffsetMove]:
        from rocketray.actors.admin.seeking import plan_moves  # noqa: PLC0415 - imports the node

        return plan_moves(connection, found, to="latest", queue_id=queue)

    _move("skip", data, group, topic, plan, dry_run=dry_run, as_json=as_json)


def seek(
    group: GroupArgument,
    topic: TopicArgument,
    *,
    offset: Annotated[
        int | None, typer.Option("--offset", metavar="N", min=0, help="This queue offset.")
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(
            "--time",
            parser=parse_time_ms,
            metavar="TIME",
            help="The first message stored then or later.",
        ),
    ] = None,
    queue: QueueOption = None,
    dry_run: DryRunOption = False,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Move a group's offsets in one topic to an offset or a time.

    It moves all queues of the topic, or one with --queue. Members need not stop; see "groups
    reset".
    """
    if (offset is None) == (at is None):
        raise typer.BadParameter("give one of --offset and --time")

    def plan(connection: Connection, found: list[GroupDescription]) -> list[OffsetMove]:
        from rocketray.actors.admin.seeking import plan_moves  # noqa: PLC0415 - imports the node

        return plan_moves(connection, found, time_ms=at, offset=offset, queue_id=queue)

    _move("seek", data, group, topic, plan, dry_run=dry_run, as_json=as_json)


def _move(
    command: str,
    data: Path,
    group: str,
    topic: str | None,
    plan: Callable[[Connection, list[GroupDescription]], list[OffsetMove]],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    from rocketray.actors.admin.seeking import carry_out  # noqa: PLC0415 - imports the node

    with connect(data) as connection:
        found = [
            each
            for each in chosen_groups(connection.groups.all(), group)
            if topic is None or each.topic == topic
        ]
        if not found:
            raise ConfigError(f"group {group!r} does not read topic {topic!r}")
        moves = plan(connection, found)
        if not dry_run:
            who = f"rocketray groups {command} by {user_name()} on {socket.gethostname()}"
            carry_out(connection.groups, moves, _WAIT_S, who=who)
    columns = {each: each for each in ("topic", "queue", "from", "to", "skipped", "repeated")}
    rows = [{**_fields(move), "moved": not dry_run} for move in moves]
    print_records(rows, columns | {"queue": "queueId"}, as_json=as_json)
    if dry_run and not as_json:
        print_line("nothing was changed; leave out --dry-run to do it")


def _fields(move: OffsetMove) -> dict[str, Any]:
    return {
        "group": move.group,
        "topic": move.topic,
        "queueId": move.queue_id,
        "from": move.from_offset,
        "to": move.to_offset,
        "skipped": move.skipped,
        "repeated": move.repeated,
    }

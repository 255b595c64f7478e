"""``rocketray groups migrate``: another subscription for a group that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .node import connect
from .options import (
    DATA_DEFAULT,
    DataOption,
    DialectOption,
    GroupArgument,
    JsonOption,
    OnFilterErrorOption,
    SqlOption,
    TagsOption,
    TopicArgument,
    WhereOption,
    chosen_subscription,
)
from .output import print_json, print_line, progress

if TYPE_CHECKING:
    from rocketray.actors.filter_changes import PlanProgress

__all__ = ["migrate"]


def migrate(
    group: GroupArgument,
    topic: TopicArgument,
    *,
    tags: TagsOption = None,
    sql: SqlOption = None,
    dialect: DialectOption = "rocketmq",
    where: WhereOption = None,
    on_filter_error: OnFilterErrorOption = "stop",
    abort: Annotated[
        bool, typer.Option("--abort", help="Drop a change that has not begun to switch.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0, help="Wait so many seconds at most.")
    ] = 60.0,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Change what a group subscribes to while its members run.

    First the group holds both subscriptions, and members may ask for either. When all members know
    of it, each queue switches at one offset: below it exactly the old filter delivers, from it on
    exactly the new one. Then replace the members by ones that ask for the new subscription; with
    the last of them the change is complete. A command that was interrupted may be repeated.
    """
    from rocketray.actors.migration import migrate as carry_out  # noqa: PLC0415 - imports the node

    with connect(data) as connection:
        if abort:
            connection.ask_groups("abort_change", group, topic)
            print_json({"aborted": True}) if as_json else print_line("the change is dropped")
            return
        subscription = chosen_subscription(tags, sql, where, on_filter_error, dialect)
        found = carry_out(
            connection, group, topic, subscription, timeout_s=timeout_s, tell=progress
        )
    if as_json:
        print_json(_fields(found))
    else:
        for line in _lines(group, topic, found):
            print_line(line)


def _fields(found: PlanProgress | None) -> dict[str, Any]:
    if found is None:
        return {"complete": True}
    return {
        "complete": False,
        "switches": {str(queue): offset for queue, offset in found.plan.switches.items()},
        "withoutSwitch": found.without_switch,
        "beforeSwitch": found.before_switch,
        "outdated": found.outdated,
    }


def _lines(group: str, topic: str, found: PlanProgress | None) -> list[str]:
    if found is None:
        return [f"group {group} reads topic {topic} with the new subscription"]
    lines = [
        f"queue {queue} switches at offset {offset}"
        for queue, offset in sorted(found.plan.switches.items())
    ]
    if found.without_switch:
        lines.append(
            f"queues without a reader, which switch when they have one: {found.without_switch}"
        )
    if found.before_switch:
        lines.append(f"queues that are still read up to their switch: {found.before_switch}")
    if found.outdated:
        lines.append(f"members that still ask for the old one, to be replaced: {found.outdated}")
    return lines

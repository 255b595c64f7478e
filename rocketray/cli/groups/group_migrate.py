"""``rocketray groups migrate``: change the subscription of a running group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.cli.arguments.node import connect
from rocketray.cli.arguments.options import (
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
    tell_doubts,
)
from rocketray.cli.terminal.output import print_result, progress

if TYPE_CHECKING:
    from rocketray.actors.groups.subscription_changes import PlanProgress

__all__ = ["migrate"]


def migrate(
    group: GroupArgument,
    topic: TopicArgument,
    *,
    tags: TagsOption = None,
    sql: SqlOption = None,
    dialect: DialectOption = None,
    where: WhereOption = None,
    on_filter_error: OnFilterErrorOption = "stop",
    abort: Annotated[
        bool, typer.Option("--abort", help="Drop a change before any queue has begun to switch.")
    ] = False,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", metavar="S", min=0, help="Maximum time to wait, in seconds."),
    ] = 60.0,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Change what a group subscribes to while its members run.

    First the group holds both subscriptions, and members may ask for either. When all members have
    received the change, each queue switches at one offset: below it exactly the old filter
    delivers, from it on exactly the new one. Then replace the members by ones that ask for the new
    subscription; with the last of them the change is complete. An interrupted command may be
    repeated.
    """
    from rocketray.actors.admin.migration import migrate as carry_out  # noqa: PLC0415 - the node

    if not abort and tags is None and sql is None and where is None:
        raise typer.BadParameter(
            "give the new filter with --tags, --sql or --where; --tags '*' is all messages"
        )
    with connect(data) as connection:
        if abort:
            connection.groups.abort_change(group, topic)
            print_result({"aborted": True}, "the change was dropped", as_json=as_json)
            return
        subscription = chosen_subscription(tags, sql, where, on_filter_error, dialect)
        tell_doubts(connection.data, [topic], subscription)
        found = carry_out(
            connection.groups, group, topic, subscription, timeout_s=timeout_s, tell=progress
        )
    print_result(_fields(found), "\n".join(_lines(group, topic, found)), as_json=as_json)


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
        way_out = "" if found.plan.switches else ", and until then --abort drops the change"
        lines.append(
            f"queues {_queues(found.without_switch)} have no consumer; they switch when one joins"
            f"{way_out}"
        )
    if found.before_switch:
        lines.append(f"queues {_queues(found.before_switch)} have not reached their switch")
    if found.outdated:
        lines.append(
            f"members to be replaced, as they ask for the old one: {', '.join(found.outdated)}"
        )
    return lines


def _queues(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))

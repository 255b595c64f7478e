"""``rocketray filter stats``: the counters of each group's filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketray.cli.arguments.group_choice import OptionalGroupArgument, chosen_groups
from rocketray.cli.arguments.node import connect
from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption, JsonOption
from rocketray.cli.terminal.output import print_json, print_table, progress

if TYPE_CHECKING:
    from rocketray.actors.groups.group_descriptions import GroupDescription

__all__ = ["stats"]

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
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the counters of groups' filters.

    \b
    They begin at 0 when the coordinator starts.
    scanned                             messages that a filter evaluated
    by tag, bitmap, SQL, predicate      messages that this step rejected
    collisions                          rejected by the consumer: right hash, other tag
    errors                              the filter failed on the message
    delivered                           delivered to the group

    A member reports about once a second. --json names every counter, and errors by their kind:
    evaluationErrors, predicateErrors, predicateTimeouts.
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    with connect(data) as connection:
        chosen = chosen_groups(connection.groups.all(), group)
        stuck = connection.filters.statistics().stuck_calls
    if stuck:
        progress(f"warning: {stuck} calls of predicates do not return; see predicateTimeouts")
    if as_json:
        for each in chosen:
            names = {"group": each.group, "topic": each.topic}
            print_json(names | {"counters": each.counters.to_json()})
        return
    print_table(("group", "topic", *_COLUMNS), map(_row, chosen), right=tuple(_COLUMNS))


def _row(group: GroupDescription) -> tuple[object, ...]:
    numbers = (getattr(group.counters, name) for name in _COLUMNS.values())
    return (group.group, group.topic, *numbers)

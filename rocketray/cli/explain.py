"""``rocketray explain``: why a message was, or was not, delivered to a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .node import connect
from .options import DATA_DEFAULT, DataOption, JsonOption
from .output import print_json, print_line

if TYPE_CHECKING:
    from rocketray.actors.explanation import Explanation
    from rocketray.filters.explain import ExplainStep

__all__ = ["explain"]


def explain(
    message: Annotated[
        str,
        typer.Argument(metavar="ID|KEY", help="An offset id, a unique id, or one of the keys."),
    ],
    *,
    group: Annotated[
        str, typer.Option("--group", metavar="GROUP", help="The consumer group in question.")
    ],
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="Where to look a key up; else everywhere."),
    ] = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Tell the way of one message to a group, and where it ended.

    \b
    The cause is one of
      delivered          the group has finished it
      on_its_way         it matches and a member works on its queue
      waits_for_retry    a handler failed on it, and it comes again later
      dead_letter        handlers failed on it too often; see: rocketray dlq
      not_found          there is no such message, or not any more
      half_message       of a transaction that is not committed
      rolled_back        of a transaction that was rolled back
      not_dispatched     it is in the log and not in its queue
      expired            the queue begins behind it now
      no_group           the group never had a member
      not_subscribed     the group does not subscribe to the message's topic
      before_start       the group began behind it
      tag_mismatch       its tag is none that the group wants
      tag_collision      its tag only has the same hash code
      sql_false, sql_null, sql_error         the SQL92 expression: false, unknown, failed
      bloom_wrong                            a damaged bitmap hides a message that matches
      class_false, class_error               the predicate: said no, failed
      no_consumer        it matches, and no member is alive
      not_assigned       it matches, and no member has its queue yet

    Nothing is changed by asking. A key finds the newest message that has it.
    --json prints one object: cause, offsetMsgId, and steps, each with stage, result and detail.
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    with connect(data) as connection:
        found = connection.explain(message, group, topic)
    print_json(found.to_json()) if as_json else _print(found)


def _print(found: Explanation) -> None:
    print_line(f"{found.cause.value}" + (f"  {found.message_id}" if found.message_id else ""))
    width = max(len(step.stage) for step in found.steps)
    for step in found.steps:
        indent = "  " * step.depth
        text = f"{step.result}: {step.detail}{_values(step)}"
        print_line(f"  {step.stage:{width}}  {indent}{text}")


def _values(step: ExplainStep) -> str:
    shown = [
        f"{name} is absent" if value is None else f"{name} = {value!r}"
        for name, value in step.values.items()
    ]
    return f"  ({', '.join(shown)})" if shown else ""

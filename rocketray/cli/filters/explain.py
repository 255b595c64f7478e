"""``rocketray explain``: why a message was, or was not, delivered to a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.actors.explaining.cause import Cause
from rocketray.cli.arguments.node import connect
from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption, JsonOption
from rocketray.cli.terminal.output import print_json, print_line

if TYPE_CHECKING:
    from rocketray.actors.explaining.explanation import Explanation
    from rocketray.filters.filter_verdict import ExplainStep

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
        typer.Option(
            "--topic", metavar="TOPIC", help="The topic to look a key up in; default: all."
        ),
    ] = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Explain whether a message was delivered to a group, and why.

    \b
    The cause is one of
      delivered        the group has finished it
      on_its_way       it matches, and a member works on its queue
      waits_for_retry  a handler failed on it, and it will be redelivered
      failing          its member keeps failing on it, and its queue is held
      dead_letter      its handlers failed too often; see: rocketray dlq
      skipped          the group's offset was moved past it: groups skip, seek or reset
      before_start     the group started after it
      tag_mismatch     its tag is not one that the group subscribes to
      tag_collision    its tag only has the hash code of one that the group subscribes to
      sql_false        the SQL92 expression is false
      sql_null         the SQL92 expression is NULL for it, for instance where a property is absent
      sql_error        the SQL92 expression fails on it
      bloom_wrong      a damaged bitmap hides a message that matches
      class_false      the predicate returned False
      class_error      the predicate fails on it, and the group skips such messages
      stands_still     the predicate fails on it or on an earlier one, and the group stopped there
      no_consumer      it matches, and no member is alive
      not_assigned     it matches, and no member has its queue yet
      not_readable     its topic has no read permission (perm 2)
      delayed          it is not due yet
      recalled         it was recalled before it was due
      half_message     its transaction is not committed, or was abandoned
      rolled_back      its transaction was rolled back
      undeliverable    its topic could not store it: it is a dead letter of the node itself
      not_dispatched   it is in the commit log, but not in its consume queue
      expired          retention removed it
      not_found        there is no such message, or it was removed
      no_group         the group never had a member
      group_deleted    the group was deleted, with its offsets
      not_subscribed   the group does not read the message's topic
      topic_deleted    the message's topic was deleted
      unknown          no record of it: the group is broadcast, or its journal starts later

    The command changes nothing. A key finds the newest message with that key, in its topic or on
    its way there. The group's journal tells what moved its offsets and changed its filter. --json
    prints one object: cause, offsetMsgId, and steps, each with stage, result and detail. The exit
    code is 1 for not_found, and 0 for each other cause.
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    with connect(data) as connection:
        found = connection.explain(message, group, topic)
    print_json(found.to_json()) if as_json else _print(found)
    if found.cause is Cause.NOT_FOUND:
        raise typer.Exit(1)


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

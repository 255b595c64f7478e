"""``rocketray explain``: why a message was, or was not, delivered to a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.actors.explaining.cause import Cause
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption, JsonOption
from rocketray.cli.terminal.output import print_json, print_line
from rocketray.views.verdicts import step_values

if TYPE_CHECKING:
    from rocketray.actors.explaining.explanation import Explanation

__all__ = ["explain"]


def explain(
    message: Annotated[
        str,
        typer.Argument(metavar="ID|KEY", help="An offset id, a unique id, or one of the keys."),
    ],
    *,
    group: Annotated[str, typer.Option(metavar="GROUP", help="The consumer group in question.")],
    topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="The topic to look a key up in; default: all."),
    ] = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Explain whether a message was delivered to a group, and why.

    \b
    The cause is one of
      {causes}

    The command changes nothing. A key finds the newest message with that key, in its topic or on
    its way there. The group's journal tells what moved its offsets and changed its filter. --json
    prints one object: cause, offsetMsgId, and steps, each with stage, result and detail. The exit
    code is 1 for not_found, and 0 for each other cause.
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    with ask(data) as connection:
        found = connection.explain(message, group, topic)
    print_json(found.to_json()) if as_json else _print(found)
    if found.cause is Cause.NOT_FOUND:
        raise typer.Exit(1)


_CAUSES = (f"{each.value:16} {each.meaning}" for each in Cause)
explain.__doc__ = (explain.__doc__ or "").format(causes="\n      ".join(_CAUSES))


def _print(found: Explanation) -> None:
    print_line(f"{found.cause.value}" + (f"  {found.message_id}" if found.message_id else ""))
    width = max(len(step.stage) for step in found.steps)
    for step in found.steps:
        indent = "  " * step.depth
        text = f"{step.result}: {step.detail}{step_values(step)}"
        print_line(f"  {step.stage:{width}}  {indent}{text}")

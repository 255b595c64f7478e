"""``rocketray explain``: why a message was, or was not, delivered to a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import (
    SCAN_DEFAULT,
    CommonOptions,
    OnlyQueueOption,
)
from rocketray.services.explaining.cause import Cause, time_text
from rocketray.views.message_records import step_values

from .range_causes import print_causes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketray.services.explaining.explanation import Explanation


def explain(
    message: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID|KEY]",
            help="An offset id, a unique id, or one of the keys. Without it: a range of messages.",
        ),
    ] = None,
    *,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP", help="The consumer group in question; default: the message alone."
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC", help="The topic to look a key up in, default: all; or of the range."
        ),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME|OFFSET", help="Of a range: from that time or offset on."
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TIME|OFFSET",
            help="Of a range: up to that time; or up to, not including, that offset.",
        ),
    ] = None,
    queue_id: OnlyQueueOption = None,
    max_scan: Annotated[
        int, typer.Option(metavar="N", min=1, help="Of a range: explain at most N messages.")
    ] = SCAN_DEFAULT,
    common: CommonOptions,
) -> None:
    """Explain whether messages were delivered to a group, and why.

    \b
    The cause is one of
      {causes}

    The command changes nothing. A key finds the newest message with that key, in its topic or on
    its way there. The group's journal tells what moved its offsets and changed its filter. --json
    prints one object: cause, offsetMsgId, steps, each with stage, result and detail, and timeline,
    each with timeMs, event, place and detail. The timeline has the events of the message in all
    topics that its copies are in; an event without a time is not recorded with one. The exit code
    is 1 for not_found, and 0 for each other cause.

    Without a message it prints a table of the causes of all messages in a range of --topic, with
    their number and an example each. It reads the files of the node, and imports the group's
    predicate if it has one. A bound of up to 11 digits is an offset of each queue; a time is ISO
    8601, or milliseconds since 1970. --json prints one object: held, explained, causes, absent and
    notes.
    The exit code is 1 if no message is in the range.

    Examples:
        rocketray explain order-18 --group audit
        rocketray explain --group audit --topic Trade --from 2026-11-21T10:00Z
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    if message is None:
        if topic is None:
            raise typer.BadParameter(
                "give the ID or KEY of a message; or --topic, for all messages in a range"
            )
        if group is None:
            raise typer.BadParameter("a range is explained for a group: give --group")
        print_causes(common, group, topic, (begin, end, queue_id, max_scan))
        return
    if (begin, end, queue_id) != (None, None, None):
        raise typer.BadParameter("--from, --to and --queue are of a range: leave ID or KEY out")
    with ask(common.data) as connection:
        found = connection.explain(message, group, topic)
    common.emit(found.to_json(), _lines(found))
    if found.cause is Cause.NOT_FOUND:
        raise typer.Exit(1)


_CAUSES = (f"{each.value:16} {each.meaning}" for each in Cause)
explain.__doc__ = (explain.__doc__ or "").format(causes="\n      ".join(_CAUSES))


def _lines(found: Explanation) -> Iterator[str]:
    yield found.cause.value + (f"  {found.message_id}" if found.message_id else "")
    width = max(len(step.stage) for step in found.steps)
    for step in found.steps:
        indent = "  " * step.depth
        text = f"{step.result}: {step.detail}{step_values(step)}"
        yield f"  {step.stage:{width}}  {indent}{text}"
    if found.timeline:
        yield "timeline"
    for event in found.timeline:
        when = "" if event.time_ms is None else time_text(event.time_ms)
        place = f"{event.place}, " if event.place else ""
        # A time has 29 characters, with its milliseconds and its zone.
        yield f"  {when:29}  {event.event:13}  {place}{event.detail}"

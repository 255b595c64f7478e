"""``rocketray dlq``: list the dead letters of groups, and redeliver them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.base.json_fields import json_fields
from rocketray.base.marks import FAILURE_REASON, mark
from rocketray.base.names import DEAD_LETTER_PREFIX
from rocketray.base.quantity import agreed, counted
from rocketray.broker.retries.retry_records import topic_of
from rocketray.cli.arguments.messages import one_line
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import (
    CommonOptions,
    DialectOption,
    GroupArgument,
    TagsOption,
    chosen_subscription,
    tell_doubts_of,
)
from rocketray.cli.terminal.output import table_of
from rocketray.filters.filter_choice import FilterChoice
from rocketray.services.admin.dead_letter_calls import letters_by_calls, redrive_by_calls
from rocketray.views.message_records import letter_record, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import TypeIs

    from rocketray.actors.client.connected_client import LocalClient
    from rocketray.broker.retries.dead_letter_api import LetterBox
    from rocketray.cli.arguments.node import AskedClient
    from rocketray.filters.subscription import Subscription
    from rocketray.message import StoredMessage

dlq = typer.Typer(help="List, show and redeliver dead letters.", no_args_is_help=True)
_FilterOption = Annotated[
    str | None,
    typer.Option(
        "--filter", "--sql", metavar="EXPR", help="Only letters that match this SQL92 expression."
    ),
]
_TopicOption = Annotated[
    str | None,
    typer.Option(metavar="TOPIC", help="Their topic, if it is not %DLQ% and the group's name."),
]


@dlq.command("list")
def list_all(*, common: CommonOptions) -> None:
    """List the groups that have dead letters.

    Shows how many there are, how many were redriven, and the last error of the newest one.

    Examples:
        rocketray dlq list
        rocketray dlq list --json
    """
    with ask(common.data) as node:
        boxes = _boxes(node)
    records = [*map(json_fields, boxes)]
    columns = ("group", "topic", "letters", "redriven", "newest error")
    common.emit(records, table_of(records, columns, {"newest error": "newestReason"}))


@dlq.command()
def show(
    group: GroupArgument,
    *,
    sql: _FilterOption = None,
    tags: TagsOption = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum number to show, the oldest first.")
    ] = 100,
    topic: _TopicOption = None,
    dialect: DialectOption = None,
    common: CommonOptions,
) -> None:
    """Show the dead letters of a group, oldest first. Nothing is changed.

    Each has its number of attempts, and the error of the last one. --json prints each as "query"
    does, and attempts, originTopic, originMsgId, redriven and reason: the exception's type and
    text, null if the letter has none.

    Examples:
        rocketray dlq show audit --limit 10
        rocketray dlq show audit --sql "amount > 100" --json
    """
    subscription = chosen_subscription(FilterChoice(tags, sql, dialect=dialect))
    with ask(common.data) as node:
        tell_doubts_of(node, [topic or DEAD_LETTER_PREFIX + group], subscription)
        for letter, is_redriven in islice(_letters(node, group, subscription, topic), limit):
            parts = (
                one_line(letter),
                f"from {topic_of(letter)}",
                "redriven" if is_redriven else "-",
                counted(letter.reconsume_times, "attempt"),
                printable(mark(letter, FAILURE_REASON) or "-"),
            )
            common.emit(letter_record(letter, is_redriven=is_redriven), "  ".join(parts))


@dlq.command()
def redrive(
    group: GroupArgument,
    *,
    sql: _FilterOption = None,
    tags: TagsOption = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Maximum number to redrive, the oldest first."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the letters that would be redelivered.")
    ] = False,
    topic: _TopicOption = None,
    dialect: DialectOption = None,
    common: CommonOptions,
) -> None:
    """Redeliver the dead letters of a group, each once.

    They go to the group's retry topic, so that other groups do not see them, and their attempts are
    counted from 0 again. A redriven letter stays stored. It is not redriven twice, even if this
    command is interrupted and repeated.

    Examples:
        rocketray dlq redrive audit --dry-run
        rocketray dlq redrive audit --tags pay --limit 100
    """
    subscription = chosen_subscription(FilterChoice(tags, sql, dialect=dialect))
    with ask(common.data) as node:
        tell_doubts_of(node, [topic or DEAD_LETTER_PREFIX + group], subscription)
        if dry_run:
            found = _letters(node, group, subscription, topic)
            new = (letter for letter, is_redriven in found if not is_redriven)
            count = sum(1 for _ in islice(new, limit))
        else:
            count = _redrive(node, group, subscription, topic, limit)
    record = {"group": group, "count": count, "dryRun": dry_run}
    verb = "would be" if dry_run else agreed(count, "are")
    text = f"{counted(count, 'dead letter')} of group {group} {verb} redelivered"
    common.emit(record, text)


def _boxes(node: AskedClient) -> list[LetterBox]:
    if _has_no_ray(node):
        return node.letters.boxes()
    from rocketray.services.admin.dead_letters import letter_boxes  # imports NumPy

    return letter_boxes(node)


def _letters(
    node: AskedClient, group: str, subscription: Subscription, topic: str | None
) -> Iterator[tuple[StoredMessage, bool]]:
    if _has_no_ray(node):
        return letters_by_calls(node.letters, group, subscription, topic)
    from rocketray.services.admin.dead_letters import letters  # imports NumPy

    return letters(node, group, subscription, topic)


def _redrive(
    node: AskedClient,
    group: str,
    subscription: Subscription,
    topic: str | None,
    limit: int | None,
) -> int:
    if _has_no_ray(node):
        return redrive_by_calls(node.letters, group, subscription, topic, limit)
    from rocketray.services.admin.dead_letters import redrive as run  # imports NumPy

    producer = node.producer(ack="disk")
    return run(node, producer, group, subscription, topic=topic, limit=limit)


def _has_no_ray(node: AskedClient) -> TypeIs[LocalClient]:
    """Return whether the node's process reads the letters, so that this one need not."""
    from rocketray.actors.client.connected_client import LocalClient

    return isinstance(node, LocalClient)

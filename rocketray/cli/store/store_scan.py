"""``rocketray store scan``: the messages of a store directory, in the order of its commit log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.cli.arguments.lookup_options import TIME_MAX_MS, BeginOption, EndOption
from rocketray.cli.arguments.messages import one_line, to_json
from rocketray.cli.arguments.options import (
    DialectOption,
    JsonOption,
    SqlOption,
    TagsOption,
    chosen_subscription,
)
from rocketray.cli.arguments.store_directory import DirectoryArgument, open_stores
from rocketray.cli.terminal.output import print_json, print_line

if TYPE_CHECKING:
    from rocketray.filters.subscription import Subscription
    from rocketray.message import StoredMessage

__all__ = ["scan"]


def scan(
    directory: DirectoryArgument,
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only messages of this topic.")
    ] = None,
    queue_id: Annotated[
        int | None, typer.Option("--queue", metavar="N", min=0, help="Only this queue.")
    ] = None,
    begin_ms: BeginOption = None,
    end_ms: EndOption = None,
    tags: TagsOption = None,
    sql: SqlOption = None,
    dialect: DialectOption = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Stop after this number of messages."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the messages of a store directory in log order.

    \b
    DIR is one of
      a node's data directory: each of its shards, by topic and queue
      a shard's directory, or any store that rocketray wrote
      the store directory of a RocketMQ broker

    Nothing is changed or locked, so it may be in use. A line of --json has topic, queueId,
    queueOffset, commitLogOffset, tags, keys, properties, body (base64), storeTimestamp and
    offsetMsgId. Filters select messages: TIME is milliseconds since 1970 or ISO 8601.
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    chosen = chosen_subscription(tags, sql, None, dialect=dialect)
    span = begin_ms or 0, TIME_MAX_MS if end_ms is None else end_ms
    with open_stores(directory) as opened:
        found = (
            message
            for one in opened
            for message in one.store.reads.scan()
            if topic in (None, message.topic)
            and queue_id in (None, message.queue_id)
            and span[0] <= message.store_timestamp_ms <= span[1]
        )
        for message in islice(_filtered(found, chosen), limit):
            print_json(to_json(message)) if as_json else print_line(one_line(message))


def _filtered(messages: Iterable[StoredMessage], chosen: Subscription) -> Iterator[StoredMessage]:
    """Return the messages that a consumer with this subscription would get."""
    from rocketray.filters.expression_filter import ExpressionFilter  # noqa: PLC0415 - NumPy
    from rocketray.filters.message_filter import compile_filter  # noqa: PLC0415 - the same

    if chosen.expression_type == "SQL92":
        assert chosen.dialect is not None, "a subscription by SQL has one"
        expression = ExpressionFilter(chosen.expression, dialect=chosen.dialect, rules=chosen.rules)
        yield from filter(expression.matches_record, messages)
    else:
        tag_filter = compile_filter(chosen)
        yield from (message for message in messages if tag_filter.matches_tags(message.tags))

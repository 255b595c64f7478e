"""``rocketray query``: look messages up by id, key or time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer

from rocketray.base.names import disk_words
from rocketray.base.quantity import counted
from rocketray.cli.arguments.lookup_options import (
    MAX_DEFAULT,
    BeginOption,
    EndOption,
    MaxOption,
    span_of,
)
from rocketray.cli.arguments.messages import print_found
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import CommonOptions, TopicArgument
from rocketray.cli.terminal.output import progress
from rocketray.cli.terminal.usage import usage_error
from rocketray.message import StoredMessage
from rocketray.views.lookups import found_by_id, found_by_unique_key

_QUEUE_MAX = 10_000  # QUERY_MAX of shard_lookups.py, whose import takes long


def query(
    topic: TopicArgument,
    *,
    message_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="By message id: the offset id, also that of before an import, or the unique id.",
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="By one of its keys.")] = None,
    unique_key: Annotated[
        str | None, typer.Option(metavar="ID", help="By the unique id that the producer created.")
    ] = None,
    begin_ms: BeginOption = None,
    end_ms: EndOption = None,
    max_count: MaxOption = MAX_DEFAULT,
    common: CommonOptions,
) -> None:
    """Look up stored messages by id, by key or by time.

    They are printed oldest first. Give one of --id, --key and --unique-key, or a time with --from,
    --to or both; a time also narrows a key. TIME is milliseconds since 1970 or ISO 8601, in local
    time unless it names a zone. If nothing is found, the exit code is 1, and stderr says so.

    Of more than --max messages, a key shows the newest, and a time without a key the oldest. If
    there may be more than --max, or than the 10,000 that a queue returns, stderr says so.

    Examples:
        rocketray query Trade --key order-18
        rocketray query Trade --from 2026-11-21T10:00Z --to 2026-11-21T10:05Z
    """
    named = [name for name in (message_id, key, unique_key) if name is not None]
    if len(named) > 1 or not (named or begin_ms is not None or end_ms is not None):
        raise typer.BadParameter("give one of --id, --key, --unique-key, or --from and --to")
    if "" in named:
        raise typer.BadParameter("the id or key to look up is empty")
    begin, end = span_of(begin_ms, end_ms)
    from rocketray.messaging.api.node_client import of_disks_there

    with ask(common.data) as connection:
        node = of_disks_there(connection)
        for disk in sorted(node.away & {*node.topics.get(topic).by_disk()}):
            progress(f"{disk_words(disk)} does not answer: its queues are left out")
        if message_id is not None:
            with usage_error(hint="--id"):
                found = found_by_id(node, topic, message_id)
        elif key is not None:
            found = node.messages.query(topic, key, max_count, begin, end)
            _tell_limit(found, max_count, "newest")
            found = [message for message in found if message.has_key(key)]  # not unique keys
        elif unique_key is not None:
            found = found_by_unique_key(node, topic, unique_key)
        else:
            found = node.messages.query_by_time(topic, begin, end, max_count)
            _tell_limit(found, max_count, "oldest")
    print_found(found, as_json=common.as_json)


def _tell_limit(found: Sequence[StoredMessage], max_count: int, which: str) -> None:
    """Say that a look-up may have left messages out."""
    of_a_queue = max(Counter(message.queue_id for message in found).values(), default=0)
    if len(found) >= max_count:
        progress(
            f"shown: the {which} {counted(max_count, 'message')}; there may be more, see --max, "
            "--from and --to"
        )
    elif of_a_queue >= _QUEUE_MAX:
        progress(
            f"there may be more: a queue returns its {_QUEUE_MAX:,} {which} messages at most; see "
            "--from and --to"
        )

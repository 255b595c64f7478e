"""``rocketray tables``: the tables of apps, and their values, as their changelogs have them."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.cli.arguments.completions import complete_tables
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import CommonOptions
from rocketray.cli.terminal.output import TextTable, as_time, progress, table_of
from rocketray.cli.terminal.waiting import waiting
from rocketray.errors import StreamError
from rocketray.views.table_records import (
    changelogs_in,
    shown_json,
    table_named,
    table_record,
    value_record,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketray.broker.shards.shard_api import ShardStatistics
    from rocketray.broker.topics.catalog import TopicConfig
    from rocketray.cli.terminal.output import Shown
    from rocketray.messaging.api.node_client import NodeClient
    from rocketray.topology.tables.lookup import TableValue

tables = typer.Typer(help="List the tables of apps, and get their values.", no_args_is_help=True)


@tables.command("list")
def list_all(*, common: CommonOptions) -> None:
    """List the tables of apps, whether the apps run or not.

    A table is listed from its first committed change on, as its app's id, a dash and its name. Its
    changelog has one change or more of each key; changes and bytes are those that it keeps.

    Examples:
        rocketray tables list
        rocketray tables list --json
    """
    from rocketray.messaging.api.node_client import of_disks_there

    with ask(common.data) as asked:
        node = of_disks_there(asked)
        records = [
            table_record(table, config, _shards_of(node, config))
            for table, config in changelogs_in(node.topics.all()).items()
        ]
    common.emit(records, table_of(records, ("table", "queues", "changes", "bytes")))


@tables.command()
def get(
    table: Annotated[
        str,
        typer.Argument(
            help="The table: its app's id, a dash and its name; or its name, if no other app has "
            "one of that name.",
            autocompletion=complete_tables,
        ),
    ],
    key: Annotated[
        str,
        typer.Argument(
            help="The key: a text, a number or other JSON; behind -- if it begins with a dash."
        ),
    ],
    *,
    is_base64: Annotated[
        bool, typer.Option("--base64", help="KEY is base64, for a key that is bytes.")
    ] = False,
    common: CommonOptions,
) -> None:
    """Print the value of a key, as JSON; of a set its members.

    A table with windows prints each window of the key, the newest first. An argument like 7 is both
    the text and the number: what either has is printed.

    The answer is what the app has committed, whether it runs or not: changes of the last moments
    are not there yet (the app's broker_commit_interval, half a second by default). If the key has
    no value, the exit code is 1, and stderr says so.

    --json prints key, window (its first and last second, or null), value, body (the value in
    base64, also of one that is not JSON), and the change: topic, queueId, queueOffset and
    bornTimestamp, the time at which the app sent it.

    Examples:
        rocketray tables get words-counts apple
        rocketray tables get counts apple --json
    """
    from rocketray.topology.tables.lookup import keys_meant, values_of

    keys = [_from_base64(key)] if is_base64 else keys_meant(key)
    with ask(common.data) as node:
        changelogs = changelogs_in(node.topics.all())
        table = table_named(changelogs, table)
        with waiting(f"reading the changelog of {table}"):
            found = values_of(node, changelogs[table], keys)
    common.emit((value_record(table, each) for each in found), _shown(found))
    if not found:
        progress(f"table {table} has no committed value of the key {key}")
        raise typer.Exit(1)


def _shards_of(node: NodeClient, config: TopicConfig) -> list[ShardStatistics] | None:
    """Return the statistics of all shards of a topic; None, and say so, if one does not answer."""
    try:
        found = node.shard_statistics(config.name)
    except (StreamError, OSError) as error:
        progress(f"{config.name}: unknown, {error}")
        return None
    if len(found) == config.queues:
        return found
    progress(f"{config.name}: unknown, the machine of a disk does not answer")
    return None


def _shown(found: Sequence[TableValue]) -> Shown:
    """Return the value; several in a table, with what tells them apart."""
    values = [shown_json(each.value) for each in found]
    keys, windows = {each.key for each in found}, {(each.key, each.window) for each in found}
    cells: dict[str, Sequence[object]] = {}
    if len(keys) > 1:
        cells["key"] = [shown_json(each.key) for each in found]
    if any(each.window for each in found):
        moments = [each.window or (None, None) for each in found]
        cells["from"], cells["to"] = zip(*(map(_moment, each) for each in moments), strict=True)
    if len(windows) < len(found):
        cells["queue"] = [each.change.queue_id for each in found]
    if not cells:
        return values
    cells["value"] = values
    return TextTable([*cells], zip(*cells.values(), strict=True))


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else as_time(int(seconds * 1000))


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise typer.BadParameter(f"{text!r:.80} is not base64", param_hint="KEY") from None

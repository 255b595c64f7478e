"""``rocketray producers``: the processes that send to the queues of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.base.names import check_topic
from rocketray.cli.arguments.completions import complete_topics
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import CommonOptions, checked
from rocketray.cli.terminal.output import TextTable, as_time
from rocketray.views.message_records import printable
from rocketray.views.node_records import producer_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NOT_LISTED = (
    "producers on other machines than the queue that they send to; what Spark writes; and programs "
    "that have sent nothing yet"
)
_KEYS = ("machine", "pid", "program", "release", "sinceMs", "storedMs", "batches", "queues")
_COLUMNS = (
    *("machine", "process", "program", "release", "since", "last stored", "batches"),
    "queues",
)
_UNKNOWN = "unknown"


def producers(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC",
            callback=checked(check_topic),
            help="The topic; without it, all topics.",
            autocompletion=complete_topics,
        ),
    ] = None,
    *,
    common: CommonOptions,
) -> None:
    """Show the processes that send to queues of their machine.

    It is mqadmin's producerConnection, by process. A process is listed from its first message to a
    queue until it closes its producers, or ends: the node's own processes, too, and apps that
    store retries. Since is when it opened the first of the rings that it has, and batches is what
    the shards took from these. Not listed are producers on other machines than the queue that they
    send to, what Spark writes, and programs that have sent nothing yet: a node does not know them.

    Examples:
        rocketray producers
        rocketray producers Trade --json
    """
    from rocketray.services.health.connected_producers import read_producers

    with ask(common.data) as connection:
        found = read_producers(connection, topic)
    records = [producer_record(each) for each in found.producers]
    common.emit(
        {"producers": records, "unknown": found.unknown, "notListed": _NOT_LISTED},
        _shown(records, found.unknown),
    )


def _shown(
    records: Sequence[Mapping[str, Any]], unknown: Mapping[str, str]
) -> Iterator[str | TextTable]:
    if records:
        yield TextTable(_COLUMNS, [[_cell(each, key) for key in _KEYS] for each in records])
    else:
        yield "no producer on the machine of its queue"
    yield from (f"unknown: {part}: {why}" for part, why in unknown.items())
    yield f"not listed: {_NOT_LISTED}"


def _cell(record: Mapping[str, Any], key: str) -> object:
    value = record[key]
    if key == "queues":
        return ", ".join(f"{topic} {' '.join(map(str, ids))}" for topic, ids in value.items())
    if value is None:
        return _UNKNOWN
    if key in ("sinceMs", "storedMs"):
        return as_time(value)
    return printable(value) if isinstance(value, str) else value  # any process writes its ring

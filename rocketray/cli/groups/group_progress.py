"""``rocketray groups progress``: each group's progress, queue by queue, as mqadmin shows it."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rocketray.cli.arguments.group_choice import OptionalGroupArgument, chosen_groups
from rocketray.cli.arguments.node import connect
from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption, JsonOption
from rocketray.cli.terminal.output import as_time, counted, print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketray.actors.client.connection import Connection
    from rocketray.actors.groups.group_descriptions import GroupDescription

__all__ = ["progress"]

_COLUMNS = {
    "group": "group",
    "topic": "topic",
    "queueId": "queue",
    "brokerOffset": "broker offset",
    "consumerOffset": "consumer offset",
    "clientId": "client id",
    "diff": "diff",
    "inflight": "inflight",
    "lag": "lag",
    "exactness": "exactness",
    "lastTime": "last time",
    "held": "held",
}
_SHOWN = {  # the group and the topic stand above, what the lag is worth beside it
    name: column
    for name, column in _COLUMNS.items()
    if name not in ("group", "topic", "exactness", "clientId", "held")
} | {"clientId": _COLUMNS["clientId"]}
_NUMBERS = ("queue", "broker offset", "consumer offset", "diff", "inflight", "lag")


def progress(
    group: OptionalGroupArgument = None,
    *,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the progress of groups, as mqadmin's consumerProgress.

    Diff counts all messages between the consumer's offset and the broker's; lag counts those of
    them that match the group's filter, exact unless marked otherwise, as in "groups lag". The
    client is the member that reads the queue now, and inflight is what it has taken and not
    finished, as reported about a second ago. Last time is when the message before the consumer's
    offset was stored. Members of a broadcast group keep their own offsets: its rows have no such
    numbers. Below the table are the queues that are held at a failing message, and the number of
    messages on which a group's filter failed since the coordinator started.
    """
    with connect(data) as connection:
        found = chosen_groups(connection.groups.all(), group)
        rows = [row for each in found for row in _rows(connection, each)]
    errors = {(each.group, each.topic): each.counters.errors for each in found}
    if as_json:
        for row in rows:
            held = row["held"] and row["held"].to_json()
            print_json(row | {"held": held, "filterErrors": errors[row["group"], row["topic"]]})
        return
    for (name, topic), of_topic in groupby(rows, key=itemgetter("group", "topic")):
        print_line(f"group {name}, topic {topic}")
        cells = [
            {**row, "lag": _lag(row), "lastTime": as_time(row["lastTime"])} for row in of_topic
        ]
        print_table(
            list(_SHOWN.values()), [[row[each] for each in _SHOWN] for row in cells], right=_NUMBERS
        )
        for row in cells:
            if row["held"]:
                print_line(f"queue {row['queueId']} is {row['held']}")
        if errors[name, topic]:
            print_line(f"the filter failed on {counted(errors[name, topic], 'message')}")
        print_line("")
    for name in ("diff", "inflight"):
        print_line(f"{name} total: {sum(row[name] or 0 for row in rows)}")


def _rows(connection: Connection, group: GroupDescription) -> Iterator[dict[str, Any]]:
    lags = connection.filters.lag(group)
    for queue, shard in enumerate(connection.shard_statistics(group.topic)):
        offset = group.offsets.get(queue, -1)
        done = max(offset, shard.min_queue_offset)
        readers = [name for name, queues in group.members.items() if queue in queues]
        row = dict.fromkeys(_COLUMNS)
        row |= {
            "group": group.group,
            "topic": group.topic,
            "queueId": queue,
            "brokerOffset": shard.max_queue_offset,
            "clientId": ", ".join(readers) or None,
        }
        if not group.is_broadcast:
            before = None
            if offset > shard.min_queue_offset:
                before = connection.message_at(group.topic, queue, offset - 1)
            pulled = group.pulled.get(queue)
            row |= {
                "consumerOffset": offset,
                "diff": max(0, shard.max_queue_offset - done),
                "inflight": None if pulled is None else max(0, pulled - done),
                "lag": lags[queue].count,
                "exactness": lags[queue].exactness.value,
                "lastTime": None if before is None else before.store_timestamp_ms,
                "held": group.failing.get(queue),
            }
        yield row


def _lag(row: dict[str, Any]) -> str | None:
    """Return the number, with its exactness if it is not exact."""
    if row["lag"] is None or row["exactness"] == "exact":
        return None if row["lag"] is None else str(row["lag"])
    return f"{row['lag']} ({row['exactness'].replace('_', ' ')})"

"""``rocketray groups progress``: how far each group is, queue by queue, as mqadmin shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .group_choice import OptionalGroupArgument, chosen_groups
from .node import connect
from .options import DATA_DEFAULT, DataOption, JsonOption
from .output import print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketray.actors.client import Connection
    from rocketray.actors.group_views import GroupDescription

__all__ = ["progress"]

_COLUMNS = {
    "group": "group",
    "topic": "topic",
    "queueId": "queue",
    "brokerOffset": "broker offset",
    "consumerOffset": "consumer offset",
    "clientId": "client id",
    "diff": "diff",
    "lag": "lag",
    "exactness": "exactness",
    "lastTime": "last time",
}
_NUMBERS = ("queue", "broker offset", "consumer offset", "diff", "lag")


def progress(
    group: OptionalGroupArgument = None,
    *,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show how far groups have come, as mqadmin's consumerProgress does.

    Diff are all messages between the consumer's offset and the broker's; lag is those of them that
    the group's filter lets pass, exact unless it says otherwise, as in "groups lag". The client is
    the member that reads the queue now. Last time is when the message before the consumer's offset
    was stored.
    """
    with connect(data) as connection:
        found = chosen_groups(connection.groups(), group)
        rows = [row for each in found for row in _rows(connection, each)]
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        tuple(_COLUMNS.values()),
        [[*list(row.values())[:-1], _as_time(row["lastTime"])] for row in rows],
        right=_NUMBERS,
    )
    total = sum(row["diff"] for row in rows)
    print_line(f"diff total: {total}")


def _rows(connection: Connection, group: GroupDescription) -> Iterator[dict[str, Any]]:
    owners = {queue: name for name, queues in group.members.items() for queue in queues}
    lags = connection.lag(group)
    for queue, shard in enumerate(connection.shard_statistics(group.topic)):
        offset = group.offsets.get(queue, -1)
        before = None
        if offset > shard.min_queue_offset:
            before = connection.message_at(group.topic, queue, offset - 1)
        values = (
            group.group,
            group.topic,
            queue,
            shard.max_queue_offset,
            offset,
            owners.get(queue),
            max(0, shard.max_queue_offset - max(offset, shard.min_queue_offset)),
            lags[queue].count,
            lags[queue].exactness.value,
            None if before is None else before.store_timestamp_ms,
        )
        yield dict(zip(_COLUMNS, values, strict=True))


def _as_time(milliseconds: int | None) -> str | None:
    """Local time, to the second."""
    if milliseconds is None:
        return None
    when = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    return when.strftime("%Y-%m-%d %H:%M:%S")

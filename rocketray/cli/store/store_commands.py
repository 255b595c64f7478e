"""``rocketray store``: the settings and content of store directories, ours or RocketMQ's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.base.quantity import counted
from rocketray.cli.arguments.lookup_options import (
    BeginOption,
    EndOption,
    OnlyTopicOption,
    span_of,
)
from rocketray.cli.arguments.messages import one_line
from rocketray.cli.arguments.options import (
    DialectOption,
    JsonOption,
    OnlyQueueOption,
    SqlOption,
    TagsOption,
    chosen_subscription,
)
from rocketray.cli.arguments.store_directory import (
    DirectoryArgument,
    OpenStore,
    SlotsOption,
    open_stores,
)
from rocketray.cli.terminal.output import TextTable, as_time, emit, table_of
from rocketray.filters.filter_choice import FilterChoice
from rocketray.views.message_records import to_json

from .store_get import get
from .store_import import import_messages
from .store_query import query
from .store_repair import recover, upgrade, verify

if TYPE_CHECKING:
    from rocketray.filters.subscription import Subscription
    from rocketray.message import StoredMessage
    from rocketray.store.message_store import MessageStore

stores = typer.Typer(
    help="Inspect, verify, recover and import store directories. Only import needs a node.",
    no_args_is_help=True,
)
_SLOTS_FROM = {
    "nothing": "there are no keys",
    "caller": "given",
    "default": "RocketMQ's default, and the files agree",
    "files": "found from the files",
    "unknown": "unknown, keys cannot be looked up: give --max-hash-slots",
}


def info(
    directory: DirectoryArgument,
    *,
    index_hash_slots: SlotsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the content and the settings of a store directory.

    \b
    DIR is a node's data directory (one part for each shard), a shard's, or the store directory
    of a RocketMQ broker. Nothing is changed or locked, so it may be in use.

    A RocketMQ directory does not contain its settings. Sizes are those of the files; the number of
    hash slots of an index file is derived from its content, and if that fails, the output says so.

    Examples:
        rocketray store info ./rocketray-data
        rocketray store info ./store --json
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    with open_stores(directory, index_hash_slots=index_hash_slots) as opened:
        for one in opened:
            found = _info(one)
            emit(found, TextTable(("what", "value"), _lines(found)), as_json=as_json)


def topics(directory: DirectoryArgument, *, as_json: JsonOption = False) -> None:
    """List the topics and queues of a store directory.

    minOffset is the first message that is stored, maxOffset the next one to come. DIR is as for
    "store info".

    Examples:
        rocketray store topics ./rocketray-data
        rocketray store topics ./store --json
    """
    with open_stores(directory) as opened:
        rows = [_queue(one.store, *queue) for one in opened for queue in one.store.reads.queues()]
    times = "firstStoreTime", "lastStoreTime"
    if not as_json:
        rows = [row | {name: as_time(row[name], exact=True) for name in times} for row in rows]
    columns = ("topic", "queueId", "minOffset", "maxOffset", "messages", *times)
    emit(rows, table_of(rows, columns), as_json=as_json)


def _info(one: OpenStore) -> dict[str, Any]:
    """Return the description of a store; times are milliseconds since 1970."""
    store, statistics = one.store, one.store.statistics()
    queues = [_queue(store, *queue) for queue in store.reads.queues()]
    times = [
        time_ms
        for queue in queues
        for time_ms in (queue["firstStoreTime"], queue["lastStoreTime"])
        if time_ms is not None
    ]
    config = asdict(store.config)
    del config["flush_interval_ms"], config["store_host"]
    return {
        "directory": str(one.directory),
        "writtenBy": "rocketray" if one.foreign is None else "RocketMQ",
        "cleanStop": not (one.directory / "abort").exists(),
        "topics": len({queue["topic"] for queue in queues}),
        "queues": len(queues),
        "messages": statistics.messages,
        "minPhyOffset": statistics.min_physical_offset,
        "maxPhyOffset": statistics.max_physical_offset,
        "firstStoreTime": min(times, default=None),
        "lastStoreTime": max(times, default=None),
        "files": {
            name: _files(one.directory / name, depth)
            for name, depth in (
                ("commitlog", "*"),
                ("consumequeue", "*/*/*"),
                ("consumequeue_ext", "*/*/*"),
                ("index", "*"),
            )
        },
        "index": [
            {
                "file": name,
                "keys": header.next_entry - 1,
                "slotsUsed": header.slots_used,
                "beginPhyOffset": header.begin_physical_offset,
                "endPhyOffset": header.end_physical_offset,
                "beginStoreTime": header.begin_timestamp_ms,
                "endStoreTime": header.end_timestamp_ms,
            }
            for name, header in store.reads.index_headers()
        ],
        "settings": config,
        "indexHashSlotsFrom": one.foreign.slots_from if one.foreign else "store.json",
        "warnings": list(one.foreign.warnings) if one.foreign else [],
    }


def _lines(found: dict[str, Any]) -> Iterable[tuple[str, object]]:
    yield "directory", found["directory"]
    yield "written by", found["writtenBy"]
    yield "stopped", "cleanly" if found["cleanStop"] else "not: abort is there, or it is in use"
    places = f"queues: {found['queues']}, topics: {found['topics']}"
    yield "messages", f"{found['messages']} ({places})"
    yield "physical offsets", f"{found['minPhyOffset']} to {found['maxPhyOffset']}"
    yield "first stored", as_time(found["firstStoreTime"], exact=True)
    yield "last stored", as_time(found["lastStoreTime"], exact=True)
    for name, files in found["files"].items():
        yield name, f"{counted(files['count'], 'file')}, {files['bytes']} bytes"
    for file in found["index"]:
        begin, end = (as_time(file[f"{edge}StoreTime"], exact=True) for edge in ("begin", "end"))
        yield f"index/{file['file']}", f"{counted(file['keys'], 'key')}, {begin} to {end}"
    for name, value in found["settings"].items():
        yield name, value
    origin = found["indexHashSlotsFrom"]
    yield "number of hash slots", _SLOTS_FROM.get(origin, f"from {origin}")


def _files(directory: Path, depth: str) -> dict[str, int]:
    """Return the number of segment files below *directory*, and their lengths together."""
    paths = [path for path in directory.glob(depth) if path.name.isdecimal() and path.is_file()]
    return {"count": len(paths), "bytes": sum(path.stat().st_size for path in paths)}


def _queue(store: MessageStore, topic: str, queue_id: int) -> dict[str, Any]:
    first = store.reads.min_queue_offset(topic, queue_id)
    end = store.reads.max_queue_offset(topic, queue_id)
    gaps = store.reads.gaps(topic, queue_id)
    return {
        "topic": topic,
        "queueId": queue_id,
        "minOffset": first,
        "maxOffset": end,
        "messages": gaps.count(first, end),
        "firstStoreTime": _stored_ms(store, topic, queue_id, first),
        "lastStoreTime": _stored_ms(store, topic, queue_id, gaps.before(end) - 1),
    }


def _stored_ms(store: MessageStore, topic: str, queue_id: int, queue_offset: int) -> int | None:
    """Return when a message was stored; None if there is none, or none that can be read."""
    for message in store.reads.get_message(topic, queue_id, queue_offset, 1).messages:
        if message.queue_offset == queue_offset:
            return message.store_timestamp_ms
    return None


def scan(
    directory: DirectoryArgument,
    *,
    topic: OnlyTopicOption = None,
    queue_id: OnlyQueueOption = None,
    begin_ms: BeginOption = None,
    end_ms: EndOption = None,
    tags: TagsOption = None,
    sql: SqlOption = None,
    dialect: DialectOption = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after this number of messages.")
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

    Examples:
        rocketray store scan ./rocketray-data --topic Trade --limit 10
        rocketray store scan ./store --sql "amount > 100" --json
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    chosen = chosen_subscription(FilterChoice(tags, sql, dialect=dialect))
    span = span_of(begin_ms, end_ms)
    with open_stores(directory) as opened:
        found = (
            message
            for one in opened
            for message in one.store.reads.scan()
            if topic in (None, message.topic)
            and queue_id in (None, message.queue_id)
            and span[0] <= message.store_timestamp_ms <= span[1]
        )
        messages = islice(_filtered(found, chosen), limit)
        emit(map(to_json, messages), map(one_line, messages), as_json=as_json)


def _filtered(messages: Iterable[StoredMessage], chosen: Subscription) -> Iterator[StoredMessage]:
    """Return the messages that a consumer with this subscription would get."""
    from rocketray.filters.expression_filter import ExpressionFilter  # NumPy
    from rocketray.filters.message_filter import MessageFilter  # NumPy and Arrow

    if chosen.expression_type == "SQL92":
        yield from filter(ExpressionFilter(chosen).matches_record, messages)
    else:
        tag_filter = MessageFilter(chosen)
        yield from (message for message in messages if tag_filter.matches_tags(message.tags))


for function in (info, topics, get, scan, query):
    stores.command()(function)
stores.command("import")(import_messages)
for function in (verify, recover, upgrade):
    stores.command()(function)

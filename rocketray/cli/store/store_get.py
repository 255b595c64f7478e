"""``rocketray store get``: one message of a store directory, by any of its identifiers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from rocketray.cli.arguments.options import JsonOption
from rocketray.cli.arguments.store_directory import (
    DirectoryArgument,
    OpenStore,
    SlotsOption,
    open_stores,
)
from rocketray.cli.terminal.output import TextTable, as_time, emit
from rocketray.errors import ConfigError, CorruptRecordError, OffsetOutOfRangeError, StoreError
from rocketray.message import StoredMessage
from rocketray.views.message_records import printable, to_json


def get(
    directory: DirectoryArgument,
    *,
    message_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="By message id: the offset id or the unique id."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic, with --offset.")
    ] = None,
    queue_id: Annotated[
        int, typer.Option("--queue", metavar="N", min=0, help="The queue, with --offset.")
    ] = 0,
    queue_offset: Annotated[
        int | None,
        typer.Option("--offset", metavar="N", min=0, help="By its offset in a queue of --topic."),
    ] = None,
    physical_offset: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="By its offset in the commit log.")
    ] = None,
    index_hash_slots: SlotsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print one message of a store directory.

    Give --id, --offset or --physical-offset.

    DIR is a node's data directory, a shard's, or the store directory of a RocketMQ broker; of
    several stores, the first message found is printed. If there is none, the exit code is 1. A
    store host identifies a store in offset ids. The queues of a node have addresses of their own
    for that, 10.0.0.1:10911 and so on, at which nothing listens.

    Examples:
        rocketray store get ./rocketray-data --topic Trade --queue 3 --offset 1200
        rocketray store get ./store --id 7F00000100002A9F0000000000000C1A
    """
    given = [name for name in (message_id, queue_offset, physical_offset) if name is not None]
    if len(given) != 1:
        raise typer.BadParameter("give one of --id, --offset and --physical-offset")
    if (queue_offset is None) != (topic is None) and message_id is None:
        raise typer.BadParameter("--topic and --offset go together")
    with open_stores(directory, index_hash_slots=index_hash_slots) as opened:
        if message_id is not None:
            found = _by_id(opened, message_id, topic)
        elif physical_offset is not None:
            found = _by_physical_offset(opened, physical_offset)
        else:
            assert topic is not None
            assert queue_offset is not None
            found = _by_queue_offset(opened, topic, queue_id, queue_offset)
        message = next(found, None)
    if message is None:
        raise StoreError(f"{directory} has no such message")
    emit(to_json(message), _shown(message), as_json=as_json)


def _by_id(
    opened: Sequence[OpenStore], message_id: str, topic: str | None
) -> Iterator[StoredMessage]:
    """Look an id up as an offset id first, then as a unique id: the two look alike."""
    for one in opened:
        try:
            message = one.store.reads.view_by_id(message_id)
        except ConfigError:
            break  # no offset id
        if message is not None and topic in (None, message.topic):
            yield message
    for one in opened:
        one.check_keys()
        names = {name for name, _ in one.store.reads.queues()} if topic is None else {topic}
        for name in sorted(names):
            found = one.store.reads.query(name, message_id)
            yield from (message for message in found if message.unique_key == message_id)


def _by_physical_offset(opened: Sequence[OpenStore], offset: int) -> Iterator[StoredMessage]:
    for one in opened:
        try:
            yield one.store.reads.view(offset)
        except (OffsetOutOfRangeError, CorruptRecordError):
            if len(opened) == 1:
                raise


def _by_queue_offset(
    opened: Sequence[OpenStore], topic: str, queue_id: int, offset: int
) -> Iterator[StoredMessage]:
    for one in opened:
        found = one.store.reads.get_message(topic, queue_id, offset, 1).messages
        yield from (message for message in found if message.queue_offset == offset)


def _shown(message: StoredMessage) -> Iterator[str | TextTable]:
    rows = [
        ("topic", message.topic),
        ("queue", message.queue_id),
        ("queue offset", message.queue_offset),
        ("physical offset", message.physical_offset),
        ("size", message.size),
        ("offset id", message.offset_message_id),
        ("stored", as_time(message.store_timestamp_ms, exact=True)),
        ("born", as_time(message.born_timestamp_ms, exact=True)),
        ("born host", "{}:{}".format(*message.born_host)),
        ("store host", "{}:{}".format(*message.store_host)),
        ("flag", message.flag),
        ("system flag", f"{message.sys_flag:#x}"),
        ("reconsume times", message.reconsume_times),
        *(
            (f"property {printable(name)}", printable(value))
            for name, value in message.properties.items()
        ),
    ]
    yield TextTable(("what", "value"), rows)
    yield printable(message.body.decode("utf-8", "replace"), also="\n\t")

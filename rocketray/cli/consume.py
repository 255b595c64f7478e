"""``rocketray consume``: be a member of a group, and print what it gets."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, Annotated

import typer

from .lookup_options import parse_place
from .messages import one_line, to_json
from .node import connect
from .options import (
    DATA_DEFAULT,
    DataOption,
    DialectOption,
    GroupOption,
    JsonOption,
    OnFilterErrorOption,
    SqlOption,
    TagsOption,
    TopicArgument,
    WhereOption,
    chosen_subscription,
)
from .output import print_json, print_line
from .signals import until_signalled

if TYPE_CHECKING:
    import threading

    from rocketray.actors.consumed_batch import ConsumedBatch
    from rocketray.actors.member_options import MemberOptions
    from rocketray.actors.remote_consumer import Member

__all__ = ["consume"]

_POLL_S = 0.25  # how long a signal may go unseen


def consume(
    topic: TopicArgument,
    *,
    group: GroupOption,
    tags: TagsOption = None,
    sql: SqlOption = None,
    dialect: DialectOption = "rocketmq",
    where: WhereOption = None,
    on_filter_error: OnFilterErrorOption = "stop",
    start: Annotated[
        str,
        typer.Option(
            "--start",
            metavar="WHEN",
            help="Where a group begins that has no offsets yet: earliest, latest, or a time.",
        ),
    ] = "earliest",
    broadcast: Annotated[
        bool,
        typer.Option(
            "--broadcast",
            help="Get all messages of all queues, and keep the offsets in a file here.",
        ),
    ] = False,
    client_id: Annotated[
        str | None,
        typer.Option(
            "--client-id",
            metavar="ID",
            help="The member's name in the group; with --broadcast the host's name by default.",
        ),
    ] = None,
    max_count: Annotated[
        int | None, typer.Option("--max", metavar="N", min=1, help="End after so many messages.")
    ] = None,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="S", min=0, help="End after so many seconds without a message."
        ),
    ] = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Consume messages as a member of a group, and print them.

    They are printed as "store scan" does with --json.

    Ends after --max messages, after --timeout seconds without one, or with Ctrl-C. What was
    printed is committed, so the group goes on behind it; if the process is killed, the last
    messages may be printed again by the next one. All messages come unless one of --tags, --sql
    and --where says which.

    With --broadcast each member gets everything, and goes on where it was by its client id: the
    offsets are in DATA/broadcast/ID/GROUP/TOPIC.json. Several on one host need an id each.
    """
    begin = parse_place(start)
    subscription = chosen_subscription(tags, sql, where, on_filter_error, dialect)
    options: MemberOptions = {"start": begin, "client_id": client_id}
    if broadcast:
        options["broadcast"] = True
        options["client_id"] = client_id or platform.node()
    with (
        connect(data) as connection,
        until_signalled() as signalled,
        connection.consumer(group, topic, subscription, **options) as consumer,
    ):
        _print_all(consumer, signalled, max_count, timeout_s, as_json=as_json)


def _print_all(
    consumer: Member,
    signalled: threading.Event,
    max_count: int | None,
    timeout_s: float | None,
    *,
    as_json: bool,
) -> None:
    count, last = 0, time.monotonic()
    while not signalled.is_set() and (max_count is None or count < max_count):
        if timeout_s is not None and time.monotonic() - last > timeout_s:
            return
        for batch in consumer.poll(_POLL_S):
            room = len(batch) if max_count is None else max_count - count
            printed = _print_batch(consumer, batch, room, as_json=as_json)
            count += printed
            last = time.monotonic() if printed else last


def _print_batch(consumer: Member, batch: ConsumedBatch, room: int, *, as_json: bool) -> int:
    """Print up to *room* messages of a batch, commit behind the last one; how many it were."""
    shown = batch.messages()[:room]
    for message in shown:
        print_json(to_json(message)) if as_json else print_line(one_line(message))
    if len(shown) == len(batch):
        consumer.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
    elif shown:
        consumer.commit(batch.topic, batch.queue_id, shown[-1].queue_offset + 1)
    return len(shown)

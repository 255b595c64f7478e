"""``rocketray store query``: look up messages of a store directory by key or time, without a node.

With --jsonl, --limits and --filters, which help does not show, it answers the questions of
store_questions.py instead: tests compare the answers with those of RocketMQ's own classes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rocketray.cli.arguments.lookup_options import (
    MAX_DEFAULT,
    BeginOption,
    EndOption,
    MaxOption,
    OnlyTopicOption,
    span_of,
)
from rocketray.cli.arguments.messages import print_found
from rocketray.cli.arguments.options import JsonOption
from rocketray.cli.arguments.store_directory import (
    DirectoryArgument,
    OpenStore,
    SlotsOption,
    open_stores,
)
from rocketray.cli.terminal.lines import parse_object, read_lines
from rocketray.cli.terminal.output import print_json
from rocketray.errors import StreamError
from rocketray.message import QueueOffset

from .store_questions import Answers, Registered

if TYPE_CHECKING:
    from rocketray.message import StoredMessage
    from rocketray.store.message_store import MessageStore
    from rocketray.store.reading.pull import PullLimits

_READ_MESSAGES = 256  # of a queue at once


def query(
    directory: DirectoryArgument,
    *,
    topic: OnlyTopicOption = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="By one of its keys, or its unique id.")
    ] = None,
    begin_ms: BeginOption = None,
    end_ms: EndOption = None,
    max_count: MaxOption = MAX_DEFAULT,
    as_json: JsonOption = False,
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl", hidden=True, help="Read requests from stdin, a JSON object a line."
        ),
    ] = False,
    limits: Annotated[
        Literal["golden", "broker"],
        typer.Option(
            hidden=True,
            help="""Where one read of --jsonl stops. 'broker': as in a RocketMQ broker with \
default settings, after 32 messages or 256 KiB, 8 messages or 64 KiB if they count as on disk, \
and 800 queue entries. 'golden': only at the end of a queue file, which shows all matches of a \
filter; the reference answers of rocketray's own tests use it.""",
        ),
    ] = "broker",
    filters: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            hidden=True,
            help="The broker's consumerFilter.json, with the filters of the bitmaps.",
        ),
    ] = None,
    index_hash_slots: SlotsOption = None,
) -> None:
    """Look up messages of a store directory by key or by time.

    \b
    DIR is a node's data directory, a shard's, or the store directory of a RocketMQ broker.
    It is opened read-only; nothing is changed or locked. Messages are printed oldest first.

    Give --key, or a time with --from, --to or both; a time also narrows a key. TIME is milliseconds
    since 1970 or ISO 8601, in local time unless it names a zone. If nothing is found, the exit code
    is 1, and stderr says so. Of more than --max messages, a key shows the newest, and a time
    without a key the oldest.

    Examples:
        rocketray store query ./rocketray-data --topic Trade --key order-18
        rocketray store query ./store --from 2026-11-21T10:00Z --max 10
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    times = begin_ms is not None or end_ms is not None
    if jsonl and (key is not None or topic is not None or times):
        raise typer.BadParameter("--jsonl excludes --key, --topic, --from and --to")
    if not (jsonl or key or times):
        raise typer.BadParameter("give --key, or --from and --to")
    span = span_of(begin_ms, end_ms)
    with open_stores(directory, index_hash_slots=index_hash_slots) as opened:
        if jsonl:
            if not _answer_lines(Answers(opened, _pull_limits(limits), _registered(filters))):
                raise typer.Exit(1)
            return
        if key is None:
            found = list(islice(_by_time(opened, topic, span), max_count))
        else:
            found = _by_key(opened, topic, key, span, max_count)
    print_found(found, as_json=as_json)


def _by_key(
    opened: Sequence[OpenStore], topic: str | None, key: str, span: tuple[int, int], max_count: int
) -> list[StoredMessage]:
    """Return the newest messages with the key, oldest first; of every topic if *topic* is None."""
    found: list[StoredMessage] = []
    for one in opened:
        one.check_keys()
        topics = {name for name, _ in one.store.reads.queues()} if topic is None else {topic}
        for name in topics:
            found += one.store.reads.query(name, key, max_count, *span)
    return sorted(found, key=_age)[-max_count:]


def _by_time(
    opened: Sequence[OpenStore], topic: str | None, span: tuple[int, int]
) -> Iterator[StoredMessage]:
    queues = [
        _of_queue(one.store, name, queue_id, span)
        for one in opened
        for name, queue_id in one.store.reads.queues()
        if topic in (None, name)
    ]
    return merge(*queues, key=_age)


def _of_queue(
    store: MessageStore, topic: str, queue_id: int, span: tuple[int, int]
) -> Iterator[StoredMessage]:
    at = store.reads.queue_offset_by_time(topic, queue_id, span[0])
    while at < store.reads.max_queue_offset(topic, queue_id):
        result = store.reads.get_message(topic, queue_id, at, _READ_MESSAGES)
        for message in result.messages:
            if message.store_timestamp_ms > span[1]:
                return
            yield message
        at = QueueOffset(result.next_queue_offset)


def _age(message: StoredMessage) -> tuple[int, int]:
    return message.store_timestamp_ms, message.physical_offset


def _answer_lines(answers: Answers) -> bool:
    """Answer every line of stdin; return False if a line was invalid."""
    all_answered = True
    for number, line in read_lines(sys.stdin.buffer):
        try:
            print_json(answers.answer(parse_object(line)))
        except (ValueError, StreamError) as error:
            all_answered = False
            print_json({"line": number, "error": f"line {number}: {error}"})
    return all_answered


def _pull_limits(limits: str) -> PullLimits:
    from rocketray.store.reading.pull import PullLimits  # imports NumPy

    if limits == "broker":
        return PullLimits.broker()
    # 256 MiB, and no time, are as good as no limit: a read ends where its queue file does.
    return PullLimits(max_bytes=1 << 28, max_time_ms=inf, max_queue_files=1)


def _registered(path: Path | None) -> Registered:
    from rocketray.filters.consumer_filter_data import read_filters

    return {} if path is None else read_filters(path)

"""``rocketray send``: one message from the arguments, or many from stdin; and ``recall``.

With ``--jsonl`` or ``--format`` three things run in parallel: a thread reads and sends, the
producer batches the messages in flight, and the main thread prints each result when its message is
acknowledged, in order. So a line on stdout always stands for a stored message, also when the
process is killed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rocketray.base.ack_mode import ACK_PROMISES, AckMode
from rocketray.cli.arguments.line_format import LineFormatOption
from rocketray.cli.arguments.lookup_options import parse_time_ms
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import DATA_DEFAULT, CommonOptions, DataOption, TopicArgument
from rocketray.cli.terminal.lines import parse_object, read_lines
from rocketray.cli.terminal.output import as_time, print_json, print_line
from rocketray.cli.terminal.quantities import parse_delay
from rocketray.cli.terminal.usage import usage_error
from rocketray.errors import InvalidMessageError, StreamError
from rocketray.message import KEYS, TAGS, UNIQUE_KEY
from rocketray.views.outgoing import Outgoing, from_json, pairs_of

if TYPE_CHECKING:
    from rocketray.messaging.producers.batch import SendResult
    from rocketray.messaging.producers.producer import NodeProducer
    from rocketray.messaging.producers.send_future import SendFuture

_Read = Callable[[bytes], dict[str, Any]]
_STDIN = 0
_OF_OPTIONS = {
    TAGS: "give the tag with --tags",
    KEYS: "give keys with --key",
    UNIQUE_KEY: "each message gets its own",
}
_ONE = (
    *("BODY", "--tags", "--key", "--property", "--queue", "--sharding-key"),
    *("--delay-level", "--delay", "--deliver-at"),
)
"""What describes one message, and not those of stdin."""
# A full queue stops the reading of stdin, so a slow reader of stdout holds up the sender.
_UNACKNOWLEDGED_MAX = 16_384  # messages that are sent and not yet printed
_by_hand = usage_error(StreamError)(from_json)
_pairs = usage_error(StreamError)(pairs_of)


def send(
    topic: TopicArgument,
    body: Annotated[str | None, typer.Argument(help="The body of one message, as text.")] = None,
    *,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Read messages from stdin, a JSON object a line.")
    ] = False,
    line_format: LineFormatOption = None,
    tags: Annotated[str | None, typer.Option(metavar="TAG", help="The message's tag.")] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--key", metavar="KEY", help="A key to look the message up by; may be repeated."
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="A property, for SQL92 filters; may be repeated.",
        ),
    ] = None,
    queue_id: Annotated[
        int | None, typer.Option("--queue", metavar="N", min=0, help="The queue to send to.")
    ] = None,
    sharding_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Messages with the same key go to one queue, in order."),
    ] = None,
    ack: Annotated[
        AckMode | None,
        typer.Option(
            help=f"When a message is acknowledged: {ACK_PROMISES}.  "
            "[default: as the topic says, or else the node, at first memory]",
            show_default=False,
        ),
    ] = None,
    delay_level: Annotated[
        int | None, typer.Option(metavar="N", help="Delay it by RocketMQ's delay level N.")
    ] = None,
    delay: Annotated[
        int | None,
        typer.Option(parser=parse_delay, metavar="TIME", help="Delay it by a time: 90s, 7d."),
    ] = None,
    deliver_at: Annotated[
        int | None,
        typer.Option(
            parser=parse_time_ms,
            metavar="TIME",
            help="Deliver it at a time: ISO 8601, or milliseconds since 1970.",
        ),
    ] = None,
    compression: Annotated[
        Literal["zlib", "lz4", "zstd"] | None,
        typer.Option(help="Compress bodies of 4096 bytes and more."),
    ] = None,
    common: CommonOptions,
) -> None:
    """Send a message, or many from stdin with --jsonl or --format. Prints where each was stored.

    \b
    With --jsonl a line is an object as "store scan" prints it, or shorter:
      {"text": "paid", "tags": "pay", "keys": ["order-17"], "properties": {"amount": "9"}}
    body (base64) or text; tags, keys, properties, queueId, shardingKey, and one of delayLevel,
    delayMs and deliverAt if wanted. Of a printed message, what the node noted is left out.

    \b
    With --format a line is taken apart as the format says; blank lines are left out:
      rocketray consume Trade --group copy --format "%k\\t%s\\n" --timeout 1 |
        rocketray send Copy --format "%k\\t%s\\n"

    A message can be delayed by up to 40 days. It is stored at once, and "rocketray recall" recalls
    it by the handle that is printed.

    For each message a line with offsetMsgId, msgId, queueId and queueOffset is printed when it is
    acknowledged, in the order of the input. An invalid line ends the command with code 1; the
    messages before it are stored and printed, those after it are not read.

    Examples:
        rocketray send Trade paid --tags pay --key order-17 --property amount=9
        rocketray send Trade --jsonl < trade.jsonl
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    delays = {"delayLevel": delay_level, "delayMs": delay, "deliverAt": deliver_at}
    places = queue_id, sharding_key, *delays.values()
    one_by_hand = (body, tags, keys or None, properties or None, *places)
    read = parse_object if jsonl else None if line_format is None else line_format.fields
    if jsonl and line_format is not None:
        raise typer.BadParameter("--jsonl and --format exclude each other")
    if read is not None:
        given = [name for name, value in zip(_ONE, one_by_hand, strict=True) if value is not None]
        if given:
            raise typer.BadParameter(
                f"{', '.join(given)}: with --jsonl or --format each line has everything about its "
                'message, as in {"text": "paid", "tags": "pay"}; leave it out'
            )
    elif sum(value is not None for value in delays.values()) > 1:
        raise typer.BadParameter("--delay-level, --delay and --deliver-at exclude each other")
    elif body is None:
        raise typer.BadParameter(
            "give the BODY of the message, or --jsonl or --format to read from stdin"
        )
    fields = {
        "text": body,
        "tags": tags,
        "keys": keys,
        "properties": _pairs(properties or [], _OF_OPTIONS),
        "queueId": queue_id,
        "shardingKey": sharding_key,
        **delays,
    }
    outgoing = None if read is not None else _by_hand(topic, fields)
    with (
        ask(common.data, stays=read is not None) as connection,
        connection.producer(ack=ack, compression=compression) as producer,
    ):
        if read is not None:
            connection.topics.get(topic)
            _send_lines(producer, topic, read)
            return
        assert outgoing is not None
        now_ms = connection.clock_ms()
        result = producer.send(topic, outgoing.message.body, **outgoing.options)
    where = f"stored at {topic}/{result.queue_id}@{result.queue_offset}"
    if outgoing.delay is not None:
        where = f"waits for topic {topic} until {as_time(outgoing.delay.due_ms(now_ms))}"
    shown = [f"{where}  id {result.offset_message_id}  unique key {result.message_id}"]
    if result.recall_handle is not None:
        shown.append(f"recall it with: rocketray recall {result.recall_handle}")
    common.emit(_fields(result), shown)


def _send_lines(producer: NodeProducer, topic: str, read: _Read) -> None:
    """Send the messages of stdin; print results until the input or the first failure ends it."""
    sent: queue.Queue[SendFuture[SendResult] | Exception | None] = queue.Queue(_UNACKNOWLEDGED_MAX)
    arguments = (producer, topic, read, sent)
    threading.Thread(target=_read_and_send, args=arguments, name="stdin", daemon=True).start()
    while (item := sent.get()) is not None:
        if isinstance(item, Exception):
            raise item
        print_json(_fields(item.result()))


def _read_and_send(
    producer: NodeProducer,
    topic: str,
    read: _Read,
    sent: queue.Queue[SendFuture[SendResult] | Exception | None],
) -> None:
    """Read and send in a thread; the queue reports everything, also a failure and the end."""
    try:  # a file of its own: at exit the thread may still read, and sys.stdin could not be closed
        stream = open(_STDIN, "rb", closefd=False)  # noqa: SIM115 - it is not closed
        for number, line in read_lines(stream):
            outgoing = _parse(topic, number, line, read)
            sent.put(producer.send_async(topic, outgoing.message.body, **outgoing.options))
    except Exception as error:  # noqa: BLE001 - raised again where the queue is read
        sent.put(error)
    else:
        sent.put(None)


def _parse(topic: str, number: int, line: bytes, read: _Read) -> Outgoing:
    try:
        return from_json(topic, read(line))
    except (ValueError, StreamError) as error:
        raise InvalidMessageError(
            f"line {number} of the input: {error}; this line and the following ones were not sent"
        ) from None


def _fields(result: SendResult) -> dict[str, str | int]:
    handle = {} if result.recall_handle is None else {"recallHandle": result.recall_handle}
    return {
        "offsetMsgId": result.offset_message_id,
        "msgId": result.message_id,
        "queueId": result.queue_id,
        "queueOffset": result.queue_offset,
        **handle,
    }


def recall(
    handle: Annotated[str, typer.Argument(help="The recall handle that the send printed.")],
    data: DataOption = DATA_DEFAULT,
) -> None:
    """Recall a delayed message, so that it is never delivered.

    The exit code is 1 if it is too late: the message was delivered, or recalled before.

    Examples:
        rocketray recall HANDLE
        rocketray recall HANDLE --data /srv/stream
    """
    with ask(data) as node:
        if node.delays.recall(handle):
            print_line("recalled: it will not be delivered")
            return
    print_line("too late: it was delivered, or recalled before")
    raise typer.Exit(1)

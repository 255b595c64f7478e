"""The batches of a send of many messages: which message goes to which queue, and with which batch.

The queue is chosen by the same options as for one message. A list whose messages are delayed is
first placed in the topics where they wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from rocketray.base.delay import Delay
from rocketray.base.names import check_topic
from rocketray.base.system_topics import check_open_topic
from rocketray.broker.retries.deliveries import grouped
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.message import SHARDING_KEY, ForwardedMessage, Message, with_sharding_key
from rocketray.store.batches.message_lists import GatheredMessages, MessageLists

from .delayed_messages import place_delayed
from .given_lists import GivenLists
from .links import QueueLinks, hash_of_key
from .parts import Content, Messages, Part, cut, cut_table
from .producer_options import EverySend, ManyOptions, check_send, delay_in
from .queue_selector import select_queue

Table: TypeAlias = pa.Table | pa.RecordBatch
_OF_ONE = ("unique_key", "transaction")
# Where messages or a table are given, these are parts of each, so an option would be ignored.
_OF_MESSAGES = ("tags", "keys", "properties")
_BESIDE_SENDS = ("bodies", "property_columns")  # of :class:`ManyOptions` alone
_DELAYS = ("delay_level", "delay", "deliver_at")


def parts_of(
    links: QueueLinks,
    function: str,
    topic: str,
    messages: Sequence[Message] | Table | None,
    options: ManyOptions,
    *,
    now_ms: int,
) -> list[Part]:
    """Return the batches of messages, of a table's rows, or of bodies, for a call of *function*.

    Raises:
        ConfigError: an option does not fit what is sent, or nothing or too much is given.
        InvalidMessageError: they are not messages of that topic, or programs may not send to it.
        TopicNotFoundError: there is no such topic.
    """
    check_send(function, ("topic", "messages", *_BESIDE_SENDS), options)
    bodies, property_columns = options.get("bodies"), options.get("property_columns", ())
    if (bodies is None) == (messages is None):
        raise ConfigError("give what to send once: a list of rr.Message, a table, or bodies=")
    check_open_topic(check_topic(topic))
    _refuse(options, _OF_ONE, "belongs to one message; send that one by itself")
    if bodies is not None:
        return _list_parts(links, topic, bodies, options, now_ms)
    _refuse(options, _OF_MESSAGES, "is part of each message here; it is an option of bodies=")
    if isinstance(messages, Table):
        _refuse(options, (*_DELAYS, "queue_selector"), "is not for a table; send rr.Message")
        return _table_parts(links, topic, messages, property_columns, options)
    if property_columns:
        raise ConfigError("property_columns= names columns of a table, and no table is given")
    assert messages is not None
    check_messages(topic, messages)
    return _message_parts(links, topic, messages, options, now_ms)


def delayed_parts(
    links: QueueLinks,
    messages: Sequence[Message],
    delays: Sequence[Delay],
    queues: Sequence[int | None],
    now_ms: int,
) -> list[Part]:
    """Return the batches of messages that wait for a delay each."""
    placed = [
        place_delayed(
            links, message, delay, queue, message.properties.get(SHARDING_KEY), now_ms=now_ms
        )
        for message, delay, queue in zip(messages, delays, queues, strict=True)
    ]
    waiting = Messages([delayed.message for delayed in placed])
    places = grouped(
        ((delayed.message.topic, delayed.queue_id), at) for at, delayed in enumerate(placed)
    )
    return [
        Part(topic, queue, numbers, waiting)
        for (topic, queue), those in places.items()
        for numbers in cut(waiting, those)
    ]


def check_messages(topic: str, messages: object) -> None:
    """Raise :class:`InvalidMessageError` unless *messages* is a list of messages of *topic*."""
    if isinstance(messages, GatheredMessages) and messages.topic == topic:
        return
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise InvalidMessageError(
            f"the messages are {messages!r:.60}; give a list of rr.Message(topic, body), or a "
            "pyarrow Table or RecordBatch with a column body"
        )
    if {*map(type, messages)} == {Message} and {message.topic for message in messages} == {topic}:
        return
    for number, message in enumerate(messages):
        if not isinstance(message, Message | ForwardedMessage):
            raise InvalidMessageError(
                f"message {number} is {message!r:.60}; make each of them with rr.Message(topic, "
                "body), or give bodies alone as bodies=[…]"
            )
        if message.topic != topic:
            raise InvalidMessageError(
                f"message {number} is for topic {message.topic!r} and was sent to topic {topic!r}; "
                "send the messages of each topic by themselves"
            )


def _message_parts(
    links: QueueLinks, topic: str, messages: Sequence[Message], options: EverySend, now_ms: int
) -> list[Part]:
    selector = options.get("queue_selector")
    queue_id = _chosen(links, topic, options)
    if sharding_key := options.get("sharding_key"):
        messages = [
            replace(message, properties=with_sharding_key(message.properties, sharding_key, topic))
            for message in messages
        ]
    selected: list[int] = []
    if selector is not None:
        count = links.topic(topic).queues
        selected = [select_queue(selector, count, message) for message in messages]
    if (delay := delay_in(options)) is not None:
        queues: Sequence[int | None] = selected or [queue_id] * len(messages)
        return delayed_parts(links, messages, [delay] * len(messages), queues, now_ms)
    if not messages:
        return []
    links.topic(topic)  # an unknown one is refused before anything is encoded
    lists = MessageLists.of(topic, messages)
    content = Messages([*messages]) if lists is None else lists.encode(links.form(topic))
    if selector is not None:
        chosen = grouped(zip(selected, range(len(messages)), strict=True))
        return [
            Part(topic, queue, numbers, content)
            for queue, those in chosen.items()
            for numbers in cut(content, those)
        ]
    keys = None
    if lists is None or lists.has_property(SHARDING_KEY):
        if isinstance(messages, GatheredMessages):  # without a message object for each
            keys = [properties.get(SHARDING_KEY) for properties in messages.properties]
        else:
            keys = [message.properties.get(SHARDING_KEY) for message in messages]
    return _placed(links, topic, content, queue_id, keys)


def _placed(
    links: QueueLinks,
    topic: str,
    content: Content,
    queue_id: int | None,
    keys: Sequence[str | None] | None,
) -> list[Part]:
    """Return the batches of *content* for that queue, or by the sharding key of each message."""
    batches = cut(content, range(len(content)))
    if queue_id is not None:
        return [Part(topic, queue_id, numbers, content) for numbers in batches]
    return [part for numbers in batches for part in _by_key(links, topic, content, numbers, keys)]


def _by_key(
    links: QueueLinks,
    topic: str,
    content: Content,
    numbers: Sequence[int],
    keys: Sequence[str | None] | None,
) -> list[Part]:
    """Return the messages of one batch by queue: that of the key, or the next one in turn."""
    turn, queues = links.next_queue(topic), links.topic(topic).queues
    own_keys = [keys[number] for number in numbers] if keys is not None else []
    if not any(own_keys):
        return [Part(topic, turn, numbers, content, is_free=True)]
    chosen = (turn if key is None else hash_of_key(key) % queues for key in own_keys)
    return [
        Part(topic, queue, those, content)
        for queue, those in grouped(zip(chosen, numbers, strict=True)).items()
    ]


def _list_parts(
    links: QueueLinks, topic: str, bodies: Sequence[bytes], options: ManyOptions, now_ms: int
) -> list[Part]:
    properties = options.get("properties") or {}
    lists = GivenLists(topic, bodies, options.get("tags"), options.get("keys"), properties)
    is_each = options.get("queue_selector") is not None or delay_in(options) is not None
    if is_each or not bodies:
        return _message_parts(links, topic, lists.messages(), options, now_ms)
    queue_id = _chosen(links, topic, options)
    if sharding_key := options.get("sharding_key"):
        lists = replace(lists, properties={**properties, SHARDING_KEY: sharding_key})
    columns, keys = lists.columns(), lists.sharding_keys()
    if columns is None:
        return _message_parts(links, topic, lists.messages(), options, now_ms)
    if queue_id is None and isinstance(keys, str):
        queue_id = links.choose_queue(topic, None, keys)
    links.topic(topic)  # an unknown one is refused before anything is encoded
    row_keys = None if isinstance(keys, str) else keys
    return _placed(links, topic, columns.encode(links.form(topic)), queue_id, row_keys)


def _table_parts(
    links: QueueLinks,
    topic: str,
    table: Table,
    property_columns: Sequence[str],
    options: EverySend,
) -> list[Part]:
    parts, first = [], 0
    chosen = _chosen(links, topic, options)
    if sharding_key := options.get("sharding_key"):
        table = _with_key_column(table, sharding_key)
        property_columns = list(dict.fromkeys((*property_columns, SHARDING_KEY)))
    for rows in cut_table(table):
        numbers = range(first, first + rows.num_rows)
        queue_id = links.next_queue(topic) if chosen is None else chosen
        is_free = chosen is None
        parts.append(Part(topic, queue_id, numbers, None, rows, property_columns, is_free))
        first += rows.num_rows
    return parts


def _with_key_column(table: Table, sharding_key: str) -> Table:
    names, keys = table.schema.names, pa.repeat(sharding_key, table.num_rows)
    if SHARDING_KEY in names:
        return table.set_column(names.index(SHARDING_KEY), SHARDING_KEY, keys)
    return table.append_column(SHARDING_KEY, keys)


def _chosen(links: QueueLinks, topic: str, options: EverySend) -> int | None:
    """Return the queue that the options choose for all messages, or None."""
    queue_id, sharding_key = options.get("queue_id"), options.get("sharding_key")
    if queue_id is None and sharding_key is None:
        return None
    return links.choose_queue(topic, queue_id, sharding_key)


def _refuse(options: Mapping[str, Any], names: Sequence[str], reason: str) -> None:
    for name in names:
        if options.get(name) is not None:
            raise ConfigError(f"{name}= {reason}")

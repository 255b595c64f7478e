"""Marks: the properties of a message that are not its user's, and what each of them is worth.

RocketMQ keeps what a node notes about a message in the same map as the user's properties. This
table says of each such name who writes it, in which topics it counts, and whether it travels.

Rules
  1. A mark counts where its writer puts it, as :func:`mark` says. In any other topic it is text
     that a broker, an older version or a program left there, and nothing is decided by it.
  2. A node that stores a message again keeps its properties, and corrects its own: redelivered,
     dead-lettered, delayed, committed or redriven it is the same message. A program that takes a
     message on, by ``forward``, ``group_by``, ``through``, Spark, Ray Data or a command, makes
     another one, which has the marks that travel, and no others (:func:`taken_on`).
  3. A program cannot give a message a mark of the node's (:func:`refusal`), because the node would
     overwrite it. RocketMQ's client refuses most of these names, too. The node's own topics are
     excepted, such as those of retries and dead letters, which a program may fill from a backup.

The node's own messages, such as the decision about a transaction, have further properties, which no
message of a user has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Protocol

from .names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from .system_topics import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    WAITING_QUEUES,
    is_internal_by_name,
)

TAGS = "TAGS"
KEYS = "KEYS"
UNIQUE_KEY = "UNIQ_KEY"
SHARDING_KEY = "__SHARDINGKEY"
"""RocketMQ's property of the sharding key, by which messages keep their order."""
FAUST_KEY = "FAUST_KEY"
"""The form of a key that the sharding key cannot hold (wire.py)."""
OF_THE_KEY = (SHARDING_KEY, FAUST_KEY)
"""A key and its form, which go together: another key with this form would be read as another."""
FAUST_NULL = "FAUST_NULL"
"""Says that an empty body stands for a null."""
FAUST_HEADERS = "FAUST_HEADERS"
"""The headers that no property can hold."""
TRACE_PARENT, TRACE_STATE = "traceparent", "tracestate"
"""The W3C trace context."""
CRC_PROPERTY = "__CRC32#"
"""RocketMQ's property with a CRC of the whole record, which only a store can write."""
IMPORTED_OFFSET_ID = "IMPORTED_OFFSET_ID"
"""The offset id that an imported message had in its former store; indexed like a key."""

REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
DELAY_LEVEL = "DELAY"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
"""The time of delivery, in milliseconds since 1970."""
TIMER_DELAY_MS = "TIMER_DELAY_MS"
"""The delay in milliseconds, where the producer gave a delay and not a time."""
TIMER_OUT_MS = "TIMER_OUT_MS"
"""The timer's tick (whole seconds) before the time of delivery, in milliseconds since 1970."""
TIMER_ROLLED_FROM = "TIMER_ROLLED_FROM"
"""The place of a message before it was stored again; an addition to RocketMQ's, never delivered."""

PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
TRANSACTION_ID = "__transactionId__"
IMMUNITY_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""How long the producer wants no check of its transaction; a program gives it."""

RETRY_TOPIC = "RETRY_TOPIC"
"""The topic that a message was read from when it first failed."""
RETRY_QUEUE_ID = "RETRY_QID"
"""The queue of that topic; RocketMQ, which has no tables, lacks it."""
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
"""The message's offset id there."""
GIVEN_UP_BY = "GIVEN_UP_BY"
"""The group of a dead letter, if the topic's name does not have it."""
FAILURE_REASON = "FAILURE_REASON"
"""The last error of a dead letter's group: the exception's type and text."""
REDRIVEN_FROM = "REDRIVEN_FROM"
"""The offset id of the dead letter that was redriven (dead_letters.py).

A redrive that was interrupted looks for its own in the queue that it wrote to, whatever the topic.
"""


class Writer(Enum):
    """Who writes a mark."""

    PRODUCER = "the producer"
    TRACING = "tracing"
    IMPORT = "an import"
    STORE = "the store"
    DELAYS = "delays"
    TRANSACTIONS = "transactions"
    RETRIES = "retries"
    DEAD_LETTERS = "dead letters"
    ROCKETMQ = "a RocketMQ broker or its client"


class Where(Flag):
    """The records in which a mark counts."""

    NOWHERE = 0
    ANYWHERE = auto()
    WAITING = auto()
    """In the topics of delayed messages."""
    HALF = auto()
    """In the topics of half messages, and of those that were abandoned."""
    RETRY = auto()
    """In a retry topic, or on the way to one, in a topic of delayed messages."""
    LETTER = auto()
    """In a dead-letter topic."""
    NAMED_LETTER = auto()
    """In a topic that an agent named for its dead letters: each names its group."""
    ARRIVED = auto()
    """In the topic that it was delayed or prepared for: it tells the way here, and no more."""


_LETTERS = Where.LETTER | Where.NAMED_LETTER
# A delivered message keeps the marks of its way, as in RocketMQ, where REAL_TOPIC proves that it
# came this way.
_WAY = Where.WAITING | Where.HALF | Where.ARRIVED


@dataclass(frozen=True, slots=True)
class Mark:
    """A reserved name: who writes it, where it counts, and whether a message taken on has it.

    *may_be_given* says that a program may give it as a property, *instead* what it uses else.
    """

    name: str
    writer: Writer
    where: Where
    travels: bool = False
    may_be_given: bool = False
    instead: str = ""


_DELAY = "send with delay_level=, delay= or deliver_at="
_TRANSACTION = "send in a transaction"
_TABLE = (
    # The producer's, which count wherever the message is.
    Mark(TAGS, Writer.PRODUCER, Where.ANYWHERE, travels=True, instead="use tags="),
    Mark(KEYS, Writer.PRODUCER, Where.ANYWHERE, travels=True, instead="use keys="),
    Mark(UNIQUE_KEY, Writer.PRODUCER, Where.ANYWHERE, instead="use unique_key="),
    Mark(SHARDING_KEY, Writer.PRODUCER, Where.ANYWHERE, travels=True, may_be_given=True),
    Mark(FAUST_KEY, Writer.PRODUCER, Where.ANYWHERE, travels=True, may_be_given=True),
    Mark(FAUST_NULL, Writer.PRODUCER, Where.ANYWHERE, travels=True, may_be_given=True),
    Mark(FAUST_HEADERS, Writer.PRODUCER, Where.ANYWHERE, travels=True, may_be_given=True),
    Mark(TRACE_PARENT, Writer.TRACING, Where.ANYWHERE, travels=True, may_be_given=True),
    Mark(TRACE_STATE, Writer.TRACING, Where.ANYWHERE, travels=True, may_be_given=True),
    # Of the record.
    Mark(CRC_PROPERTY, Writer.STORE, Where.ANYWHERE, may_be_given=True),  # given, it is not stored
    Mark(IMPORTED_OFFSET_ID, Writer.IMPORT, Where.ANYWHERE, may_be_given=True),
    # Of its way to its topic, where RocketMQ leaves them, too.
    Mark(REAL_TOPIC, Writer.DELAYS, _WAY),
    Mark(REAL_QUEUE_ID, Writer.DELAYS, _WAY),
    Mark(DELAY_LEVEL, Writer.DELAYS, _WAY, instead=_DELAY),
    Mark(TIMER_DELIVER_MS, Writer.DELAYS, _WAY, instead=_DELAY),
    Mark(TIMER_DELAY_MS, Writer.DELAYS, _WAY, instead=_DELAY),
    Mark("TIMER_DELAY_SEC", Writer.DELAYS, Where.NOWHERE, instead=_DELAY),
    Mark(TIMER_OUT_MS, Writer.DELAYS, _WAY),
    Mark(TIMER_ROLLED_FROM, Writer.DELAYS, Where.WAITING),
    Mark(PREPARED, Writer.TRANSACTIONS, _WAY, instead=_TRANSACTION),
    Mark(PRODUCER_GROUP, Writer.TRANSACTIONS, _WAY, instead=_TRANSACTION),
    Mark(TRANSACTION_ID, Writer.TRANSACTIONS, _WAY, instead=_TRANSACTION),
    Mark(IMMUNITY_S, Writer.PRODUCER, Where.HALF, may_be_given=True),
    # Of its failures in a group.
    Mark(RETRY_TOPIC, Writer.RETRIES, Where.RETRY | _LETTERS),
    Mark(RETRY_QUEUE_ID, Writer.RETRIES, Where.RETRY | _LETTERS),
    Mark(ORIGIN_MESSAGE_ID, Writer.RETRIES, Where.RETRY | _LETTERS),
    Mark(GIVEN_UP_BY, Writer.DEAD_LETTERS, Where.NAMED_LETTER),
    Mark(FAILURE_REASON, Writer.DEAD_LETTERS, _LETTERS),
    Mark(REDRIVEN_FROM, Writer.DEAD_LETTERS, Where.RETRY | _LETTERS),
    # Those that RocketMQ alone writes; imported messages have them.
    *(
        Mark(name, Writer.ROCKETMQ, Where.NOWHERE)
        for name in (
            *("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY"),
            *("TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"),
            *("RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME"),
            *("POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME"),
        )
    ),
)
MARKS: Mapping[str, Mark] = {each.name: each for each in _TABLE}


def written_by(*writers: Writer) -> frozenset[str]:
    return frozenset(each.name for each in _TABLE if each.writer in writers)


DELAY_PROPERTIES = written_by(Writer.DELAYS)
"""The properties of a delay, which a new delay replaces."""
_REFUSED = frozenset(each.name for each in _TABLE if not each.may_be_given)
_OF_FIELDS = _REFUSED & written_by(Writer.PRODUCER)  # tag, keys, unique key
LEFT_BEHIND = frozenset(each.name for each in _TABLE if not each.travels)
"""The names that a message does not have if a program makes it of another one."""


class Marked(Protocol):
    """A record: where it is, and its properties."""

    @property
    def topic(self) -> str:
        """The topic in which it is stored."""

    @property
    def properties(self) -> Mapping[str, str]:
        """All its properties, the user's and the marks."""


def mark(record: Marked, name: str) -> str | None:
    """Return a mark of *record*; None without it, and in a topic where it does not count."""
    text = record.properties.get(name)
    if text is None or not MARKS[name].where & (Where.ANYWHERE | _where(record)):
        return None
    return text


def taken_on(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a message that is made of one with *properties*: those that travel.

    Tag, keys and sharding key are among them.
    """
    return {name: text for name, text in properties.items() if name not in LEFT_BEHIND}


def keyed(properties: Mapping[str, str], sharding_key: str) -> dict[str, str]:
    """Return *properties* with *sharding_key*, and without another and its form."""
    found = {**properties, SHARDING_KEY: sharding_key}
    # A form stays with the key that it belongs to: of the same text it is the form of the new key,
    # too.
    if FAUST_KEY in found and properties.get(SHARDING_KEY, sharding_key) != sharding_key:
        del found[FAUST_KEY]
    return found


def refused_names(topic: str) -> frozenset[str]:
    """Return the names of properties that a program may not give a message of *topic*.

    In the node's own topics these are only tag, keys and unique key, which have fields.
    """
    return _OF_FIELDS if is_internal_by_name(topic) else _REFUSED


def is_refused(name: str, topic: str) -> bool:
    # The set first: most names of properties are in neither, and this runs for each property sent.
    return name in _REFUSED and name in refused_names(topic)


def refusal(name: str) -> str:
    """Return why a property *name* is refused, and what to do instead."""
    found = MARKS[name]
    if found.writer is Writer.PRODUCER:
        return f"property {name} is set by the field of that name: {found.instead}"
    return (
        f"property {name} is the node's own, written by {found.writer.value}: "
        f"{found.instead or 'use another name'}; to send a message on, give its user_properties"
    )


def _where(record: Marked) -> Where:
    """Return what *record* is, by its topic and by what the node puts into that."""
    topic, properties = record.topic, record.properties
    if topic in WAITING_QUEUES:
        is_retry = properties.get(REAL_TOPIC, "").startswith(RETRY_PREFIX)
        return Where.WAITING | Where.RETRY if is_retry else Where.WAITING
    if topic in (HALF_TOPIC, GIVEN_UP_TOPIC):
        return Where.HALF
    if topic.startswith(RETRY_PREFIX):
        return Where.RETRY
    if topic.startswith(DEAD_LETTER_PREFIX):
        return Where.LETTER
    found = Where.NAMED_LETTER if GIVEN_UP_BY in properties else Where.NOWHERE
    return found | Where.ARRIVED if properties.get(REAL_TOPIC) == topic else found

"""Transactional messages: the forms in which they are stored until they are decided.

    half        the message that the producer sends first, in the half topic; no consumer reads it
    decision    ``commit``, ``rollback`` or ``abandon``, in our own topic; its key is the half's
                unique key
    op          the node's record that these halves are done
    committed   the message in its real topic: SYSFLAG says COMMIT, and it names its half

- Half, op and committed messages are RocketMQ's.
- In RocketMQ a decision is a request to the broker. Here it is a message, so it is as durable as
  any message, and one log says which decision came first.
- Producers and their checks decide to commit or to roll back; the node abandons undecided ones.

Source: RocketMQ 5.3.3, ``TransactionalMessageBridge``, ``EndTransactionProcessor``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.message import ForwardedMessage, Message, StoredMessage

from .delay import Placed, at_level
from .marks import (
    DELAY_LEVEL,
    IMMUNITY_S,
    PREPARED,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_ID,
)
from .names import check_group
from .system_topics import END_TOPIC, GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, is_system_topic

_HALF_OFFSET = "HALF_QUEUE_OFFSET"
_DECIDED_BY = "DECIDED_BY"
_DONE_TAG = "d"  # RocketMQ's tag of an op message
_COMMITTED = 0x8  # SYSFLAG: the message of a committed transaction
_TRANSACTION_BITS = 0xC  # SYSFLAG: none, prepared, commit or rollback
_OFFSET_DIGITS_MAX = 19  # 2**63 - 1 has 19 digits

Outcome = Literal["commit", "rollback"]
Ending = Literal["commit", "rollback", "abandon"]
Decider = Literal["producer", "check", "node"]
_ENDINGS: Mapping[str, Ending] = {ending: ending for ending in get_args(Ending)}
_DECIDERS: Mapping[str, Decider] = {decider: decider for decider in get_args(Decider)}


class Decision(NamedTuple):
    """The decision about a half message; the unique key and the group prove which half it means."""

    half_offset: int
    unique_key: str
    group: str
    outcome: Ending
    decider: Decider = "producer"


class Verdict(NamedTuple):
    """The decision about a half message that counts: the first one."""

    outcome: Ending
    decided_ms: int
    decider: Decider


def half_message(
    message: Message, queue_id: int, group: str, unique_key: str, delay_level: int = 0
) -> Message:
    """Return *message*, for queue *queue_id*, as a half message that waits for its decision.

    With *delay_level* the message is delivered with that delay after its commit.

    Raises:
        InvalidMessageError: messages of that topic cannot be transactional.
    """
    if is_system_topic(message.topic):
        raise InvalidMessageError(
            f"topic {message.topic!r} is a system topic; transactions are for other topics"
        )
    properties = {
        **message.properties,
        PREPARED: "true",
        PRODUCER_GROUP: check_group(group),
        REAL_TOPIC: message.topic,
        REAL_QUEUE_ID: str(queue_id),
        TRANSACTION_ID: unique_key,
        **({DELAY_LEVEL: str(delay_level)} if delay_level else {}),
    }
    return replace(message, topic=HALF_TOPIC, unique_key=unique_key, properties=properties)


def target(half: StoredMessage) -> tuple[str, int]:
    """Return the topic and queue that a half message is for.

    Raises:
        InvalidMessageError: the half does not name them.
    """
    topic, queue_id = half.properties.get(REAL_TOPIC), _number(half, REAL_QUEUE_ID, 4)
    if topic is None or queue_id is None:
        raise InvalidMessageError(
            f"half message {half.offset_message_id} does not name its topic and queue"
        )
    return topic, queue_id


def immunity_ms(half: StoredMessage) -> int:
    """Return how long the producer wants no check, in milliseconds; 0 if it gave no time."""
    return 1000 * (_number(half, IMMUNITY_S, 9) or 0)  # 9 digits of seconds: 31 years


def committed(half: StoredMessage) -> Placed[ForwardedMessage]:
    """Return the message that consumers receive, and its queue; it keeps the half's properties.

    As in RocketMQ. A half with a delay level becomes a delayed message, starting at the commit.

    Raises:
        InvalidMessageError: the half does not name its topic and queue.
    """
    topic, queue_id = target(half)
    message = ForwardedMessage.of(
        half,
        topic=topic,
        sys_flag=committed_flag(half),
        prepared_transaction_offset=half.physical_offset,
    )
    level = _number(half, DELAY_LEVEL, 2)  # 18 levels, so 2 digits
    if level:
        return at_level(message, level, queue_id)
    return Placed(message, queue_id)


def committed_flag(half: StoredMessage) -> int:
    """Return the SYSFLAG of a committed half: its own, with COMMIT as the state."""
    return half.sys_flag & ~_TRANSACTION_BITS | _COMMITTED


def given_up(half: StoredMessage) -> ForwardedMessage:
    """Return the half, in the topic of halves that were never decided."""
    return ForwardedMessage.of(half, topic=GIVEN_UP_TOPIC)


def decision_message(decision: Decision) -> Message:
    """Return *decision* as a message of ``END_TOPIC``: its outcome is the tag, its half the key."""
    key = decision.unique_key
    return Message(
        END_TOPIC,
        b"",
        decision.outcome,
        [key] if key else [],
        properties={
            _DECIDED_BY: decision.decider,
            _HALF_OFFSET: str(decision.half_offset),
            TRANSACTION_ID: decision.unique_key,
            PRODUCER_GROUP: decision.group,
        },
    )


def parse_decision(stored: StoredMessage) -> Decision | None:
    """Return the decision in a message of ``END_TOPIC``, or None if it has none."""
    half_offset = _number(stored, _HALF_OFFSET, _OFFSET_DIGITS_MAX)
    outcome = _ENDINGS.get(stored.tags or "")
    if half_offset is None or outcome is None:
        return None
    unique_key = stored.properties.get(TRANSACTION_ID, "")
    group = stored.properties.get(PRODUCER_GROUP, "")
    decider = _DECIDERS.get(stored.properties.get(_DECIDED_BY, ""), "producer")
    return Decision(half_offset, unique_key, group, outcome, decider)


def op_message(half_offsets: list[int]) -> Message:
    """Return the record that the halves at these queue offsets are done."""
    if not half_offsets:
        raise ConfigError("an op message names at least one half message")
    return Message(OP_TOPIC, "".join(f"{offset}," for offset in half_offsets).encode(), _DONE_TAG)


def done_offsets(op: StoredMessage) -> list[int]:
    """Return the queue offsets of the halves that an op message names; other texts are skipped."""
    if op.tags != _DONE_TAG:
        return []
    texts = op.body.split(b",")
    return [int(text) for text in texts if text.isdigit() and len(text) <= _OFFSET_DIGITS_MAX]


def _number(stored: StoredMessage, name: str, digits_max: int) -> int | None:
    """Return the property *name* as a number; None if it is no number of so many ASCII digits."""
    text = stored.properties.get(name, "")
    is_number = text.isascii() and text.isdecimal() and len(text) <= digits_max
    return int(text) if is_number else None

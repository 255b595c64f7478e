"""Transactional messages: the forms in which they are stored until their fate is known.

    half        what the producer sent first, in the half topic: nobody reads it
    decision    commit, rollback or give up, in a topic of ours; its key is the half's unique key
    op          "these halves are done with", by the node
    committed   the message in its own topic: SYSFLAG says COMMIT, and it names its half

Half, op and committed messages are RocketMQ's. There a decision is a request to the broker; here
it is a message, so that it is as durable as all else and one log says which decision came first.
Producers and their checks decide to commit or to roll back, the node decides to give up.
Source: RocketMQ 5.3.3, ``TransactionalMessageBridge``, ``EndTransactionProcessor``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

from .delay import DELAY_LEVEL, REAL_QUEUE_ID, REAL_TOPIC, Placed, at_level
from .errors import ConfigError, InvalidMessageError
from .message import ForwardedMessage, Message, StoredMessage
from .names import check_group, is_system_topic

__all__ = [
    "END_TOPIC",
    "GIVEN_UP_TOPIC",
    "HALF_TOPIC",
    "OP_TOPIC",
    "PRODUCER_GROUP",
    "Decider",
    "Decision",
    "Ending",
    "Outcome",
    "Verdict",
    "committed",
    "committed_flag",
    "decision_message",
    "done_offsets",
    "given_up",
    "half_message",
    "immunity_ms",
    "op_message",
    "parse_decision",
    "target",
]

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
END_TOPIC = "rmq_sys_END_TRANSACTION"

PRODUCER_GROUP = "PGROUP"
_PREPARED = "TRAN_MSG"
_TRANSACTION_ID = "__transactionId__"
_IMMUNITY_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_HALF_OFFSET = "HALF_QUEUE_OFFSET"
_DECIDED_BY = "DECIDED_BY"
_DONE_TAG = "d"
_COMMITTED = 0x8  # SYSFLAG: the message of a committed transaction
_TRANSACTION_BITS = 0xC
_OFFSET_DIGITS_MAX = 19

Outcome = Literal["commit", "rollback"]
Ending = Literal["commit", "rollback", "give up"]
Decider = Literal["producer", "check", "node"]
_ENDINGS: Mapping[str, Ending] = {ending: ending for ending in get_args(Ending)}
_DECIDERS: Mapping[str, Decider] = {decider: decider for decider in get_args(Decider)}


class Decision(NamedTuple):
    """What becomes of a half message; the unique key and the group prove that it means that one."""

    half_offset: int
    unique_key: str
    group: str
    outcome: Ending
    decider: Decider = "producer"


class Verdict(NamedTuple):
    """The decision about a half message that counts, which is the first one."""

    outcome: Ending
    decided_ms: int
    decider: Decider


def half_message(
    message: Message, queue_id: int, group: str, unique_key: str, delay_level: int = 0
) -> Message:
    """*message*, which is for queue *queue_id*, as it waits for the decision.

    With *delay_level* it is delivered so long after its commit.

    Raises:
        InvalidMessageError: messages of that topic cannot be transactional.
    """
    if is_system_topic(message.topic):
        raise InvalidMessageError(
            f"topic {message.topic!r} is one of the node's own; transactions are for other topics"
        )
    properties = {
        **message.properties,
        _PREPARED: "true",
        PRODUCER_GROUP: check_group(group),
        REAL_TOPIC: message.topic,
        REAL_QUEUE_ID: str(queue_id),
        _TRANSACTION_ID: unique_key,
        **({DELAY_LEVEL: str(delay_level)} if delay_level else {}),
    }
    return replace(message, topic=HALF_TOPIC, unique_key=unique_key, properties=properties)


def target(half: StoredMessage) -> tuple[str, int]:
    """The topic and queue that a half message is for.

    Raises:
        InvalidMessageError: it does not say.
    """
    topic, queue_id = half.properties.get(REAL_TOPIC), half.properties.get(REAL_QUEUE_ID, "")
    if topic is None or not (queue_id.isascii() and queue_id.isdecimal()) or len(queue_id) > 4:
        raise InvalidMessageError(
            f"half message {half.offset_message_id} does not say which topic and queue it is for"
        )
    return topic, int(queue_id)


def immunity_ms(half: StoredMessage) -> int:
    """How long the producer wants not to be asked about it; 0 where it did not say."""
    text = half.properties.get(_IMMUNITY_S, "")
    return int(text) * 1000 if text.isascii() and text.isdecimal() and len(text) <= 9 else 0


def committed(half: StoredMessage) -> Placed[ForwardedMessage]:
    """The message that consumers get, and its queue. It keeps the half's properties, as RocketMQ's.

    A half with a delay level makes a message that waits, from the commit on.

    Raises:
        InvalidMessageError: the half does not say where it belongs.
    """
    topic, queue_id = target(half)
    message = ForwardedMessage.of(
        half,
        topic=topic,
        sys_flag=committed_flag(half),
        prepared_transaction_offset=half.physical_offset,
    )
    level = half.properties.get(DELAY_LEVEL, "")
    if level.isascii() and level.isdecimal() and len(level) <= 2 and int(level) > 0:
        return at_level(message, int(level), queue_id)
    return Placed(message, queue_id)


def committed_flag(half: StoredMessage) -> int:
    """The SYSFLAG of a half that was committed."""
    return half.sys_flag & ~_TRANSACTION_BITS | _COMMITTED


def given_up(half: StoredMessage) -> ForwardedMessage:
    """The half in the topic of those that nobody decided."""
    return ForwardedMessage.of(half, topic=GIVEN_UP_TOPIC)


def decision_message(decision: Decision) -> Message:
    """*decision* as it is stored."""
    key = decision.unique_key
    return Message(
        END_TOPIC,
        b"",
        decision.outcome,
        [key] if key and " " not in key else [],
        properties={
            _DECIDED_BY: decision.decider,
            _HALF_OFFSET: str(decision.half_offset),
            _TRANSACTION_ID: decision.unique_key,
            PRODUCER_GROUP: decision.group,
        },
    )


def parse_decision(stored: StoredMessage) -> Decision | None:
    """The decision in a message of ``END_TOPIC``, or None when it is none."""
    text = stored.properties.get(_HALF_OFFSET, "")
    if not (text.isascii() and text.isdecimal()) or len(text) > _OFFSET_DIGITS_MAX:
        return None
    outcome = _ENDINGS.get(stored.tags or "")
    if outcome is None:
        return None
    unique_key = stored.properties.get(_TRANSACTION_ID, "")
    group = stored.properties.get(PRODUCER_GROUP, "")
    decider = _DECIDERS.get(stored.properties.get(_DECIDED_BY, ""), "producer")
    return Decision(int(text), unique_key, group, outcome, decider)


def op_message(half_offsets: list[int]) -> Message:
    """That the halves at these queue offsets are done with."""
    if not half_offsets:
        raise ConfigError("an op message names at least one half message")
    return Message(OP_TOPIC, "".join(f"{offset}," for offset in half_offsets).encode(), _DONE_TAG)


def done_offsets(op: StoredMessage) -> list[int]:
    """The half queue offsets that an op message names; what is no number is passed over."""
    if op.tags != _DONE_TAG:
        return []
    texts = op.body.split(b",")
    return [int(text) for text in texts if text.isdigit() and len(text) <= _OFFSET_DIGITS_MAX]

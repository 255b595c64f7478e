"""Delayed messages: what is stored of them until they are due, and the way back.

A delayed message waits in a topic of the node's own, with its place in ``REAL_TOPIC`` and
``REAL_QID``. Two forms, both RocketMQ's:

    levels   SCHEDULE_TOPIC_XXXX, a queue a level, with ``DELAY``; the level counts from 1
    times    rmq_sys_wheel_timer, queue 0, with ``TIMER_DELIVER_MS`` and ``TIMER_OUT_MS``

What is delivered keeps these properties, as it does with RocketMQ: consumers and filters see them.
Sources: RocketMQ 5.3.3, ``HookUtils.transformDelayLevelMessage`` and ``transformTimerMessage``,
``MessageStoreConfig.messageDelayLevel``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from .errors import ConfigError, InvalidMessageError, InvalidNameError
from .message import ForwardedMessage, Message, StoredMessage

__all__ = [
    "DELAY_LEVEL",
    "DELAY_LEVELS_MS",
    "DELAY_MAX_MS",
    "REAL_QUEUE_ID",
    "REAL_TOPIC",
    "SCHEDULE_TOPIC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
    "TIMER_OUT_MS",
    "TIMER_PRECISION_MS",
    "TIMER_QUEUE_ID",
    "TIMER_TOPIC",
    "Placed",
    "after",
    "at_level",
    "at_time",
    "restored",
]

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_QUEUE_ID = 0

DELAY_LEVEL = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
"""When to deliver, in milliseconds since 1970."""
TIMER_DELAY_MS = "TIMER_DELAY_MS"
"""How long to wait, where the producer gave a delay and not a time."""
TIMER_OUT_MS = "TIMER_OUT_MS"
"""The second of a timer that comes before the time of delivery, in milliseconds since 1970."""

_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000
DELAY_LEVELS_MS = (
    1 * _SECOND, 5 * _SECOND, 10 * _SECOND, 30 * _SECOND,
    1 * _MINUTE, 2 * _MINUTE, 3 * _MINUTE, 4 * _MINUTE, 5 * _MINUTE, 6 * _MINUTE, 7 * _MINUTE,
    8 * _MINUTE, 9 * _MINUTE, 10 * _MINUTE, 20 * _MINUTE, 30 * _MINUTE,
    1 * _HOUR, 2 * _HOUR,
)  # fmt: skip
"""The delay of each level; level 1 comes first."""
DELAY_MAX_MS = 40 * 24 * _HOUR
TIMER_PRECISION_MS = 1000
_QUEUE_ID = re.compile(r"[0-9]{1,4}")


AnyMessage = TypeVar("AnyMessage", Message, ForwardedMessage)


class Placed(NamedTuple, Generic[AnyMessage]):
    """A message and the queue of its topic that it goes to."""

    message: AnyMessage
    queue_id: int


def at_level(message: AnyMessage, level: int, queue_id: int) -> Placed[AnyMessage]:
    """*message* for queue *queue_id*, as it waits at *level*; levels above the last are the last.

    Raises:
        ConfigError: *level* is below 1.
        InvalidMessageError: messages of that topic cannot be delayed.
    """
    if level < 1:
        raise ConfigError(
            f"delay level {level}: levels are 1 to {len(DELAY_LEVELS_MS)}; leave it out to deliver "
            "at once"
        )
    level = min(level, len(DELAY_LEVELS_MS))
    waiting = {DELAY_LEVEL: str(level), **_place(message, queue_id)}
    return Placed(_moved(message, SCHEDULE_TOPIC, waiting), level - 1)


def at_time(
    message: AnyMessage, deliver_at_ms: int, queue_id: int, now_ms: int
) -> Placed[AnyMessage]:
    """*message* for queue *queue_id*, as it waits for a time; as it is, when that has come.

    Raises:
        ConfigError: the time is more than 40 days ahead.
        InvalidMessageError: messages of that topic cannot be delayed.
    """
    place = _place(message, queue_id)
    if deliver_at_ms <= now_ms:
        return Placed(message, queue_id)
    if deliver_at_ms - now_ms > DELAY_MAX_MS:
        days = (deliver_at_ms - now_ms) / (24 * _HOUR)
        raise ConfigError(
            f"a delay of {days:.1f} days: messages can be delayed by 40 days at most; keep it "
            "where it is made until then"
        )
    waiting = {
        TIMER_DELIVER_MS: str(deliver_at_ms),
        TIMER_OUT_MS: str((deliver_at_ms - 1) // TIMER_PRECISION_MS * TIMER_PRECISION_MS),
        **place,
    }
    return Placed(_moved(message, TIMER_TOPIC, waiting), TIMER_QUEUE_ID)


def after(message: AnyMessage, delay_ms: int, queue_id: int, now_ms: int) -> Placed[AnyMessage]:
    """*message* for queue *queue_id*, as it waits for *delay_ms*; as it is, for 0 and below.

    Unlike a time, a delay is over in time also when the node's clock is set back.
    Raises as :func:`at_time`.
    """
    placed = at_time(message, now_ms + delay_ms, queue_id, now_ms)
    if placed.message is message:
        return placed
    properties = {TIMER_DELAY_MS: str(delay_ms), **placed.message.properties}
    return placed._replace(message=replace(placed.message, properties=properties))


def restored(stored: StoredMessage) -> Placed[ForwardedMessage]:
    """The message that *stored* waits as, and its queue; all it says of itself stays.

    Raises:
        InvalidMessageError: *stored* does not say where it belongs.
    """
    topic = stored.properties.get(REAL_TOPIC, "")
    queue_id = stored.properties.get(REAL_QUEUE_ID, "")
    try:
        if _QUEUE_ID.fullmatch(queue_id):
            return Placed(ForwardedMessage.of(stored, topic=topic), int(queue_id))
        reason = f"{REAL_QUEUE_ID} is {queue_id!r:.40}"
    except InvalidNameError as error:
        reason = str(error)
    raise InvalidMessageError(
        f"message {stored.offset_message_id} of topic {stored.topic!r} does not say where it "
        f"belongs: {reason}"
    )


def _place(message: Message | ForwardedMessage, queue_id: int) -> dict[str, str]:
    if message.topic in {SCHEDULE_TOPIC, TIMER_TOPIC}:
        raise InvalidMessageError(
            f"a message for topic {message.topic!r} cannot be delayed: delayed messages wait there"
        )
    return {REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(queue_id)}


def _moved(message: AnyMessage, topic: str, waiting: dict[str, str]) -> AnyMessage:
    """The message for *topic*, with the properties of an earlier delay replaced."""
    kept = {name: value for name, value in message.properties.items() if name not in _OF_DELAYS}
    return replace(message, topic=topic, properties={**kept, **waiting})


_OF_DELAYS = frozenset(
    {DELAY_LEVEL, REAL_TOPIC, REAL_QUEUE_ID, TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_OUT_MS}
) | {"TIMER_DELAY_SEC"}

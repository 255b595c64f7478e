"""Delayed messages: how they are stored until they are due, and how they are restored.

A delayed message waits in a system topic, with its real topic and queue in ``REAL_TOPIC`` and
``REAL_QID``. Two forms, both RocketMQ's:

    levels   SCHEDULE_TOPIC_XXXX, a queue per level, with ``DELAY``; levels count from 1
    times    rmq_sys_wheel_timer, queue 0, with ``TIMER_DELIVER_MS`` and ``TIMER_OUT_MS``

A delivered message keeps these properties, as in RocketMQ: consumers and filters see them.
Sources: RocketMQ 5.3.3, ``HookUtils.transformDelayLevelMessage`` and ``transformTimerMessage``,
``MessageStoreConfig.messageDelayLevel``.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from rocketray.errors import ConfigError, InvalidMessageError, InvalidNameError
from rocketray.message import ForwardedMessage, Message, StoredMessage

from .marks import (
    DELAY_LEVEL,
    DELAY_PROPERTIES,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_ROLLED_FROM,
)
from .meant import refuse_unknown
from .message_time import checked_node_ms
from .system_topics import SCHEDULE_TOPIC, TIMER_TOPIC, check_open_topic

TIMER_QUEUE_ID = 0  # RocketMQ's timer topic has one queue
_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000
DELAY_LEVELS_MS = (
    1 * _SECOND, 5 * _SECOND, 10 * _SECOND, 30 * _SECOND,
    1 * _MINUTE, 2 * _MINUTE, 3 * _MINUTE, 4 * _MINUTE, 5 * _MINUTE, 6 * _MINUTE, 7 * _MINUTE,
    8 * _MINUTE, 9 * _MINUTE, 10 * _MINUTE, 20 * _MINUTE, 30 * _MINUTE,
    1 * _HOUR, 2 * _HOUR,
)  # fmt: skip
"""The delay of each level, level 1 first: RocketMQ's ``messageDelayLevel``.

As many as ``LEVELS_A_DISK``, which is part of what is on disk.
"""
# A month is a common request; RocketMQ's timer wheel ends at 3 days.
DELAY_MAX_MS = 40 * 24 * _HOUR
TIMER_PRECISION_MS = 1000  # RocketMQ's timerPrecisionMs
_QUEUE_ID = re.compile(r"[0-9]{1,4}")  # QUEUE_COUNT_MAX has 4 digits


_TOO_LONG = (
    "messages can be delayed by 40 days at most; keep a message that is due later in your program "
    "until then"
)
AnyMessage = TypeVar("AnyMessage", Message, ForwardedMessage)


class Placed(NamedTuple, Generic[AnyMessage]):
    """A message and its target queue within its topic."""

    message: AnyMessage
    queue_id: int


class DelayOptions(TypedDict, total=False):
    """The delay options of a send; one of them, 40 days at most.

    ``delay_level``: RocketMQ's level, 1 to 18.
    ``delay``: seconds, or a ``timedelta``. 0 and below deliver at once, as in RocketMQ.
    ``deliver_at``: a ``datetime`` with its zone, or milliseconds since 1970. A time in the past
    delivers at once, as in RocketMQ; a number that looks like seconds is refused.
    """

    delay_level: int | None
    delay: float | timedelta | None
    deliver_at: datetime | int | None


@dataclass(frozen=True, slots=True)
class Delay:
    """The delivery time of a message: a level, a delay, or a time. Exactly one is given."""

    level: int | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None

    @classmethod
    def of(
        cls,
        delay_level: int | None = None,
        delay: float | timedelta | None = None,
        deliver_at: datetime | int | None = None,
    ) -> Delay | None:
        """Return the delay that a producer asked for: a level, seconds, a time, or None.

        A time is a ``datetime`` with its zone, or milliseconds since 1970. A time in the past, and
        a delay of 0 or below, mean now: the message is delivered at once, as in RocketMQ.

        Raises:
            ConfigError: more than one is given, one has the wrong type, is too far ahead, or a time
                looks like one in another unit.
        """
        count = sum(value is not None for value in (delay_level, delay, deliver_at))
        if count == 0:
            return None
        if count > 1:
            raise ConfigError(
                "a message has one delay: give delay_level=, delay= or deliver_at=, not several"
            )
        return cls(
            None if delay_level is None else _whole("delay_level", delay_level),
            None if delay is None else _milliseconds(delay),
            None if deliver_at is None else _since_1970(deliver_at),
        )

    def due_ms(self, now_ms: int) -> int:
        """Return the delivery time of a message that is sent now, in milliseconds since 1970."""
        if self.level is not None:
            return now_ms + DELAY_LEVELS_MS[min(self.level, len(DELAY_LEVELS_MS)) - 1]
        if self.delay_ms is not None:
            return now_ms + self.delay_ms
        assert self.deliver_at_ms is not None
        return self.deliver_at_ms

    def place_message(self, message: AnyMessage, queue_id: int, now_ms: int) -> Placed[AnyMessage]:
        """Return *message* for queue *queue_id*, in waiting form; raise as the functions below."""
        if self.level is not None:
            return at_level(message, self.level, queue_id)
        if self.delay_ms is not None:
            return after(message, self.delay_ms, queue_id, now_ms)
        assert self.deliver_at_ms is not None
        return at_time(message, self.deliver_at_ms, queue_id, now_ms)


def delay_of(function: Callable[..., object], options: Mapping[str, Any]) -> Delay | None:
    """Return the delay in the further arguments of *function*, a send function.

    Raises:
        ConfigError: *function* has no argument of that name; or as :meth:`Delay.of`.
    """
    own = DelayOptions.__annotations__.keys()
    unknown = options.keys() - own
    if unknown:
        known = [*dict.fromkeys([*inspect.signature(function).parameters, *own])]
        what, otherwise = f"{function.__name__}() has no argument", ", ".join(known)
        refuse_unknown(what, unknown, known, f"its arguments are {otherwise}")
    return Delay.of(**options)


def at_level(message: AnyMessage, level: int, queue_id: int) -> Placed[AnyMessage]:
    """Return *message* for queue *queue_id*, waiting at *level*; higher levels mean the last one.

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
    """Return *message* for queue *queue_id*, waiting for a time; unchanged if that time has passed.

    Raises:
        ConfigError: the time is more than 40 days ahead.
        InvalidMessageError: messages of that topic cannot be delayed.
    """
    place = _place(message, queue_id)
    if deliver_at_ms <= now_ms:
        return Placed(message, queue_id)
    if deliver_at_ms - now_ms > DELAY_MAX_MS:
        raise ConfigError(_TOO_LONG)
    waiting = {
        TIMER_DELIVER_MS: str(deliver_at_ms),
        # RocketMQ's tick is before the time of delivery, also where that is a whole second.
        TIMER_OUT_MS: str((deliver_at_ms - 1) // TIMER_PRECISION_MS * TIMER_PRECISION_MS),
        **place,
    }
    return Placed(_moved(message, TIMER_TOPIC, waiting), TIMER_QUEUE_ID)


def after(message: AnyMessage, delay_ms: int, queue_id: int, now_ms: int) -> Placed[AnyMessage]:
    """Return *message* for queue *queue_id*, waiting *delay_ms*; unchanged for 0 and below.

    Unlike a time, a delay ends on time also when the node's clock is set back.
    Raises as :func:`at_time`.
    """
    placed = at_time(message, now_ms + delay_ms, queue_id, now_ms)
    if placed.message is message:
        return placed
    properties = {TIMER_DELAY_MS: str(delay_ms), **placed.message.properties}
    return placed._replace(message=replace(placed.message, properties=properties))


def restored(stored: StoredMessage) -> Placed[ForwardedMessage]:
    """Return the message that waits as *stored*, with the properties it was sent with; its queue.

    Raises:
        InvalidMessageError: *stored* does not name its topic and queue.
    """
    topic = stored.properties.get(REAL_TOPIC, "")
    queue_id = stored.properties.get(REAL_QUEUE_ID, "")
    try:
        if _QUEUE_ID.fullmatch(queue_id):
            # The other marks of the delay stay, as in RocketMQ.
            kept = {k: v for k, v in stored.properties.items() if k != TIMER_ROLLED_FROM}
            return Placed(ForwardedMessage.of(stored, topic=topic, properties=kept), int(queue_id))
        reason = f"{REAL_QUEUE_ID} is {queue_id!r:.40}"
    except InvalidNameError as error:
        reason = str(error)
    raise InvalidMessageError(
        f"message {stored.offset_message_id} of topic {stored.topic!r} does not name its topic and "
        f"queue: {reason}"
    )


def _whole(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r:.60}; give a whole number")
    return value


def _milliseconds(delay: object) -> int:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ConfigError(f"delay is {delay!r:.60}; give seconds, or a timedelta")
    if isinstance(seconds, float) and math.isnan(seconds):
        raise ConfigError("delay is not a number; give seconds, or a timedelta")
    # Before the rounding, which has no result for infinity.
    if seconds * 1000 > DELAY_MAX_MS:
        raise ConfigError(_TOO_LONG)
    if seconds <= 0:
        return 0
    return math.ceil(round(seconds * 1000, 6))  # 4.001 s is not exactly 4001 ms otherwise


def _since_1970(deliver_at: object) -> int:
    if isinstance(deliver_at, int) and not isinstance(deliver_at, bool):
        return checked_node_ms("deliver_at", deliver_at)
    if not isinstance(deliver_at, datetime):
        raise ConfigError(
            f"deliver_at is {deliver_at!r:.60}; give a datetime with its zone, or milliseconds since "
            "1970 as a whole number"
        )
    if deliver_at.tzinfo is None:
        raise ConfigError(
            f"deliver_at is {deliver_at.isoformat()}, which has no time zone; use "
            "datetime.now(UTC) or another time with a zone"
        )
    return math.ceil(deliver_at.timestamp() * 1000)


def _place(message: Message | ForwardedMessage, queue_id: int) -> dict[str, str]:
    check_open_topic(message.topic)
    return {REAL_TOPIC: message.topic, REAL_QUEUE_ID: str(queue_id)}


def _moved(message: AnyMessage, topic: str, waiting: dict[str, str]) -> AnyMessage:
    """Return the message for *topic*, with the properties of an earlier delay replaced."""
    kept = {
        name: value for name, value in message.properties.items() if name not in DELAY_PROPERTIES
    }
    return replace(message, topic=topic, properties={**kept, **waiting})

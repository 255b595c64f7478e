"""The records of a failed message: RocketMQ's retry and dead letter.

A failed message is redelivered up to ``MAX_ATTEMPTS`` times, or as often as its agent says. Each
time it waits longer, at the delay levels 3 to 18 (10 s to 2 h), and then is delivered from
``%RETRY%group``, a topic that only this group reads. After that it is moved to ``%DLQ%group`` as a
dead letter. It stays the same message: body, keys, tag, unique key, properties, flag and born time
are kept. ``RETRY_TOPIC`` is the topic from which it was read first, and ``ORIGIN_MESSAGE_ID`` its
offset id there; the record counts its redeliveries.

Pure. Source: RocketMQ 5.3.3, ``AbstractSendMessageProcessor.consumerSendMsgBack``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from rocketray.delay import (
    DELAY_LEVELS_MS,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    at_level,
)
from rocketray.message import (
    PROPERTIES_MAX_BYTES,
    ForwardedMessage,
    StoredMessage,
    encode_properties,
)
from rocketray.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

__all__ = [
    "FAILURE_REASON",
    "GIVEN_UP_BY",
    "MAX_ATTEMPTS",
    "ORIGIN_MESSAGE_ID",
    "REDRIVEN_FROM",
    "RETRY_QUEUES",
    "RETRY_QUEUE_ID",
    "RETRY_TOPIC",
    "SentBack",
    "dead_letter_topic",
    "dead_lettered",
    "in_queue",
    "origin_of",
    "queue_of",
    "retry_topic",
    "sent_back",
    "topic_of",
]

RETRY_TOPIC = "RETRY_TOPIC"
"""The property with the topic that a message was read from when it first failed."""
RETRY_QUEUE_ID = "RETRY_QID"
"""The property with the queue of that topic; RocketMQ, which has no tables, lacks it."""
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
"""The property with the message's offset id there."""
GIVEN_UP_BY = "GIVEN_UP_BY"
"""The property of a dead letter with its group, if the topic's name does not have it."""
FAILURE_REASON = "FAILURE_REASON"
"""The property of a dead letter with its group's last error: the exception's type and text."""
REDRIVEN_FROM = "REDRIVEN_FROM"
"""The property of a redriven message: the dead letter's offset id (dead_letters.py)."""
MAX_ATTEMPTS = 16
"""Redeliveries of a message unless its group sets another number: RocketMQ's ``retryMaxTimes``."""
RETRY_QUEUES = 1
"""Number of queues of a retry topic on each disk: RocketMQ's ``retryQueueNums``.

In an app with tables it has as many as the topics that it is for, because messages of a queue have
to be delivered to that queue's owner.
"""
_FIRST_LEVEL = 3
_QUEUE_ID = 0
_NUMBER = re.compile(r"[0-9]{1,4}")


class SentBack(NamedTuple):
    """The message to store, and its queue; a dead letter is not delivered again."""

    message: ForwardedMessage
    queue_id: int
    is_dead_letter: bool


def retry_topic(group: str) -> str:
    """Return the topic of the messages that are redelivered to *group*."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic of the dead letters of *group*."""
    return DEAD_LETTER_PREFIX + group


def _retry_level(reconsume_times: int) -> int:
    """Return the delay level of a message that was retried *reconsume_times* times before."""
    return min(_FIRST_LEVEL + reconsume_times, len(DELAY_LEVELS_MS))


def sent_back(
    stored: StoredMessage,
    group: str,
    max_attempts: int | None,
    dead_letters: str,
    retry_queues: int | None = None,
    *,
    reason: str = "",
) -> SentBack:
    """Return *stored* for redelivery, or as a dead letter after *max_attempts* redeliveries.

    Without *max_attempts* it is never a dead letter. If its group's retry topic has *retry_queues*
    like its own topic, it goes to its queue there; else to any, see :func:`in_queue`. A dead letter
    has the *reason* of its failure.
    """
    times = stored.reconsume_times
    if max_attempts is not None and times >= max_attempts:
        return dead_lettered(stored, group, dead_letters, times, reason=reason)
    again = replace(_again(stored, times), topic=retry_topic(group))
    retry_queue = 0 if retry_queues is None else queue_of(stored) % retry_queues
    waiting, queue_id = at_level(again, _retry_level(times), retry_queue)
    return SentBack(waiting, queue_id, is_dead_letter=False)


def in_queue(waiting: ForwardedMessage, retry_queue: int) -> ForwardedMessage:
    """Return a message that waits for its redelivery, to be redelivered from that queue."""
    properties = {**waiting.properties, REAL_QUEUE_ID: str(retry_queue)}
    return replace(waiting, properties=properties)


def dead_lettered(
    stored: StoredMessage, group: str, dead_letters: str, reconsume_times: int, *, reason: str = ""
) -> SentBack:
    """Return *stored* as a dead letter of *group*, after *reconsume_times* redeliveries.

    It has the *reason* as a property, unless there is no room left for it.
    """
    message = replace(_again(stored, reconsume_times), topic=dead_letters)
    if dead_letters != dead_letter_topic(group):
        message = replace(message, properties={**message.properties, GIVEN_UP_BY: group})
    if reason:
        explained = {**message.properties, FAILURE_REASON: reason}
        if len(encode_properties(explained).encode()) <= PROPERTIES_MAX_BYTES:
            message = replace(message, properties=explained)
    return SentBack(message, _QUEUE_ID, is_dead_letter=True)


def topic_of(stored: StoredMessage) -> str:
    """Return the topic that a message was sent to, also for a copy that waits for redelivery."""
    if (
        stored.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        or stored.topic == SCHEDULE_TOPIC
    ):
        real = stored.properties.get(REAL_TOPIC, stored.topic)
        return stored.properties.get(RETRY_TOPIC, real)
    return stored.topic


def queue_of(stored: StoredMessage) -> int:
    """Return the queue of :func:`topic_of` from which a message was first read, if it is known."""
    number = stored.properties.get(RETRY_QUEUE_ID, "")
    if RETRY_TOPIC not in stored.properties or not _NUMBER.fullmatch(number):
        return stored.queue_id
    return int(number)


def origin_of(stored: StoredMessage) -> str:
    """Return the offset id that a message had when it was read for the first time."""
    return stored.properties.get(ORIGIN_MESSAGE_ID, stored.offset_message_id)


def _again(stored: StoredMessage, reconsume_times: int) -> ForwardedMessage:
    """Return the message to store again, with its origin and its number of redeliveries."""
    properties = {
        **stored.properties,
        RETRY_TOPIC: stored.properties.get(RETRY_TOPIC, stored.topic),
        RETRY_QUEUE_ID: str(queue_of(stored)),
        ORIGIN_MESSAGE_ID: origin_of(stored),
    }
    return ForwardedMessage.of(
        stored, topic=stored.topic, properties=properties, reconsume_times=reconsume_times + 1
    )

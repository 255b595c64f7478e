"""What is stored of a message that a group could not handle: RocketMQ's retry and dead letter.

A message is sent back up to a number of times. Each time it waits longer, at the delay levels 3 to
18 (10 s to 2 h), and then comes through ``%RETRY%group``, a topic that only this group reads. After
that it is a dead letter, in ``%DLQ%group``. It stays the same message: body, keys, tag, unique key,
properties, flag and born time are kept, ``RETRY_TOPIC`` says where it was read first and
``ORIGIN_MESSAGE_ID`` what its offset id was there; the record counts how often it came again.

Pure. Source: RocketMQ 5.3.3, ``AbstractSendMessageProcessor.consumerSendMsgBack``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from rocketray.delay import DELAY_LEVELS_MS, REAL_TOPIC, SCHEDULE_TOPIC, at_level
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
    "SCHEDULE_QUEUES",
    "SentBack",
    "dead_letter_topic",
    "dead_lettered",
    "origin_of",
    "queue_of",
    "retry_level",
    "retry_topic",
    "sent_back",
    "topic_of",
]

RETRY_TOPIC = "RETRY_TOPIC"
"""The property with the topic that a message was read from when it failed first."""
RETRY_QUEUE_ID = "RETRY_QID"
"""The property with the queue of that topic: not of RocketMQ's, which has no tables."""
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
"""The property with the offset id that it had there."""
GIVEN_UP_BY = "GIVEN_UP_BY"
"""The property of a dead letter with its group, where the topic's name does not say it."""
FAILURE_REASON = "FAILURE_REASON"
"""The property of a dead letter with what its group failed of: the exception's type and text."""
REDRIVEN_FROM = "REDRIVEN_FROM"
"""The property with the offset id of the dead letter that a message was, since dead_letters.py."""
MAX_ATTEMPTS = 16
"""How often a message comes again unless a group says otherwise: RocketMQ's ``retryMaxTimes``."""
RETRY_QUEUES = 1
"""How many queues a retry topic has: RocketMQ's ``retryQueueNums``. In an app with tables it has as
many as the topics that it is for, because what belongs to a queue has to come to its owner."""
SCHEDULE_QUEUES = len(DELAY_LEVELS_MS)
_FIRST_LEVEL = 3
_QUEUE_ID = 0
_NUMBER = re.compile(r"[0-9]{1,4}")


class SentBack(NamedTuple):
    """The message to store, and where; a dead letter is not delivered again."""

    message: ForwardedMessage
    queue_id: int
    is_dead_letter: bool


def retry_topic(group: str) -> str:
    """The topic of the messages that *group* gets again."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """The topic of the messages that *group* gave up."""
    return DEAD_LETTER_PREFIX + group


def retry_level(reconsume_times: int) -> int:
    """The delay level of a message that was sent back *reconsume_times* times before."""
    return min(_FIRST_LEVEL + reconsume_times, len(DELAY_LEVELS_MS))


def sent_back(
    stored: StoredMessage,
    group: str,
    max_attempts: int | None,
    dead_letters: str,
    retry_queues: int = RETRY_QUEUES,
    *,
    reason: str = "",
) -> SentBack:
    """*stored* as it waits to come again, or as a dead letter when it came *max_attempts* times.

    Without *max_attempts* it is never a dead letter. Its group's retry topic has *retry_queues*. A
    dead letter says for what *reason* it is one.
    """
    times = stored.reconsume_times
    if max_attempts is not None and times >= max_attempts:
        return dead_lettered(stored, group, dead_letters, times, reason=reason)
    again = replace(_again(stored, times), topic=retry_topic(group))
    waiting, queue_id = at_level(again, retry_level(times), queue_of(stored) % retry_queues)
    return SentBack(waiting, queue_id, is_dead_letter=False)


def dead_lettered(
    stored: StoredMessage,
    group: str,
    dead_letters: str,
    reconsume_times: int,
    *,
    reason: str = "",
) -> SentBack:
    """*stored* as a dead letter of *group*, after it came again *reconsume_times* times.

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
    """The topic that a message was sent to, also where it is stored to come again."""
    if (
        stored.topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        or stored.topic == SCHEDULE_TOPIC
    ):
        real = stored.properties.get(REAL_TOPIC, stored.topic)
        return stored.properties.get(RETRY_TOPIC, real)
    return stored.topic


def queue_of(stored: StoredMessage) -> int:
    """The queue of :func:`topic_of` that a message was read from first, as far as that is known."""
    number = stored.properties.get(RETRY_QUEUE_ID, "")
    if RETRY_TOPIC not in stored.properties or not _NUMBER.fullmatch(number):
        return stored.queue_id
    return int(number)


def origin_of(stored: StoredMessage) -> str:
    """The offset id that a message had when it was read for the first time."""
    return stored.properties.get(ORIGIN_MESSAGE_ID, stored.offset_message_id)


def _again(stored: StoredMessage, reconsume_times: int) -> ForwardedMessage:
    """The message to be stored again: it says where it came from, and that it comes once more."""
    properties = {
        **stored.properties,
        RETRY_TOPIC: stored.properties.get(RETRY_TOPIC, stored.topic),
        RETRY_QUEUE_ID: str(queue_of(stored)),
        ORIGIN_MESSAGE_ID: origin_of(stored),
    }
    return ForwardedMessage.of(
        stored,
        topic=stored.topic,
        properties=properties,
        reconsume_times=reconsume_times + 1,
    )

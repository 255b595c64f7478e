"""The records of a failed message: RocketMQ's retry and dead letter.

A failed message is redelivered up to ``MAX_ATTEMPTS`` times, or as often as its agent says. Each
time it waits longer, at the delay levels 3 to 18 (10 s to 2 h), and then is delivered from
``%RETRY%group``, a topic that only this group reads. After that it is moved to ``%DLQ%group`` as a
dead letter. It stays the same message: body, keys, tag, unique key, properties, flag and born time
are kept. ``RETRY_TOPIC`` is the topic from which its group read it first, and
``ORIGIN_MESSAGE_ID`` its offset id there; the record counts its redeliveries. These notes count in
the topics named above, and in no other (marks.py).

Pure. Source: RocketMQ 5.3.3, ``AbstractSendMessageProcessor.consumerSendMsgBack``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from rocketray.base.delay import DELAY_LEVELS_MS, at_level
from rocketray.base.marks import (
    FAILURE_REASON,
    GIVEN_UP_BY,
    ORIGIN_MESSAGE_ID,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    REDRIVEN_FROM,
    RETRY_QUEUE_ID,
    RETRY_TOPIC,
    mark,
)
from rocketray.base.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketray.base.property_string import encode_properties
from rocketray.message import PROPERTIES_MAX_BYTES, ForwardedMessage, StoredMessage

MAX_ATTEMPTS = 16
"""Redeliveries of a message unless its group sets another number: RocketMQ's ``retryMaxTimes``.

The delays of levels 3 to 18 add up to 4 h 45 min 40 s, after which such a message is a dead letter.
"""
RETRY_QUEUES = 1
"""Number of queues of a retry topic on each disk: RocketMQ's ``retryQueueNums``.

In an app with tables it has as many as the topics that it is for, because messages of a queue have
to be delivered to that queue's owner.
"""
_FIRST_LEVEL = 3  # 10 s; the broker's level for delayLevel 0 is 3 + reconsumeTimes
_QUEUE_ID = 0  # a topic of dead letters has one queue
_NUMBER = re.compile(r"[0-9]{1,4}")  # a topic has 1,024 queues at most


class SentBack(NamedTuple):
    """The message to store, and its queue; a dead letter is not delivered again."""

    message: ForwardedMessage
    queue_id: int
    is_dead_letter: bool


def retry_topic(group: str) -> str:
    """Return the topic of the messages that are redelivered to *group*."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
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
    times = redeliveries_of(stored)
    if max_attempts is not None and times >= max_attempts:
        return dead_lettered(stored, group, dead_letters, times, reason=reason)
    again = replace(_again(stored, times), topic=retry_topic(group))
    first_queue = int(again.properties[RETRY_QUEUE_ID])
    retry_queue = 0 if retry_queues is None else first_queue % retry_queues
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
    message = _again(stored, reconsume_times)
    properties = {**message.properties}
    for earlier in (GIVEN_UP_BY, FAILURE_REASON):  # of a letter that its group read as a message
        properties.pop(earlier, None)
    if dead_letters != dead_letter_topic(group):
        properties[GIVEN_UP_BY] = group
    if reason:
        explained = {**properties, FAILURE_REASON: reason}
        if len(encode_properties(explained).encode()) <= PROPERTIES_MAX_BYTES:
            properties = explained
    message = replace(message, topic=dead_letters, properties=properties)
    return SentBack(message, _QUEUE_ID, is_dead_letter=True)


def topic_of(stored: StoredMessage) -> str:
    """Return the topic that a message was sent to, also for a copy that waits, or a dead letter."""
    return mark(stored, RETRY_TOPIC) or mark(stored, REAL_TOPIC) or stored.topic


def queue_of(stored: StoredMessage) -> int:
    """Return the queue of :func:`topic_of` from which a message was first read, if it is known."""
    number = mark(stored, RETRY_QUEUE_ID) or ""
    if mark(stored, RETRY_TOPIC) is None or not _NUMBER.fullmatch(number):
        return stored.queue_id
    return int(number)


def redeliveries_of(stored: StoredMessage) -> int:
    """Return how often the group that reads *stored* got it before.

    A dead letter that a group reads as a message counts those of the group that dead-lettered it.
    """
    return stored.reconsume_times if stored.topic.startswith(RETRY_PREFIX) else 0


def origin_of(stored: StoredMessage) -> str:
    """Return the offset id that a message had when it was read for the first time."""
    return mark(stored, ORIGIN_MESSAGE_ID) or stored.offset_message_id


def _again(stored: StoredMessage, reconsume_times: int) -> ForwardedMessage:
    """Return the message to store again, with its origin and its number of redeliveries.

    Its origin is where its group read it first. For a group that reads dead letters as messages
    that is the letter, whatever it says of the group that dead-lettered it.
    """
    properties = {**stored.properties}
    if stored.topic.startswith(RETRY_PREFIX):
        topic, queue_id, origin = topic_of(stored), queue_of(stored), origin_of(stored)
    else:
        topic, queue_id, origin = stored.topic, stored.queue_id, stored.offset_message_id
        properties.pop(REDRIVEN_FROM, None)  # not by this group, and in its topic it would count
    properties |= {
        RETRY_TOPIC: topic,
        RETRY_QUEUE_ID: str(queue_id),
        ORIGIN_MESSAGE_ID: origin,
    }
    return ForwardedMessage.of(
        stored, topic=stored.topic, properties=properties, reconsume_times=reconsume_times + 1
    )

"""Dead-lettering of messages that the node has to deliver and that no target can ever accept.

Their topic was deleted, has a shard that is too small for them, or is not named. They become dead
letters of a group of the node's own, so that ``rocketray dlq`` lists and redrives them to their
original target topic. A message that was being redelivered to a group becomes that group's dead
letter.

Pure.
"""

from __future__ import annotations

from rocketray.base.marks import (
    FAILURE_REASON,
    ORIGIN_MESSAGE_ID,
    RETRY_QUEUE_ID,
    RETRY_TOPIC,
    mark,
)
from rocketray.base.names import RETRY_PREFIX
from rocketray.base.transaction import committed_flag, target
from rocketray.message import ForwardedMessage, StoredMessage

from .deliveries import Place
from .retry_records import dead_letter_topic, queue_of, topic_of

# The second is the group of RocketMQ's own transaction service; the first is named like it.
_SCHEDULE_GROUP = "CID_RMQ_SYS_SCHEDULE"
_TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
NODE_GROUPS = frozenset({_SCHEDULE_GROUP, _TRANSACTION_GROUP})
"""The groups under which the node itself dead-letters messages."""
SCHEDULE_LETTERS = dead_letter_topic(_SCHEDULE_GROUP)
TRANSACTION_LETTERS = dead_letter_topic(_TRANSACTION_GROUP)


def delayed_letter(stored: StoredMessage, place: Place | None) -> ForwardedMessage:
    """Return a delayed message as a dead letter; *place* is its target."""
    if place is not None and place[0].startswith(RETRY_PREFIX):
        topic = dead_letter_topic(place[0].removeprefix(RETRY_PREFIX))
        return ForwardedMessage.of(stored, topic=topic)
    return _letter(stored, SCHEDULE_LETTERS, place, stored.sys_flag)


def half_letter(half: StoredMessage) -> ForwardedMessage:
    """Return a committed half as a dead letter.

    Raises as :func:`~rocketray.base.transaction.target`.
    """
    return _letter(half, TRANSACTION_LETTERS, target(half), committed_flag(half))


def first_place(letter: StoredMessage) -> Place | None:
    """Return the original target of a dead letter of the node's own, if the letter names it."""
    if mark(letter, RETRY_TOPIC) is None:
        return None
    return topic_of(letter), queue_of(letter)


def _letter(
    stored: StoredMessage, topic: str, place: Place | None, sys_flag: int
) -> ForwardedMessage:
    properties = {**stored.properties, ORIGIN_MESSAGE_ID: stored.offset_message_id}
    for earlier in (RETRY_TOPIC, RETRY_QUEUE_ID, FAILURE_REASON):  # in a letter they count
        properties.pop(earlier, None)
    if place is not None:
        properties |= {RETRY_TOPIC: place[0], RETRY_QUEUE_ID: str(place[1])}
    return ForwardedMessage.of(stored, topic=topic, properties=properties, sys_flag=sys_flag)

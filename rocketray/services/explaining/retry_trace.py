"""The trace of a message that its group failed on: waiting, redelivered, or dead-lettered.

The copies of a message are found by its unique key or its keys: the one that waits in the schedule,
those in the group's retry topic, and its dead letter. The newest one shows the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from rocketray.base.marks import GIVEN_UP_BY, REAL_TOPIC, REDRIVEN_FROM, mark
from rocketray.base.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import dead_letter_topic, origin_of, retry_topic
from rocketray.errors import ConfigError
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.store.formats.message_id import decode_offset_id

from .arrival import due_ms

# A message has two copies for each of its 16 retries, and a dead letter. One without a unique key
# is looked for by its first key, which other messages may have.
_COPIES_MAX = 1000


class Stage(IntEnum):
    """The state of a copy; of two after as many redeliveries, the higher stage is the newer."""

    WAITING = 0
    BACK = 1
    DEAD_LETTER = 2


@dataclass(frozen=True, slots=True)
class RetryTrace:
    """The newest copy of a message that its group failed on, and the number of its retries."""

    newest: StoredMessage
    stage: Stage
    returns: int

    @property
    def due_ms(self) -> int:
        """Time when a waiting copy is redelivered, in milliseconds since 1970."""
        return due_ms(self.newest)


def is_given_back(message: StoredMessage, group: str) -> bool:
    """Return whether *message* is a retry or dead-letter copy of *group*."""
    return _stage(message, group) is not None


def first_of(node: NodeClient, message: StoredMessage, group: str) -> StoredMessage:
    """Return the original of *message*, a copy of *group*, or *message* if it has none now.

    Without a group it may be a copy of any.
    """
    group = group or _reader_of(message)
    if _stage(message, group) is None:
        return message
    return node.messages.view(origin_of(message)) or message


def trace(
    node: NodeClient, message: StoredMessage, group: str, since_ms: int = 0
) -> RetryTrace | None:
    """Return the trace of *message* in *group*; None if it has no copies, or no key.

    Or none stored since *since_ms*, when the group was moved back to read the message again:
    earlier copies only count as returns.
    """
    key = message.unique_key or next(iter(message.keys), None)
    if key is None:
        return None
    origin = message.offset_message_id
    if is_given_back(message, group):  # else a dead letter is where this group read it first
        origin = origin_of(message)
    copies = [
        copy
        for topic in node.topics.all()
        if may_hold_copies(topic, group)
        for copy in node.messages.query(topic, key, _COPIES_MAX)
        if origin_of(copy) == origin
    ]
    return trace_of(copies, group, since_ms)


def trace_of(copies: Iterable[StoredMessage], group: str, since_ms: int = 0) -> RetryTrace | None:
    """Return the trace that *copies* of one message show; those of other groups do not count."""
    found = [
        (_age(copy, stage), copy, stage)
        for copy in copies
        if (stage := _stage(copy, group)) is not None
    ]
    recent = [each for each in found if each[1].store_timestamp_ms >= since_ms]
    if not recent:
        return None
    _, newest, stage = max(recent, key=lambda each: each[0])
    returns = sum(stage is not Stage.BACK for _, _, stage in found)
    return RetryTrace(newest, stage, returns)


def may_hold_copies(topic: str, group: str) -> bool:
    """Return whether a topic may have copies of *group*; other groups' retry topics have none."""
    own = (SCHEDULE_TOPIC, retry_topic(group), dead_letter_topic(group))
    return topic in own or not topic.startswith("%")


def _reader_of(copy: StoredMessage) -> str:
    """Return the group that a copy is of; "" for none."""
    topic = mark(copy, REAL_TOPIC) or "" if copy.topic == SCHEDULE_TOPIC else copy.topic
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return mark(copy, GIVEN_UP_BY) or ""


def _stage(copy: StoredMessage, group: str) -> Stage | None:
    """Return the stage of *copy* in *group*; None if it is not a copy of that group."""
    if copy.topic == SCHEDULE_TOPIC:
        return Stage.WAITING if mark(copy, REAL_TOPIC) == retry_topic(group) else None
    if copy.topic == retry_topic(group):
        return Stage.BACK
    if copy.topic == dead_letter_topic(group) or mark(copy, GIVEN_UP_BY) == group:
        return Stage.DEAD_LETTER
    return None


def _age(copy: StoredMessage, stage: Stage) -> tuple[int, int, Stage, int]:
    """Return a key that orders copies, whatever the clock was set to between them."""
    return _redriven_from(copy), copy.reconsume_times, stage, copy.store_timestamp_ms


def _redriven_from(copy: StoredMessage) -> int:
    """Return where the dead letter is that a copy comes from: later ones have greater offsets."""
    try:
        return int(decode_offset_id(mark(copy, REDRIVEN_FROM) or "").physical_offset)
    except ConfigError:
        return -1  # it was never redriven, or a program wrote the property

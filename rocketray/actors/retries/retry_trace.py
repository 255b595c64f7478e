"""Where a message is that a group got and could not handle: on the ladder, back, or given up.

Whoever asks for a message finds its copies by its unique key or its keys: what waits in the
schedule, what came through the group's retry topic, and its dead letter. The newest one tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from rocketray.actors.topics.catalog import TopicConfig
from rocketray.delay import DELAY_LEVEL, DELAY_LEVELS_MS, REAL_TOPIC, SCHEDULE_TOPIC
from rocketray.message import StoredMessage

from .retry_records import GIVEN_UP_BY, REDRIVEN_FROM, dead_letter_topic, origin_of, retry_topic

__all__ = ["RetryTrace", "Stage", "Traces", "first_of", "is_given_back", "trace"]

_COPIES_MAX = 1000


class Stage(IntEnum):
    """Where a copy is; of two that are equally old, the higher is the newer."""

    WAITING = 0
    BACK = 1
    GIVEN_UP = 2


class Traces(Protocol):
    """What this module asks of a connection."""

    def view(self, offset_message_id: str) -> StoredMessage | None:
        """The message with that offset id, or None."""

    def topics(self) -> Mapping[str, TopicConfig]:
        """All topics by name."""

    def query(self, topic: str, key: str, max_count: int = 64) -> list[StoredMessage]:
        """The topic's messages with a business key or unique key, oldest first."""


@dataclass(frozen=True, slots=True)
class RetryTrace:
    """The newest copy of a message that its group gave back, and how often it did."""

    newest: StoredMessage
    stage: Stage
    returns: int

    @property
    def due_ms(self) -> int:
        """When a waiting copy comes again, in milliseconds since 1970."""
        level = self.newest.properties.get(DELAY_LEVEL, "")
        known = level.isascii() and level.isdecimal() and 1 <= int(level) <= len(DELAY_LEVELS_MS)
        delay_ms = DELAY_LEVELS_MS[int(level) - 1] if known else 0
        return self.newest.store_timestamp_ms + delay_ms


def is_given_back(message: StoredMessage, group: str) -> bool:
    """Whether *message* is a copy that *group* gave back."""
    return _stage(message, group) is not None


def first_of(node: Traces, message: StoredMessage, group: str) -> StoredMessage:
    """The message that *message* is a copy of, where *group* gave it back and it is still there."""
    if _stage(message, group) is None:
        return message
    return node.view(origin_of(message)) or message


def trace(node: Traces, message: StoredMessage, group: str) -> RetryTrace | None:
    """What became of *message* after *group* gave it back; None where it did not, or has no key."""
    key = message.unique_key or next(iter(message.keys), None)
    if key is None:
        return None
    origin = origin_of(message)
    copies = [
        (_age(copy, stage), copy, stage)
        for topic in _topics(node, group)
        for copy in node.query(topic, key, _COPIES_MAX)
        if (stage := _stage(copy, group)) is not None and origin_of(copy) == origin
    ]
    if not copies:
        return None
    _, newest, stage = max(copies, key=lambda found: found[0])
    returns = sum(stage is not Stage.BACK for _, _, stage in copies)
    return RetryTrace(newest, stage, returns)


def _topics(node: Traces, group: str) -> Iterator[str]:
    """Where copies may be; a topic of other groups' retries has none."""
    own = {SCHEDULE_TOPIC, retry_topic(group), dead_letter_topic(group)}
    for name in node.topics():
        if name in own or not name.startswith("%"):
            yield name


def _stage(copy: StoredMessage, group: str) -> Stage | None:
    """What *copy* is to *group*; None where it is nothing that the group gave back."""
    if copy.topic == SCHEDULE_TOPIC:
        return Stage.WAITING if copy.properties.get(REAL_TOPIC) == retry_topic(group) else None
    if copy.topic == retry_topic(group):
        return Stage.BACK
    if copy.topic == dead_letter_topic(group) or copy.properties.get(GIVEN_UP_BY) == group:
        return Stage.GIVEN_UP
    return None


def _age(copy: StoredMessage, stage: Stage) -> tuple[int, bool, int, Stage]:
    """What orders copies also where the clock stood still."""
    is_redriven = REDRIVEN_FROM in copy.properties
    return copy.store_timestamp_ms, is_redriven, copy.reconsume_times, stage

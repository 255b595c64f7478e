"""The way of a message to its topic: half, decided, delayed, recalled.

Its copies are in system topics, and all have its unique key. So from any copy the message in its
topic is found, or the reason why it is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.marks import (
    DELAY_LEVEL,
    PRODUCER_GROUP,
    REAL_TOPIC,
    RETRY_TOPIC,
    TIMER_DELIVER_MS,
    mark,
)
from rocketray.base.names import RETRY_PREFIX
from rocketray.base.system_topics import (
    END_TOPIC,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    LEVELS_A_DISK,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    WAITING_QUEUES,
)
from rocketray.base.transaction import parse_decision
from rocketray.broker.retries.undeliverable import SCHEDULE_LETTERS, TRANSACTION_LETTERS
from rocketray.filters.verdict_values import ExplainStep
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.store.formats.sys_flag import ROLLBACK, TRANSACTION

from .cause import Cause, time_text

OWN_TOPICS = (HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)
"""The topics that hold a message before it is in its own topic."""
KEPT_TOPICS = (SCHEDULE_LETTERS, TRANSACTION_LETTERS, GIVEN_UP_TOPIC)
"""The topics in which the node keeps a message that never came to its own topic."""
_COPIES_MAX = 1_000  # of a key that many messages share; a unique key has a few
_DIGITS_MAX = 18  # of milliseconds in an int64


@dataclass(frozen=True, slots=True)
class Arrival:
    """The message in its topic and the steps of its way; or its last copy, and the cause."""

    message: StoredMessage
    steps: tuple[ExplainStep, ...] = ()
    cause: Cause | None = None


def is_before_arrival(message: StoredMessage) -> bool:
    """Return whether *message* is a copy that no group reads yet; a waiting retry is not one."""
    return message.topic in OWN_TOPICS and not _target(message).startswith(RETRY_PREFIX)


def copies_with(node: NodeClient, key: str, topics: Sequence[str] | None) -> list[StoredMessage]:
    """Return the copies with *key* of messages that are, or were, on their way to *topics*.

    None stands for all topics, also those that were deleted.
    """
    there = node.topics.all()
    return [
        copy
        for name in OWN_TOPICS
        if name in there
        for copy in node.messages.query(name, key, _COPIES_MAX)
        if is_before_arrival(copy) and (topics is None or _target(copy) in topics)
    ]


def arrival_of(node: NodeClient, message: StoredMessage) -> Arrival:
    """Return where the message is that *message* is a copy of; itself if it is no copy."""
    if not is_before_arrival(message) and message.topic not in KEPT_TOPICS:
        return Arrival(message, tuple(_way_here(message)))
    arrived = _arrived(node, message)
    if arrived is not None:
        return Arrival(arrived, tuple(_way_here(arrived)))
    if message.topic in KEPT_TOPICS:
        return _kept(message)
    if message.topic == HALF_TOPIC:
        waiting = [copy for copy in _copies(node, message) if copy.topic in WAITING_QUEUES]
        return _delayed(node, waiting[-1]) if waiting else _half(node, message)
    return _delayed(node, message)


def _arrived(node: NodeClient, copy: StoredMessage) -> StoredMessage | None:
    topic, key = _target(copy), copy.unique_key
    if key is None or topic not in node.topics.all():
        return None
    found = [one for one in node.messages.query(topic, key, _COPIES_MAX) if one.unique_key == key]
    return found[0] if found else None


def _copies(node: NodeClient, copy: StoredMessage) -> list[StoredMessage]:
    """Return all copies of a message that is not in its topic, oldest first in each topic."""
    if copy.unique_key is None:
        return [copy]
    found = copies_with(node, copy.unique_key, [_target(copy)])
    return [one for one in found if one.unique_key == copy.unique_key] or [copy]


def _target(copy: StoredMessage) -> str:
    """Return the topic that *copy* is for; "" if it does not tell. A dead letter tells it apart."""
    return mark(copy, REAL_TOPIC) or mark(copy, RETRY_TOPIC) or ""


def _way_here(message: StoredMessage) -> Iterator[ExplainStep]:
    """Yield the steps of its way that a message in its topic shows."""
    if mark(message, REAL_TOPIC) != message.topic:
        return
    flag = message.sys_flag & TRANSACTION
    if flag and flag != ROLLBACK:
        group = mark(message, PRODUCER_GROUP) or ""
        detail = f"its transaction of producer group {group!r} was committed"
        yield ExplainStep("transaction", "committed", detail)
    if (due := mark(message, TIMER_DELIVER_MS)) is not None:
        yield ExplainStep("delay", "delivered", f"it was delayed until {_time_of(due)}")
    elif (level := mark(message, DELAY_LEVEL)) is not None:
        yield ExplainStep("delay", "delivered", f"it was delayed at level {level}")


def _kept(kept: StoredMessage) -> Arrival:
    """Return the end of a message of which the node has no other copy, or none that was found."""
    topic = _target(kept)
    if kept.topic == GIVEN_UP_TOPIC:
        detail = f"no decision about its transaction for topic {topic!r}: it was abandoned"
        step, cause = ExplainStep("transaction", "abandoned", detail), Cause.HALF_MESSAGE
    else:
        detail = f"topic {topic} could not store it: it is a dead letter in {kept.topic}"
        step, cause = ExplainStep("stored", "dead letter", detail), Cause.UNDELIVERABLE
    return Arrival(kept, (_stored(kept), step), cause)


def _half(node: NodeClient, half: StoredMessage) -> Arrival:
    topic, group = _target(half), mark(half, PRODUCER_GROUP) or ""
    whose = f"a transaction of producer group {group!r} for topic {topic!r}"
    steps = (_stored(half),)

    def end(cause: Cause, result: str, detail: str) -> Arrival:
        return Arrival(half, (*steps, ExplainStep("transaction", result, detail)), cause)

    # Before the decision, which was to commit: its topic could not store the message.
    if _has_copy(node, TRANSACTION_LETTERS, half):
        detail = (
            f"{whose} was committed, and its topic cannot store the message: it is a dead letter"
        )
        return end(Cause.UNDELIVERABLE, "dead letter", f"{detail} in {TRANSACTION_LETTERS}")
    outcome, decided_ms = _decision(node, half)
    if outcome == "rollback":
        detail = f"{whose} was rolled back at {time_text(decided_ms)}; its message is not delivered"
        return end(Cause.ROLLED_BACK, "rolled back", detail)
    if outcome == "abandon" or _has_copy(node, GIVEN_UP_TOPIC, half):
        detail = (
            f"no decision about {whose}: it was abandoned, and its message is in {GIVEN_UP_TOPIC}"
        )
        return end(Cause.HALF_MESSAGE, "abandoned", detail)
    if outcome == "commit" and _may_be_removed(node, topic, decided_ms):
        detail = (
            f"{whose} was committed at {time_text(decided_ms)}; older messages of {topic} expired"
        )
        return end(Cause.EXPIRED, "expired", detail)
    if outcome == "commit":
        detail = f"{whose} was committed at {time_text(decided_ms)}, and is not in its topic yet"
        return end(Cause.HALF_MESSAGE, "committed", detail)
    detail = f"{whose} is not decided: its message is delivered only if it is committed"
    return end(Cause.HALF_MESSAGE, "undecided", detail)


def _decision(node: NodeClient, half: StoredMessage) -> tuple[str | None, int]:
    """Return the first decision about *half*, which counts, and its time."""
    if half.unique_key is None or END_TOPIC not in node.topics.all():
        return None, 0
    wanted = half.queue_offset, half.unique_key, mark(half, PRODUCER_GROUP) or ""
    for stored in node.messages.query(END_TOPIC, half.unique_key, _COPIES_MAX):
        decision = parse_decision(stored)
        if decision is not None and decision[:3] == wanted:
            return decision.outcome, stored.store_timestamp_ms
    return None, 0


def _delayed(node: NodeClient, copy: StoredMessage) -> Arrival:
    copies = [each for each in _copies(node, copy) if each.topic == copy.topic]
    waiting = [
        each
        for each in copies
        if node.delays.is_waiting(each.topic, each.queue_id, each.queue_offset)
    ]
    # One that waits for a month is stored again on the way, so it has several copies.
    last = (waiting or copies)[-1]
    topic, when_ms = _target(last), due_ms(last)
    due = f"{topic} at {time_text(when_ms)}"
    steps = (_stored(last),)

    def end(cause: Cause, result: str, detail: str) -> Arrival:
        return Arrival(last, (*steps, ExplainStep("delay", result, detail)), cause)

    if waiting and topic not in node.topics.all():
        detail = f"it is due in topic {due}, but there is no such topic now"
        return end(Cause.DELAYED, "waits", detail)
    if waiting:
        detail = f"it waits in {last.topic} and is due in topic {due}"
        return end(Cause.DELAYED, "waits", detail)
    if _has_copy(node, SCHEDULE_LETTERS, last):
        detail = f"topic {due} could not store it: it is a dead letter in {SCHEDULE_LETTERS}"
        return end(Cause.UNDELIVERABLE, "dead letter", detail)
    if topic not in node.topics.all():
        detail = f"it was for topic {due}, and there is no such topic now"
        return end(Cause.TOPIC_DELETED, "no topic", detail)
    if when_ms <= node.clock_ms() and _may_be_removed(node, topic, when_ms):
        detail = f"it was for topic {due}: it was recalled, or delivered and has expired since"
        return end(Cause.UNKNOWN, "unknown", detail)
    detail = f"it was recalled before it was due in topic {due}"
    return end(Cause.RECALLED, "recalled", detail)


def _stored(message: StoredMessage) -> ExplainStep:
    place = f"{message.topic}/{message.queue_id}, offset {message.queue_offset}"
    return ExplainStep("stored", "yes", f"{place}, at {time_text(message.store_timestamp_ms)}")


def _has_copy(node: NodeClient, topic: str, message: StoredMessage) -> bool:
    key = message.unique_key
    return (
        key is not None and topic in node.topics.all() and bool(node.messages.query(topic, key, 1))
    )


def _may_be_removed(node: NodeClient, topic: str, since_ms: int) -> bool:
    """Return whether *topic* may have removed messages stored since then."""
    if topic not in node.topics.all():
        return True
    for shard in node.shard_statistics(topic):
        if shard.min_queue_offset > 0:
            first = node.messages.at(topic, shard.queue_id, shard.min_queue_offset)
            if first is None or first.store_timestamp_ms >= since_ms:
                return True
    return False


def due_ms(copy: StoredMessage) -> int:
    """Return when a copy that waits is due, in milliseconds since 1970."""
    if copy.topic == SCHEDULE_TOPIC:
        return copy.store_timestamp_ms + DELAY_LEVELS_MS[copy.queue_id % LEVELS_A_DISK]
    text = mark(copy, TIMER_DELIVER_MS) or ""
    return int(text) if _is_number(text) else copy.store_timestamp_ms


def _time_of(text: str) -> str:
    return time_text(int(text)) if _is_number(text) else text


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX

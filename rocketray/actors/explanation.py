"""Why a message was or was not delivered to a group: the cause, and the steps that lead to it.

Plain values: who asks gathers the facts, and nothing here or there is changed by asking. The
steps follow a message's life: stored, in its queue, what the group wants, what its filter makes
of the message, how far the group has come, who works for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from rocketray.filters.consumer_filter_data import ConsumerFilterData
from rocketray.filters.explain import BitmapFacts, ExplainStep, FilterReason, FilterVerdict
from rocketray.message import StoredMessage
from rocketray.store.consume_queue_ext import ExtUnit
from rocketray.store.sys_flag import PREPARED, ROLLBACK, TRANSACTION

from .retry_trace import RetryTrace, Stage

__all__ = ["Cause", "Explanation", "GroupFacts", "StoredFacts", "explain", "not_found"]

_END_OF_YEAR_9999_MS = 253_402_300_800_000


class Cause(Enum):
    """Where a message's way to a group ended; ``delivered`` and ``on_its_way`` are no failures."""

    DELIVERED = "delivered"
    ON_ITS_WAY = "on_its_way"
    NOT_FOUND = "not_found"
    HALF_MESSAGE = "half_message"
    ROLLED_BACK = "rolled_back"
    NOT_DISPATCHED = "not_dispatched"
    EXPIRED = "expired"
    NO_GROUP = "no_group"
    NOT_SUBSCRIBED = "not_subscribed"
    BEFORE_START = "before_start"
    NO_CONSUMER = "no_consumer"
    NOT_ASSIGNED = "not_assigned"
    WAITS_FOR_RETRY = "waits_for_retry"
    DEAD_LETTER = "dead_letter"
    TAG_MISMATCH = "tag_mismatch"
    TAG_COLLISION = "tag_collision"
    SQL_FALSE = "sql_false"
    SQL_NULL = "sql_null"
    SQL_ERROR = "sql_error"
    BLOOM_WRONG = "bloom_wrong"
    CLASS_FALSE = "class_false"
    CLASS_ERROR = "class_error"


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """A message and its queue: ``tags_code`` of its entry, and which offsets are there.

    ``is_dispatched`` says whether the entry at the message's queue offset leads to it; ``unit`` is
    what stands beside the entry, ``filters`` of which groups the shard's bitmaps are.
    """

    message: StoredMessage
    is_dispatched: bool
    tags_code: int | None
    min_queue_offset: int
    max_queue_offset: int
    unit: ExtUnit | None = None
    filters: Mapping[str, ConsumerFilterData] = field(default_factory=dict)

    def bitmap_of(self, group: str) -> BitmapFacts | None:
        """What a stream of *group* knows of its bitmap; None where the shard never kept any."""
        known = self.filters.get(group)
        if self.unit is not None:
            return BitmapFacts(self.unit.bitmap, self.unit.store_timestamp_ms, known)
        return BitmapFacts(registered=known) if self.filters else None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group on the message's topic.

    ``start`` is where it began in the message's queue and ``offset`` how far it has come, -1 for
    not at all; ``members`` maps each living one to the queues that it reads.
    """

    subscription: str
    since_ms: int
    start: int
    offset: int
    members: Mapping[str, list[int]]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer; ``message_id`` is the offset id, None where nothing was found."""

    cause: Cause
    steps: tuple[ExplainStep, ...]
    message_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The answer as it is printed for programs."""
        return {
            "cause": self.cause.value,
            "offsetMsgId": self.message_id,
            "steps": [asdict(step) for step in self.steps],
        }


def not_found(wanted: str) -> Explanation:
    """The answer where no message has the id or key *wanted*."""
    step = ExplainStep("stored", "no", f"no message has the id or key {wanted!r}")
    return Explanation(Cause.NOT_FOUND, (step,))


def explain(
    stored: StoredFacts,
    group: str,
    *,
    other_topics: list[str] | None,
    facts: GroupFacts | None,
    verdict: FilterVerdict | None,
    retries: RetryTrace | None = None,
    retry_facts: GroupFacts | None = None,
) -> Explanation:
    """Put the facts together.

    Args:
        stored: the message.
        group: the group's name.
        other_topics: what the group subscribes to, None where it is unknown.
        facts: the group on the message's topic, None where it does not subscribe to it.
        verdict: of the group's filter, given together with *facts*.
        retries: what became of it after the group gave it back, None where it did not.
        retry_facts: the group on its retry topic, None where no member reads it yet.
    """
    steps: list[ExplainStep] = []
    cause = Cause.DELIVERED
    if retries is None or facts is None:
        end = None if facts is None else _at_the_group(stored.message, facts)
    else:
        end = _given_back(retries, retry_facts)
    for found, step in _way(group, stored, other_topics, facts, verdict=verdict, end=end):
        steps.append(step)
        if found is not None:
            cause = found
            break
    return Explanation(cause, tuple(steps), stored.message.offset_message_id)


def _way(
    group: str,
    stored: StoredFacts,
    other_topics: list[str] | None,
    facts: GroupFacts | None,
    *,
    verdict: FilterVerdict | None,
    end: tuple[Cause, ExplainStep] | None,
) -> Iterator[tuple[Cause | None, ExplainStep]]:
    """The steps in order; the first with a cause is the last that counts."""
    yield from _in_store(stored)
    if facts is None or verdict is None or end is None:
        yield _without_subscription(group, stored.message.topic, other_topics)
        return
    wants = f"group {group!r} wants {facts.subscription}, since {_time(facts.since_ms)}"
    yield None, ExplainStep("subscription", "found", wants)
    if facts.start >= 0 and stored.message.queue_offset < facts.start:
        detail = f"the group began at offset {facts.start} of this queue, behind the message"
        yield Cause.BEFORE_START, ExplainStep("position", "before start", detail)
    for step in verdict.steps:
        yield None, step
    if verdict.reason is not FilterReason.MATCHED:
        detail = f"the filter leaves it out: {verdict.reason.value}"
        yield Cause(verdict.reason.value), ExplainStep("filter", verdict.reason.value, detail)
    yield end


def _in_store(stored: StoredFacts) -> Iterator[tuple[Cause | None, ExplainStep]]:
    message = stored.message
    place = (
        f"{message.topic}/{message.queue_id}, physical offset {message.physical_offset}, "
        f"{message.size} bytes, stored at {_time(message.store_timestamp_ms)}"
    )
    yield None, ExplainStep("stored", "yes", place)
    transaction = message.sys_flag & TRANSACTION
    if transaction == PREPARED:
        detail = "a half message of a transaction, which nobody gets before it is committed"
        yield Cause.HALF_MESSAGE, ExplainStep("dispatched", "no", detail)
    if transaction == ROLLBACK:
        detail = "a message of a transaction that was rolled back"
        yield Cause.ROLLED_BACK, ExplainStep("dispatched", "no", detail)
    if message.queue_offset < stored.min_queue_offset:
        detail = f"the queue begins at offset {stored.min_queue_offset} now; older ones expired"
        yield Cause.EXPIRED, ExplainStep("dispatched", "expired", detail)
    if not stored.is_dispatched:
        detail = f"the queue has no entry for it at offset {message.queue_offset}"
        yield Cause.NOT_DISPATCHED, ExplainStep("dispatched", "no", detail)
    detail = f"offset {message.queue_offset} of {stored.max_queue_offset} in its queue"
    yield None, ExplainStep("dispatched", "yes", detail)


def _time(timestamp_ms: int) -> str:
    """A time for people and programs, in UTC; what no calendar has, as a number."""
    if not 0 <= timestamp_ms < _END_OF_YEAR_9999_MS:
        return f"{timestamp_ms} ms"
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _without_subscription(
    group: str, topic: str, other_topics: list[str] | None
) -> tuple[Cause, ExplainStep]:
    if other_topics is None:
        detail = f"group {group!r} does not exist: it never had a member"
        return Cause.NO_GROUP, ExplainStep("subscription", "no group", detail)
    others = ", ".join(other_topics) or "nothing"
    detail = f"group {group!r} subscribes to {others}, and not to {topic!r}"
    return Cause.NOT_SUBSCRIBED, ExplainStep("subscription", "other topics", detail)


def _at_the_group(message: StoredMessage, facts: GroupFacts) -> tuple[Cause, ExplainStep]:
    if facts.offset > message.queue_offset:
        detail = f"the group has finished this queue up to offset {facts.offset}"
        return Cause.DELIVERED, ExplainStep("position", "past", detail)
    begun = "has not begun with it" if facts.offset < 0 else f"is at offset {facts.offset}"
    before = f"the group {begun}, {message.queue_offset - max(facts.offset, 0)} before the message"
    if not facts.members:
        detail = f"{before}; none of its members is alive"
        return Cause.NO_CONSUMER, ExplainStep("position", "before", detail)
    owners = [name for name, queues in facts.members.items() if message.queue_id in queues]
    if not owners:
        detail = f"{before}; {len(facts.members)} members are alive and none has this queue yet"
        return Cause.NOT_ASSIGNED, ExplainStep("position", "before", detail)
    detail = f"{before}; member {owners[0]} works on it, or on one before it"
    return Cause.ON_ITS_WAY, ExplainStep("position", "before", detail)


def _given_back(retries: RetryTrace, facts: GroupFacts | None) -> tuple[Cause, ExplainStep]:
    """Where a message is that the group gave back."""
    newest, times = retries.newest, f"a handler failed on it {retries.returns} times"
    if retries.stage is Stage.WAITING:
        detail = f"{times}; it comes again at {_time(retries.due_ms)}"
        return Cause.WAITS_FOR_RETRY, ExplainStep("retry", "waiting", detail)
    if retries.stage is Stage.GIVEN_UP:
        detail = f"{times}, and it is a dead letter: {newest.topic}, {newest.offset_message_id}"
        return Cause.DEAD_LETTER, ExplainStep("retry", "given up", detail)
    if facts is None:
        detail = f"{times}; it is in {newest.topic}, which no member of the group reads yet"
        return Cause.NOT_ASSIGNED, ExplainStep("retry", "before", detail)
    cause, step = _at_the_group(newest, facts)
    return cause, ExplainStep("retry", step.result, f"{times}; in {newest.topic} {step.detail}")

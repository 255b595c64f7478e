"""The rules of explanations: the steps of a message, up to the one that is the cause.

Plain values: the caller gathers the facts, and neither side changes anything. The steps follow a
message's life: on its way to its topic, stored, in its queue, the group's subscription, the group's
history at that place of the queue, the members of the group, retries.

The rules, in this order
  1. A message ahead of the group: the result of its current filter, and the members of the group
     decide. A message that the group received before, but would not receive again, is delivered.
  2. A message behind the group: delivered, if some filter let it pass while the group passed it.
     Else the last event counts: a filter, a move, the group's start, or that nothing is known of
     that time.
  3. A message that the group returned: the place of its newest copy, by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rocketray.base.quantity import counted
from rocketray.broker.shards.shard_api import StoredFacts
from rocketray.filters.subscription import Subscription
from rocketray.filters.verdict_values import ExplainStep, FilterReason, FilterVerdict
from rocketray.groups.failing import FailingMessage
from rocketray.groups.journal.place_history import Happening, PlaceHistory, Stretch
from rocketray.message import StoredMessage
from rocketray.store.formats.sys_flag import PREPARED, ROLLBACK, TRANSACTION

from .cause import Cause, time_text
from .explanation import Found
from .retry_trace import RetryTrace, Stage

Judge = Callable[[Subscription], FilterVerdict]


@dataclass(frozen=True, slots=True)
class StandsStill:
    """The message at which a group stops because its predicate fails on it."""

    queue_offset: int
    error: str


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group on a topic, and its history at the message's place in its queue.

    ``offset`` is the group's offset in the queue, -1 for none; ``members`` maps each living member
    to the queues that it reads; ``failing`` is the message at which the queue's owner holds it; and
    ``stands_still`` is the one on which its predicate fails.
    """

    subscription: Subscription
    since_ms: int
    offset: int
    members: Mapping[str, list[int]]
    history: PlaceHistory
    failing: FailingMessage | None = None
    stands_still: StandsStill | None = None
    is_broadcast: bool = False
    is_readable: bool = True

    @property
    def coming(self) -> Subscription:
        """The filter under which the group will reach the message."""
        return self.history.coming or self.subscription


def explain_stored(
    stored: StoredFacts, group: str, facts: GroupFacts | None, judge: Judge, without: Found
) -> Iterator[Found]:
    """Yield the steps of a message from its store to *group*.

    *judge* returns a filter's result for it; *without* is the last step for a group that does not
    read its topic, where *facts* is None.
    """
    yield from _in_store(stored)
    if facts is None:
        yield without
        return
    wants = f"group {group!r} subscribes to {facts.subscription}, since {time_text(facts.since_ms)}"
    yield None, ExplainStep("subscription", "found", wants)
    yield from _in_queue(stored.message, facts, judge)


def explain_without_group(stored: StoredFacts, readers: Sequence[str]) -> Iterator[Found]:
    """Yield the steps of a message in its topic; *readers* are the groups that read the topic."""
    yield from _in_store(stored)
    named = ", ".join(map(repr, readers)) or "no group"
    detail = f"its topic is read by {named}; --group GROUP explains what happened there"
    yield Cause.STORED, ExplainStep("subscription", "not asked", detail)


def explain_copy(retries: RetryTrace, facts: GroupFacts | None, judge: Judge) -> Iterator[Found]:
    """Yield the steps of a message that a group returned; the facts are of the newest copy."""
    newest, failed = retries.newest, f"a handler failed on it {_times(retries.returns)}"
    if retries.stage is Stage.WAITING:
        detail = f"{failed}; it is redelivered at {time_text(retries.due_ms)}"
        yield Cause.WAITS_FOR_RETRY, ExplainStep("retry", "waiting", detail)
    elif retries.stage is Stage.DEAD_LETTER:
        detail = f"{failed}, and it is a dead letter: {newest.topic}, {newest.offset_message_id}"
        yield Cause.DEAD_LETTER, ExplainStep("retry", "dead letter", detail)
    elif facts is None:
        detail = f"{failed}; it is in {newest.topic}, which no member of the group reads yet"
        yield Cause.NOT_ASSIGNED, ExplainStep("retry", "before", detail)
    else:
        place = f"{newest.topic}/{newest.queue_id}, offset {newest.queue_offset}"
        yield None, ExplainStep("retry", "back", f"{failed}; it came back to {place}")
        yield from _in_queue(newest, facts, judge)


def _in_store(stored: StoredFacts) -> Iterator[Found]:
    message = stored.message
    place = (
        f"{message.topic}/{message.queue_id}, physical offset {message.physical_offset}, "
        f"{message.size} bytes, stored at {time_text(message.store_timestamp_ms)}"
    )
    yield None, ExplainStep("stored", "yes", place)
    transaction = message.sys_flag & TRANSACTION
    if transaction == PREPARED:
        detail = "a half message of a transaction: no group gets it before it is committed"
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


def _in_queue(message: StoredMessage, facts: GroupFacts, judge: Judge) -> Iterator[Found]:
    """Yield the steps of a message in a queue that the group reads."""
    if facts.is_broadcast:
        verdict = judge(facts.subscription)
        yield from _as_asked(facts.subscription, facts, verdict)
        if verdict.reason is not FilterReason.MATCHED:
            yield _left_out(facts.subscription, verdict)
        detail = (
            "each member of a broadcast group gets every message and keeps its own offsets, so "
            "the node has no record of which of them got it"
        )
        yield Cause.UNKNOWN, ExplainStep("position", "broadcast", detail)
        return
    passed = [
        (stretch, judge(stretch.subscription or facts.subscription))
        for stretch in facts.history.stretches
        if stretch.what is Happening.PASSED
    ]
    had = [stretch for stretch, verdict in passed if verdict.reason is FilterReason.MATCHED]
    if facts.history.is_ahead:
        yield from _ahead(message, facts, judge(facts.coming), had)
    elif had:
        yield from _delivered(facts, had[-1], judge)
    else:
        yield from _behind(facts, judge)


def _ahead(
    message: StoredMessage, facts: GroupFacts, verdict: FilterVerdict, had: list[Stretch]
) -> Iterator[Found]:
    """Yield the steps of a message that the group will reach, for the first time or again."""
    again = facts.history.again
    if again is not None:
        detail = f"the group's offset was moved back to or before it at {time_text(again.time_ms)}"
        yield (
            None,
            ExplainStep("history", "again", f"{detail}, by {again.who or 'an unknown user'}"),
        )
    for step in verdict.steps:
        yield None, step
    if had and verdict.reason is not FilterReason.MATCHED:
        detail = f"the group got it{_until(had[-1])}; its current filter would reject it"
        yield Cause.DELIVERED, ExplainStep("history", "delivered", detail)
    stands = facts.stands_still
    if stands is not None:
        which = "it" if stands.queue_offset == message.queue_offset else "one before it"
        detail = (
            f"the group stopped at {message.topic}/{message.queue_id}, offset "
            f"{stands.queue_offset}, because its predicate fails on {which}: {stands.error}"
        )
        yield Cause.STANDS_STILL, ExplainStep("position", "stands still", detail)
    if verdict.reason is not FilterReason.MATCHED:
        yield _left_out(facts.coming, verdict)
    if had:
        detail = f"the group got it before{_until(had[-1])}, and will get it again"
        yield None, ExplainStep("history", "delivered", detail)
    yield _on_its_way(message, facts)


def _behind(facts: GroupFacts, judge: Judge) -> Iterator[Found]:
    """Yield why a message that the group has passed was never delivered, as far as is known."""
    up_to = f"the group has finished this queue up to offset {facts.offset}"
    last = facts.history.stretches[-1]
    subscription = last.subscription or facts.subscription
    if last.what is Happening.UNKNOWN:
        detail = f"{up_to}; the group's journal does not go back that far"
        yield Cause.UNKNOWN, ExplainStep("position", "unknown", detail)
    if last.what is Happening.BEGUN_BEHIND:
        assert last.entry is not None
        detail = f"the group started after the message, {_by(last)}; {up_to}"
        yield Cause.BEFORE_START, ExplainStep("position", "before start", detail)
    verdict = judge(subscription)
    yield from _as_asked(subscription, facts, verdict)
    if last.what is Happening.SKIPPED:
        skipped = ExplainStep(
            "position", "skipped", f"the group's offset was moved past it, {_by(last)}"
        )
        if verdict.reason is FilterReason.MATCHED:
            yield Cause.SKIPPED, skipped
        yield None, skipped
    if verdict.reason is FilterReason.CLASS_ERROR and subscription.on_error == "stop":
        detail = (
            f"{up_to}; the predicate fails on the message now, but did not when the group read it"
        )
        yield Cause.UNKNOWN, ExplainStep("position", "unknown", detail)
    yield _left_out(subscription, verdict)


def _delivered(facts: GroupFacts, last: Stretch, judge: Judge) -> Iterator[Found]:
    """Yield the steps of a message that the group has passed, and that its filter let pass."""
    subscription = last.subscription or facts.subscription
    yield from _as_asked(subscription, facts, judge(subscription))
    detail = f"the group has finished this queue up to offset {facts.offset}{_until(last)}"
    yield Cause.DELIVERED, ExplainStep("position", "past", detail)


def _as_asked(
    subscription: Subscription, facts: GroupFacts, verdict: FilterVerdict
) -> Iterator[Found]:
    """Yield the result of *subscription*, the filter of that time."""
    if subscription != facts.subscription:
        detail = f"when the group read that offset, it subscribed to {subscription}"
        yield None, ExplainStep("subscription", "then", detail)
    for step in verdict.steps:
        yield None, step


def _left_out(subscription: Subscription, verdict: FilterVerdict) -> Found:
    """Return the step of a message that *subscription* rejects."""
    cause = Cause[verdict.reason.name]
    which = f"filter {subscription.named}" if subscription.named else "the filter"
    return cause, ExplainStep("filter", cause.value, f"{which} rejects it: {cause.meaning}")


def _on_its_way(message: StoredMessage, facts: GroupFacts) -> Found:
    """Return the step about the members, for a message that matches and is not finished."""
    before = _distance(message.queue_offset, facts.offset)
    if not facts.is_readable:
        detail = (
            f"topic {message.topic!r} has no read permission, so no member gets it; change that "
            f"with: rocketray topics alter {message.topic} --perm 6"
        )
        return Cause.NOT_READABLE, ExplainStep("position", "before", f"{before}; {detail}")
    if not facts.members:
        detail = f"{before}; none of its members is alive"
        return Cause.NO_CONSUMER, ExplainStep("position", "before", detail)
    owners = [name for name, queues in facts.members.items() if message.queue_id in queues]
    if not owners:
        count = len(facts.members)
        alive = "its only member is alive and does" if count == 1 else f"its {count} members do"
        detail = f"{before}; {alive} not have this queue yet"
        return Cause.NOT_ASSIGNED, ExplainStep("position", "before", detail)
    failing = facts.failing
    if failing is not None and failing.queue_offset <= message.queue_offset:
        is_own = failing.queue_offset == message.queue_offset
        detail = f"{before}; member {owners[0]} fails on {'it' if is_own else 'one before it'}"
        cause = Cause.FAILING if is_own else Cause.ON_ITS_WAY
        return cause, ExplainStep("position", "held", f"{detail}, and the queue is {failing}")
    detail = f"{before}; member {owners[0]} works on it, or on one before it"
    return Cause.ON_ITS_WAY, ExplainStep("position", "before", detail)


def _distance(queue_offset: int, offset: int) -> str:
    if offset < 0:
        return "the group has not finished anything of this queue"
    count = queue_offset - offset
    if not count:
        return f"the group is at offset {offset}, so this is the next message that it finishes"
    return f"the group is at offset {offset}, {counted(count, 'place')} before it"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _by(stretch: Stretch) -> str:
    assert stretch.entry is not None
    return f"at {time_text(stretch.entry.time_ms)} by {stretch.entry.who or 'an unknown user'}"


def _until(stretch: Stretch) -> str:
    return "" if stretch.entry is None else f", before {time_text(stretch.entry.time_ms)}"

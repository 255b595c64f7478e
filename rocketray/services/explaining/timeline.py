"""The timeline of a message: what happened to it, in order of time, whatever topics it lies in.

Copies of a message have its unique key, or name it as their origin: they wait, are half of a
transaction, are retries or dead letters. A group's journal adds what it knows of the message's
place. Nothing records when a group finished a message, so such events have no time: they stand
where they belong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rocketray.base.marks import FAILURE_REASON, GIVEN_UP_BY, PRODUCER_GROUP, REAL_TOPIC, mark
from rocketray.base.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketray.base.system_topics import END_TOPIC, GIVEN_UP_TOPIC, HALF_TOPIC
from rocketray.base.transaction import parse_decision
from rocketray.broker.retries.retry_records import origin_of
from rocketray.broker.retries.undeliverable import SCHEDULE_LETTERS, TRANSACTION_LETTERS
from rocketray.filters.verdict_values import FilterReason
from rocketray.groups.journal.place_history import Happening
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import NodeClient

from .arrival import OWN_TOPICS, due_ms
from .cause import Cause, time_text
from .explanation import TimelineEvent
from .retry_trace import may_hold_copies
from .rules import GroupFacts, Judge

_COPIES_MAX = 1_000  # as retry_trace.py
_ENDINGS = {"commit": "committed", "rollback": "rolled back", "abandon": "abandoned"}
_KEPT = {
    SCHEDULE_LETTERS: ("undeliverable", "the node keeps it as a dead letter of its own"),
    TRANSACTION_LETTERS: ("undeliverable", "the node keeps it as a dead letter of its own"),
    GIVEN_UP_TOPIC: ("abandoned", "its half is kept here"),
}
_ORDER = (
    *("half", "committed", "rolled back", "abandoned", "waits", "stored", "arrived"),
    *("verdict", "started after it", "skipped", "moved back", "finished", "passed", "unknown"),
    *("came back", "redelivered", "dead letter", "undeliverable"),
)
"""All events but the last one, ``now``; those of the same time are in this order."""


@dataclass(frozen=True, slots=True)
class GroupPart:
    """A group in a timeline: the facts at the message's place, and the results of filters."""

    facts: GroupFacts
    judge: Judge


_Placed = tuple[int, TimelineEvent]
"""An event, with the time at which it is placed."""


def timeline_of(
    node: NodeClient,
    message: StoredMessage,
    group: str | None,
    part: GroupPart | None,
    now: tuple[Cause, str],
) -> tuple[TimelineEvent, ...]:
    """Return the events of *message*, oldest first, and as the last one what holds *now*.

    *part* is that of the group, None if it does not read the message's topic. Without a *group*
    the retries and dead letters of all groups are shown. Copies are looked up in each topic that
    may have some.
    """
    found = [*_of_copies(node, message, group)]
    if part is not None:
        found += _of_group(message, part.facts, part.judge)
    found.sort(key=lambda placed: (placed[0], _ORDER.index(placed[1].event)))
    cause, detail = now
    last = TimelineEvent(None, "now", "", f"{cause.value}: {detail}")
    return (*(event for _, event in found), last)


def _of_copies(node: NodeClient, message: StoredMessage, group: str | None) -> Iterator[_Placed]:
    copies = _copies(node, message, group)
    for copy in copies:
        known = _event_of(copy, message, group)
        if known is not None:
            event, detail = known
            place = f"{copy.topic}/{copy.queue_id}, offset {copy.queue_offset}"
            time_ms = copy.store_timestamp_ms
            yield time_ms, TimelineEvent(time_ms, event, place, detail)
    halves = [copy for copy in copies if copy.topic == HALF_TOPIC]
    key = message.unique_key
    if halves and key is not None and END_TOPIC in node.topics.all():
        for stored in node.messages.query(END_TOPIC, key, _COPIES_MAX):
            decision = parse_decision(stored)
            if decision is not None and decision.half_offset == halves[0].queue_offset:
                time_ms, ending = stored.store_timestamp_ms, _ENDINGS[decision.outcome]
                detail = f"its transaction, by the {decision.decider}"
                yield time_ms, TimelineEvent(time_ms, ending, "", detail)
                return  # the first decision counts


def _copies(node: NodeClient, message: StoredMessage, group: str | None) -> list[StoredMessage]:
    found = {message.offset_message_id: message}
    key = message.unique_key or next(iter(message.keys), None)
    if key is None:
        return [message]
    origins = origin_of(message), message.offset_message_id  # a letter may be read as a message
    for topic in node.topics.all():
        if topic == message.topic or _is_asked(topic, group):
            for one in node.messages.query(topic, key, _COPIES_MAX):
                is_same = one.unique_key == message.unique_key is not None
                if is_same or origin_of(one) in origins:
                    found[one.offset_message_id] = one
    return list(found.values())


def _is_asked(topic: str, group: str | None) -> bool:
    if topic in OWN_TOPICS or topic in _KEPT:
        return True
    if group is None:
        return topic != END_TOPIC
    return may_hold_copies(topic, group)


def _event_of(
    copy: StoredMessage, message: StoredMessage, group: str | None
) -> tuple[str, str] | None:
    """Return the event that a copy shows, and its text; None for one that shows none."""
    if copy.topic in OWN_TOPICS:
        return _on_its_way(copy, group)
    if copy.topic.startswith(RETRY_PREFIX):
        reader = copy.topic.removeprefix(RETRY_PREFIX)
        return "redelivered", f"to group {reader!r}, attempt {copy.reconsume_times + 1}"
    if copy.topic in _KEPT:
        return _KEPT[copy.topic]
    if copy.topic.startswith(DEAD_LETTER_PREFIX) or mark(copy, GIVEN_UP_BY) is not None:
        return _letter(copy, group)
    if copy.topic != message.topic and message.topic not in OWN_TOPICS:
        return None  # a program sent it to another topic
    is_arrival = mark(copy, REAL_TOPIC) == copy.topic
    return ("arrived", "groups can read it from here") if is_arrival else ("stored", "as sent")


def _on_its_way(copy: StoredMessage, group: str | None) -> tuple[str, str] | None:
    target = mark(copy, REAL_TOPIC) or ""
    if copy.topic == HALF_TOPIC:
        producer = mark(copy, PRODUCER_GROUP) or ""
        return "half", f"of a transaction of producer group {producer!r} for topic {target}"
    due = time_text(due_ms(copy))
    if not target.startswith(RETRY_PREFIX):
        return "waits", f"until {due}, for topic {target}"
    reader = target.removeprefix(RETRY_PREFIX)
    if group not in (None, reader):
        return None
    detail = f"a handler of group {reader!r} failed on it, attempt {copy.reconsume_times}"
    return "came back", f"{detail}; it is redelivered at {due}"


def _letter(copy: StoredMessage, group: str | None) -> tuple[str, str] | None:
    reader = mark(copy, GIVEN_UP_BY) or copy.topic.removeprefix(DEAD_LETTER_PREFIX)
    if group not in (None, reader):
        return None
    reason = mark(copy, FAILURE_REASON)
    detail = f"of group {reader!r}, after attempt {copy.reconsume_times}"
    return "dead letter", detail if reason is None else f"{detail}: {reason}"


def _of_group(message: StoredMessage, facts: GroupFacts, judge: Judge) -> Iterator[_Placed]:
    """Yield what the group's filter says of the message, and how the group passed its place."""
    history, at_ms = facts.history, message.store_timestamp_ms
    stretches = () if facts.is_broadcast else history.stretches
    is_ahead = history.is_ahead or facts.is_broadcast
    asked = facts.coming if is_ahead else stretches[-1].subscription or facts.subscription
    verdict = judge(asked).reason
    yield at_ms, TimelineEvent(None, "verdict", "", f"{verdict.value}, by {asked}")
    if history.again is not None:
        time_ms, who = history.again.time_ms, history.again.who or "an unknown user"
        detail = f"the group's offset was moved to or before it, by {who}"
        yield time_ms, TimelineEvent(time_ms, "moved back", "", detail)
    for stretch in stretches:
        if stretch.what is Happening.PASSED:
            by = stretch.subscription or facts.subscription
            is_match = judge(by).reason is FilterReason.MATCHED
            if stretch.entry is not None:
                detail = f"before {time_text(stretch.entry.time_ms)}"
            else:
                detail = f"the group has finished the queue up to offset {facts.offset}"
                # When is not recorded; if the group was moved back, it was after that.
                at_ms = max(at_ms, 0 if history.again is None else history.again.time_ms)
            event = "finished" if is_match else "passed"
            yield at_ms, TimelineEvent(None, event, "", detail)
        elif stretch.entry is not None and stretch.what is not Happening.UNKNOWN:
            at_ms, who = stretch.entry.time_ms, stretch.entry.who or "an unknown user"
            is_skipped = stretch.what is Happening.SKIPPED
            what = "the group's offset was moved past it" if is_skipped else "the group started"
            event = "skipped" if is_skipped else "started after it"
            yield at_ms, TimelineEvent(at_ms, event, "", f"{what}, by {who}")
        else:
            detail = "the group's journal does not go back that far"
            yield at_ms, TimelineEvent(None, "unknown", "", detail)

"""Gathers the facts about a message and a group that explain why it was delivered or not.

Calls the coordinator, some shards, the shared process and, for a class filter, the filter actor.
Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from rocketray.base.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, disk_words
from rocketray.base.system_topics import GIVEN_UP_TOPIC, SCHEDULE_TOPIC, is_system_topic
from rocketray.broker.retries.retry_records import origin_of, retry_topic
from rocketray.broker.shards.shard_api import StoredFacts
from rocketray.broker.topics.catalog import shard_of_host
from rocketray.errors import ConfigError, PredicateError
from rocketray.filters.filter_verdict import explain_filter
from rocketray.filters.subscription import Subscription
from rocketray.filters.verdict_values import ExplainStep, FilterVerdict
from rocketray.groups.journal.group_journal import EntryKind, JournalEntry
from rocketray.groups.journal.place_history import history_of
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import NodeClient, of_disks_there
from rocketray.store.formats.message_id import decode_offset_id

from .arrival import KEPT_TOPICS, arrival_of, copies_with
from .cause import Cause, time_text
from .explanation import Explanation, Found
from .retry_trace import RetryTrace, first_of, is_given_back, trace
from .rules import (
    GroupFacts,
    Judge,
    StandsStill,
    explain_copy,
    explain_stored,
    explain_without_group,
)
from .suggestions import like, like_keys
from .timeline import GroupPart, timeline_of

_FOUND_MAX = 1_000  # of a key in a topic; the newest message is explained, the others are counted
_SHOWN = 5  # other messages with the same key that are listed
_LOOKS = 64  # messages tested with the predicate to find the one that stops a group


def inquire(
    node: NodeClient, wanted: str, group: str | None, topic: str | None = None
) -> Explanation:
    """Explain why the message with the id or key *wanted* was, or was not, delivered to *group*.

    Without a group, only the outcome of the message itself is explained.

    A key is looked up in *topic*, else in the group's topics, and then in all others; the newest
    message with it is explained. For a copy that waits, is half of a transaction, or was returned
    by the group, the message itself is explained. Copies on disks that do not answer are unknown;
    then the first steps say so.
    """
    return Inquiry(of_disks_there(node), group).explain(wanted, topic)


class Inquiry:
    """What a node knows of one group, as of the time at which it is created."""

    def __init__(self, node: NodeClient, group: str | None) -> None:
        """Read the group's offsets, filters and journal; None asks about no group."""
        self._node = node
        self._group = group or ""  # no group has that name
        self._groups = node.groups.all()  # before the rest is read
        self._read = {each.topic: each for each in self._groups if each.group == group}
        self.journal: Sequence[JournalEntry] = node.groups.journal(group) if group else ()
        """The events of the group, oldest first."""

    def explain(self, wanted: str, topic: str | None) -> Explanation:
        """Return the cause of one message's fate, the steps up to it, and the timeline."""
        message, others = self._find(wanted, topic)
        others = (*_unknown(self._node), *others)
        if message is None:
            return Explanation.of(self._not_found(wanted, topic), None, others)
        arrival = arrival_of(self._node, first_of(self._node, message, self._group))
        message_id = arrival.message.offset_message_id
        first = (*others, *arrival.steps)
        if arrival.cause is not None:
            told = Explanation(arrival.cause, first, message_id)
        else:
            told = Explanation.of(self._way(arrival.message), message_id, first)
        part = self._part(arrival.message) if self._group and arrival.cause is None else None
        now = told.cause, told.steps[-1].detail
        timeline = timeline_of(self._node, arrival.message, self._group or None, part, now)
        return replace(told, timeline=timeline)

    def _part(self, message: StoredMessage) -> GroupPart | None:
        """Return the group's part of the timeline of a message in its topic."""
        facts = self.facts_at(message.topic, message.queue_id, message.queue_offset)
        if facts is None:
            return None
        return GroupPart(facts, self._judge(self._node.messages.facts(message)))

    def _way(self, message: StoredMessage) -> Iterator[Found]:
        stored = self._node.messages.facts(message)
        if not self._group:
            readers = sorted(each.group for each in self._groups if each.topic == message.topic)
            yield from explain_without_group(stored, readers)
            return
        facts = self._facts(message, stored)
        again = None if facts is None else facts.history.again
        since_ms = 0 if again is None else again.time_ms
        retries = trace(self._node, message, self._group, since_ms)
        if retries is not None:
            yield from self._given_back(message, stored, retries)
            return
        without = self.without_subscription(message.topic)
        judge = self._judge(stored)
        yield from explain_stored(stored, self._group, facts, judge, without)

    def _given_back(
        self, message: StoredMessage, stored: StoredFacts, retries: RetryTrace
    ) -> Iterator[Found]:
        if not is_given_back(message, self._group):  # else the first message has been removed
            place = f"{message.topic}/{message.queue_id}, offset {message.queue_offset}"
            when = time_text(message.store_timestamp_ms)
            yield None, ExplainStep("stored", "yes", f"{place}, stored at {when}")
        newest = stored
        if retries.newest.offset_message_id != message.offset_message_id:
            newest = self._node.messages.facts(retries.newest)
        facts = self._facts(retries.newest, newest)
        yield from explain_copy(retries, facts, self._judge(newest))

    def _judge(self, stored: StoredFacts) -> Judge:
        """Return the results of filters for one message; a predicate is called once."""

        @cache
        def judge(subscription: Subscription) -> FilterVerdict:
            message, bitmap = stored.message, stored.bitmap_of(self._group)
            ask, code = self.ask_predicate, stored.tags_code
            return explain_filter(subscription, message, code, ask, bitmap)

        return judge

    def facts_at(self, topic: str, queue_id: int, queue_offset: int) -> GroupFacts | None:
        """Return the facts at a place, except where a predicate stops the group.

        None if the group does not read *topic*.
        """
        found = self._read.get(topic)
        if found is None:
            return None
        offset = found.offsets.get(queue_id, -1)
        return GroupFacts(
            found.subscription,
            found.since_ms,
            offset,
            found.members,
            history_of(self.journal, topic, queue_id, queue_offset, offset),
            found.failing.get(queue_id),
            is_broadcast=found.is_broadcast,
            is_readable=self._node.topics.all()[topic].readable,
        )

    def stands_still(
        self, topic: str, queue_id: int, queue_offset: int, facts: GroupFacts, minimum: int
    ) -> StandsStill | None:
        """Return where the group stops as its predicate fails: at a place or an earlier one.

        *facts* are those of the place; the queue begins at *minimum*.
        """
        found, by = self._read[topic], facts.coming
        is_stopping = by.expression_type == "CLASS" and by.on_error == "stop"
        if facts.is_broadcast or not is_stopping or not facts.history.is_ahead:
            return None
        begin = max(facts.offset, found.pulled.get(queue_id, -1), minimum)
        ahead = range(begin, queue_offset + 1)
        for offset in (*ahead[:_LOOKS], *ahead[_LOOKS:][-1:]):
            one = self._node.messages.at(topic, queue_id, offset)
            try:
                if one is not None:
                    self.ask_predicate(by, one)
            except PredicateError as error:
                return StandsStill(offset, str(error))
        return None

    def ask_predicate(self, subscription: Subscription, message: StoredMessage) -> bool:
        """Return the result of a predicate for a stored message.

        Raises:
            PredicateError: it is not allowed, it raised, or it did not return in time.
        """
        place = message.topic, message.queue_id, message.queue_offset
        disk = self._node.topics.get(message.topic).disk_of(message.queue_id)
        return self._node.at(disk).filters.ask_predicate(subscription, place)

    def _facts(self, message: StoredMessage, stored: StoredFacts) -> GroupFacts | None:
        place = message.topic, message.queue_id, message.queue_offset
        facts = self.facts_at(*place)
        if facts is None:
            return None
        stops = self.stands_still(*place, facts, stored.min_queue_offset)
        return replace(facts, stands_still=stops)

    def _find(
        self, wanted: str, topic: str | None
    ) -> tuple[StoredMessage | None, tuple[ExplainStep, ...]]:
        """Return the message, and a step that names others with the same key."""
        try:
            found = self._node.messages.view(wanted)
        except ConfigError:
            found = None  # it is a key, or a producer's unique id
        if found is not None:
            return found, ()
        for ordered in self._places_with_key(wanted, topic):
            if ordered:
                return ordered[-1], tuple(_others(wanted, ordered))
        return None, ()

    def _places_with_key(self, wanted: str, topic: str | None) -> Iterator[list[StoredMessage]]:
        """Yield the messages with a key in one kind of places after the other, oldest first."""
        if topic is not None:
            yield self._with_key(wanted, [topic], [topic])
            return
        own = self._own_topics()
        yield self._with_key(wanted, own, own)
        yield self._with_key(wanted, self._open_topics(), None)
        # Its topic may be deleted: then only the copies are left that the group, or any, returned.
        group, given_back = self._group, (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        last = [name for name in self._node.topics.all() if name.startswith(given_back)]
        yield [
            one
            for one in self._with_key(wanted, [SCHEDULE_TOPIC, *last, GIVEN_UP_TOPIC], [])
            if one.topic in KEPT_TOPICS or not group or is_given_back(one, group)
        ]

    def _own_topics(self) -> list[str]:
        """Return the topics that the group reads, except its retry topic."""
        there = self._node.topics.all()
        return [name for name in self._read if name in there and name != retry_topic(self._group)]

    def _open_topics(self) -> list[str]:
        """Return all topics except system topics."""
        return [
            name
            for name in self._node.topics.all()
            if not (is_system_topic(name) or name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)))
        ]

    def _with_key(
        self, wanted: str, topics: Sequence[str], targets: Sequence[str] | None
    ) -> list[StoredMessage]:
        """Return the messages with a key in *topics*, or on their way to *targets*, oldest first.

        None stands for all targets, also for topics that were deleted.
        """
        there = self._node.topics.all()
        in_topics = [
            one
            for name in topics
            if name in there
            for one in self._node.messages.query(name, wanted, _FOUND_MAX)
        ]
        copies = copies_with(self._node, wanted, targets)
        messages: dict[str, StoredMessage] = {}
        for one in (*copies, *sorted(in_topics, key=_age)):  # arrived messages win
            messages[one.unique_key or origin_of(one)] = one
        return sorted(messages.values(), key=_age)

    def _not_found(self, wanted: str, topic: str | None) -> Iterator[Found]:
        yield from self._expired(wanted)
        if topic is not None and topic not in self._node.topics.all():
            yield self._no_topic(topic)
        deleted = self._deleted()
        for name, time_ms in deleted.items():
            detail = f"the group read topic {name!r}, which was deleted at {time_text(time_ms)}"
            yield None, ExplainStep("stored", "no topic", detail)
        topics = [topic] if topic else self._own_topics() or self._open_topics()
        detail = f"no message has the id or key {wanted!r}, in {_named(topics)}"
        removed = [
            f"{name}/{shard.queue_id} begins at offset {shard.min_queue_offset}"
            for name in topics
            for shard in self._node.shard_statistics(name)
            if shard.min_queue_offset
        ]
        if removed:
            detail += f"; older ones expired: {_named(removed)}"
        detail += like_keys(self._node, wanted, topics)
        yield Cause.NOT_FOUND, ExplainStep("stored", "no", detail)

    def _no_topic(self, topic: str) -> Found:
        deleted_ms = self._deleted().get(topic)
        if deleted_ms is not None:
            detail = f"topic {topic!r} was deleted at {time_text(deleted_ms)}, with its messages"
            return Cause.TOPIC_DELETED, ExplainStep("stored", "no topic", detail)
        detail = f"there is no topic {topic!r}; if it was deleted, so were its messages"
        detail += like(topic, self._open_topics())
        return Cause.NOT_FOUND, ExplainStep("stored", "no topic", detail)

    def _expired(self, wanted: str) -> Iterator[Found]:
        """Yield a step if *wanted* is an offset id of a place that its shard has removed."""
        try:
            place = decode_offset_id(wanted)
        except ConfigError:
            return
        shard = shard_of_host(self._node.topics.all(), place.store_host)
        if shard is None:
            return
        topic, queue = shard
        config = self._node.topics.get(topic)
        statistics = self._node.shard_calls(config, queue).statistics()
        first = self._node.messages.at(topic, queue, statistics.min_queue_offset)
        begin = statistics.max_physical_offset if first is None else first.physical_offset
        if statistics.min_queue_offset and place.physical_offset < begin:
            detail = (
                f"the log of {topic}/{queue} now begins at physical offset {begin}; the message at "
                f"{place.physical_offset} expired"
            )
            yield Cause.EXPIRED, ExplainStep("stored", "expired", detail)

    def without_subscription(self, topic: str) -> Found:
        """Return the last step for a group that does not read *topic*."""
        group = self._group
        if self._read:
            others = ", ".join(name for name in self._read if name != retry_topic(group))
            detail = f"group {group!r} reads {others or 'nothing'}, not {topic!r}"
            return Cause.NOT_SUBSCRIBED, ExplainStep("subscription", "other topics", detail)
        if self.journal and self.journal[-1].kind is EntryKind.GROUP_DELETED:
            detail = f"group {group!r} was deleted at {time_text(self.journal[-1].time_ms)}"
            step = ExplainStep("subscription", "deleted", f"{detail}, with its offsets")
            return Cause.GROUP_DELETED, step
        detail = f"group {group!r} does not exist: no member of it ever joined"
        detail += like(group, {each.group for each in self._groups})
        return Cause.NO_GROUP, ExplainStep("subscription", "no group", detail)

    def _deleted(self) -> dict[str, int]:
        """Return the deleted topics that the group read, with the times of their deletion."""
        there = self._node.topics.all()
        return {
            entry.topic: entry.time_ms
            for entry in self.journal
            if entry.kind is EntryKind.TOPIC_DELETED and entry.topic not in there
        }


def _unknown(node: NodeClient) -> Iterator[ExplainStep]:
    """Yield a step for each disk that does not answer."""
    for disk in sorted(node.away):
        detail = f"{disk_words(disk)} does not answer: what is there is left out below"
        yield ExplainStep("disk", "unknown", detail)


def _others(wanted: str, ordered: Sequence[StoredMessage]) -> Iterator[ExplainStep]:
    if len(ordered) > 1:
        ids = [one.offset_message_id for one in reversed(ordered[:-1])]
        shown = ", ".join(ids[:_SHOWN]) + (", …" if len(ids) > _SHOWN else "")
        detail = f"{len(ordered)} messages have the key {wanted!r}; this is the newest"
        yield ExplainStep("key", "several", f"{detail}, and the others are {shown}")


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _age(message: StoredMessage) -> tuple[int, int]:
    return message.store_timestamp_ms, message.queue_offset

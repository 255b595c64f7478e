"""Gathering what is known of a message and a group, to explain why the one reached the other or not.

Asks the coordinator, one shard and, for a class filter, the filter actor; changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rocketray.errors import ConfigError
from rocketray.filters.explain import explain_filter
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage

from .catalog import TopicConfig
from .explanation import Explanation, GroupFacts, StoredFacts, explain, not_found
from .group_views import GroupDescription
from .retry_trace import first_of, trace
from .send_back import retry_topic

__all__ = ["Inquiries", "inquire"]


class Inquiries(Protocol):
    """What this module asks of a connection."""

    def view(self, offset_message_id: str) -> StoredMessage | None:
        """The message with that offset id, or None; raises ConfigError for what is no id."""

    def topics(self) -> Mapping[str, TopicConfig]:
        """All topics by name."""

    def query(self, topic: str, key: str, max_count: int = 64) -> list[StoredMessage]:
        """The topic's messages with a business key or unique key, oldest first."""

    def stored_facts(self, message: StoredMessage) -> StoredFacts:
        """What the message's shard knows of it."""

    def ask_predicate(self, subscription: Subscription, message: StoredMessage) -> bool:
        """A class filter's answer; raises :class:`PredicateError`."""


def inquire(
    node: Inquiries,
    groups: Sequence[GroupDescription],
    wanted: str,
    group: str,
    topic: str | None = None,
) -> Explanation:
    """Why the message with the id or key *wanted* was, or was not, delivered to *group*.

    *groups* are all that there are, an entry for each topic.
    A key is looked up in *topic*, else in the topics of the group, else in all; the newest
    message that has it is the one that is explained. A copy of a message that the group gave back
    stands for the message.
    """
    subscriptions = {each.topic: each for each in groups if each.group == group}
    message = _by_offset_id(node, wanted)
    if message is None:
        topics = [topic] if topic else [*subscriptions] or [*node.topics()]
        found = [each for name in topics for each in node.query(name, wanted)]
        message = max(found, key=_age, default=None)
    if message is None:
        return not_found(wanted)
    message = first_of(node, message, group)
    stored = node.stored_facts(message)
    description = subscriptions.get(message.topic)
    verdict = facts = None
    if description is not None:
        facts = _facts(description, message.queue_id)
        verdict = explain_filter(
            description.subscription,
            message,
            stored.tags_code,
            node.ask_predicate,
            stored.bitmap_of(group),
        )
    retries = subscriptions.pop(retry_topic(group), None)
    return explain(
        stored,
        group,
        other_topics=list(subscriptions) or None,
        facts=facts,
        verdict=verdict,
        retries=trace(node, message, group),
        retry_facts=None if retries is None else _facts(retries, 0),
    )


def _by_offset_id(node: Inquiries, wanted: str) -> StoredMessage | None:
    try:
        return node.view(wanted)
    except ConfigError:
        return None  # a key, or a producer's unique id


def _age(message: StoredMessage) -> tuple[int, int]:
    return message.store_timestamp_ms, message.queue_offset


def _facts(description: GroupDescription, queue_id: int) -> GroupFacts:
    return GroupFacts(
        str(description.subscription),
        description.since_ms,
        description.starts.get(queue_id, -1),
        description.offsets.get(queue_id, -1),
        description.members,
    )

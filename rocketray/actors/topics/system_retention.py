"""How long a node keeps the messages of its own topics, and who says what is still needed.

retries         what the group has finished, for 72 h: RocketMQ's ``fileReservedTime``; what it has
                not finished stays, however old it is and however full the disk
dead letters    30 days, and halves that nobody decided as long: somebody has to look at them first
halves, ops,    what is decided, for 72 h; the service of transactions removes the files
decisions
waiting         until it is delivered; the schedule removes the files
"""

from __future__ import annotations

from dataclasses import replace

from rocketray.delay import WAITING_QUEUES
from rocketray.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketray.store.retention import KEEP_ALL, RetentionPolicy
from rocketray.transaction import END_TOPIC, GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC

__all__ = ["DECIDED", "default_retention", "is_kept_by_node", "retry_orders"]

_HOUR_MS = 3_600_000
_RESERVED_MS = 72 * _HOUR_MS
_LETTERS_MS = 30 * 24 * _HOUR_MS
_OF_SERVICES = frozenset({HALF_TOPIC, OP_TOPIC, END_TOPIC, *WAITING_QUEUES})
DECIDED = RetentionPolicy(max_age_ms=_RESERVED_MS, only_unneeded=True)
"""For halves, decisions and ops."""


def default_retention(topic: str) -> RetentionPolicy:
    """What holds for a topic of which nothing is said when it is made."""
    if topic.startswith(RETRY_PREFIX):
        return RetentionPolicy(max_age_ms=_RESERVED_MS)
    if topic.startswith(DEAD_LETTER_PREFIX) or topic == GIVEN_UP_TOPIC:
        return RetentionPolicy(max_age_ms=_LETTERS_MS)
    return KEEP_ALL


def is_kept_by_node(topic: str) -> bool:
    """Whether a service of the node knows what *topic* still needs, and removes the rest."""
    return topic in _OF_SERVICES


def retry_orders(
    topic: str, policy: RetentionPolicy, needed_from: int | None
) -> tuple[RetentionPolicy, int | None]:
    """What a shard of *topic* is told: *policy* and what is needed, which of retries is all.

    A retry topic that no group reads is kept whole: its group may only be away.
    """
    if not topic.startswith(RETRY_PREFIX):
        return policy, needed_from
    return replace(policy, only_unneeded=True), needed_from or 0

"""Retention of a node's own topics, and the source of the offsets that are still needed.

- Retries: messages that the group has finished, for 72 h: RocketMQ's ``fileReservedTime``;
  unfinished ones stay, however old they are and however full the disk.
- Dead letters: 30 days, so that an operator can look at them first; halves that the node
  abandoned, as long.
- Halves, ops, decisions: decided ones, for 72 h; the service of transactions removes the files.
- Delayed messages: until they are delivered; the schedule removes the files.
"""

from __future__ import annotations

from dataclasses import replace

from rocketray.base.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketray.base.system_topics import SYSTEM_TOPICS
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

_HOUR_MS = 3_600_000
_RESERVED_MS = 72 * _HOUR_MS
_DAY_MS = 24 * _HOUR_MS
_LETTERS_MS = 30 * _DAY_MS
DECIDED = RetentionPolicy(max_age_ms=_RESERVED_MS, only_unneeded=True)
"""For halves, decisions and ops."""


def default_retention(topic: str) -> RetentionPolicy:
    """Return the retention of a topic that is created without one."""
    if topic.startswith(RETRY_PREFIX):
        return RetentionPolicy(max_age_ms=_RESERVED_MS)
    if topic.startswith(DEAD_LETTER_PREFIX):
        return RetentionPolicy(max_age_ms=_LETTERS_MS)
    row = SYSTEM_TOPICS.get(topic)
    if row is not None and row.max_age_days is not None:
        return RetentionPolicy(max_age_ms=row.max_age_days * _DAY_MS)
    return KEEP_ALL


def retry_orders(
    topic: str, policy: RetentionPolicy, needed_from: int | None
) -> tuple[RetentionPolicy, int | None]:
    """Return the policy and the needed offset for a shard; retries lose only unneeded messages.

    A retry topic that no group reads is kept whole: its group may only be offline.
    """
    if not topic.startswith(RETRY_PREFIX):
        return policy, needed_from
    return replace(policy, only_unneeded=True), needed_from or 0

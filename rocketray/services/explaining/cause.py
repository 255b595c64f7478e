"""The causes that an explanation can name: where and why a message's way to a group ended."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Self

_END_OF_YEAR_9999_MS = 253_402_300_800_000


class Cause(Enum):
    """The cause with its meaning; ``delivered``, ``on_its_way`` and ``delayed`` are no failures."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Self:
        cause = object.__new__(cls)
        cause._value_ = name
        cause.meaning = meaning
        return cause

    DELIVERED = "delivered", "the group has finished it"
    ON_ITS_WAY = "on_its_way", "it matches, and a member works on its queue"
    WAITS_FOR_RETRY = "waits_for_retry", "a handler failed on it, and it will be redelivered"
    FAILING = "failing", "its member keeps failing on it, and its queue is held"
    DEAD_LETTER = "dead_letter", "its handlers failed too often; see: rocketray dlq"
    SKIPPED = "skipped", "the group's offset was moved past it: groups skip, seek, reset or clone"
    BEFORE_START = "before_start", "the group started after it"
    TAG_MISMATCH = "tag_mismatch", "its tag is not one that the group subscribes to"
    TAG_COLLISION = (
        "tag_collision",
        "its tag only has the hash code of one that the group subscribes to",
    )
    SQL_FALSE = "sql_false", "the SQL92 expression is false"
    SQL_NULL = (
        "sql_null",
        "the SQL92 expression is NULL for it, for instance where a property is absent",
    )
    SQL_ERROR = "sql_error", "the SQL92 expression fails on it"
    BLOOM_WRONG = "bloom_wrong", "a damaged bitmap hides a message that matches"
    CLASS_FALSE = "class_false", "the predicate returned False"
    CLASS_ERROR = "class_error", "the predicate fails on it, and the group skips such messages"
    STANDS_STILL = (
        "stands_still",
        "the predicate fails on it or on an earlier one, and the group stopped there",
    )
    NO_CONSUMER = "no_consumer", "it matches, and no member is alive"
    NOT_ASSIGNED = "not_assigned", "it matches, and no member has its queue yet"
    NOT_READABLE = "not_readable", "its topic has no read permission (perm 2)"
    DELAYED = "delayed", "it is not due yet"
    RECALLED = "recalled", "it was recalled before it was due"
    HALF_MESSAGE = "half_message", "its transaction is not committed, or was abandoned"
    ROLLED_BACK = "rolled_back", "its transaction was rolled back"
    UNDELIVERABLE = (
        "undeliverable",
        "its topic could not store it: it is a dead letter of the node itself",
    )
    STORED = "stored", "it is in its topic; no group was named"
    NOT_DISPATCHED = "not_dispatched", "it is in the commit log, but not in its consume queue"
    EXPIRED = "expired", "retention removed it"
    NOT_FOUND = "not_found", "there is no such message, or it was removed"
    NO_GROUP = "no_group", "the group never had a member"
    GROUP_DELETED = "group_deleted", "the group was deleted, with its offsets"
    NOT_SUBSCRIBED = "not_subscribed", "the group does not read the message's topic"
    TOPIC_DELETED = "topic_deleted", "the message's topic was deleted"
    UNKNOWN = "unknown", "no record of it: the group is broadcast, or its journal starts later"


def time_text(timestamp_ms: int) -> str:
    """Return a time as text in UTC; as a number of milliseconds if no calendar has it."""
    if not 0 <= timestamp_ms < _END_OF_YEAR_9999_MS:
        return f"{timestamp_ms} ms"
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")

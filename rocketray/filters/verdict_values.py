"""The values of a filter's explanation: its facts, its steps and its reason (filter_verdict.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from .consumer_filter_data import ConsumerFilterData


class FilterReason(Enum):
    """The reason that a filter passes a message or not."""

    MATCHED = "matched"
    TAG_MISMATCH = "tag_mismatch"
    TAG_COLLISION = "tag_collision"
    SQL_FALSE = "sql_false"
    SQL_NULL = "sql_null"
    SQL_ERROR = "sql_error"
    BLOOM_WRONG = "bloom_wrong"
    CLASS_FALSE = "class_false"
    CLASS_ERROR = "class_error"


@dataclass(frozen=True, slots=True)
class ExplainStep:
    """One step. ``result`` is a word for programs, ``detail`` a sentence for people.

    ``depth`` is above 0 for the parts of an SQL92 expression.
    """

    stage: str
    result: str
    detail: str
    depth: int = 0
    values: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BitmapFacts:
    """A delivery's knowledge of a message's bitmap: its store time, and the group's filter.

    ``bitmap`` is None if the queue entry has no bitmap, ``registered`` if the shard's bitmaps do
    not cover the group.
    """

    bitmap: bytes | None = None
    store_timestamp_ms: int = 0
    registered: ConsumerFilterData | None = None


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """The reason, and the steps that led to it."""

    reason: FilterReason
    steps: tuple[ExplainStep, ...]

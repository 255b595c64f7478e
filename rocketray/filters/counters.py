"""Counters of a filter's messages: one number for each way in which a message is settled.

Every scanned message is settled once. If the consumer took all matches before any of them was
deleted,

    scanned = rejected + errors + collisions + (delivered − delivered_on_error)

``delivered_on_error`` are errors that the group wants delivered (``on_filter_error`` is
``"deliver"``), so they are on both sides. Numbers only grow; they begin at 0 with the stream.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import add, attrgetter, sub


@dataclass(frozen=True, slots=True)
class FilterCounters:
    """Messages by the decision of the filter, then of the consumer; ``slow_batches`` are batches.

    Attributes:
        scanned: looked at, even if only at the queue entry.
        tag_rejected: by the tags code in the queue entry.
        bloom_rejected: by the bitmap beside the queue entry.
        sql_rejected: by the SQL92 expression: false or unknown.
        class_rejected: by the predicate.
        evaluation_errors: the expression could not be evaluated; no match.
        predicate_errors: the predicate raised, or returned an invalid value.
        predicate_timeouts: the predicate did not return within its time.
        slow_batches: batches that a predicate did not finish in time, though it returned.
        delivered_on_error: delivered because of an error, by the group's setting.
        collisions: discarded by the consumer: the tag's hash matches, its text does not.
        delivered: delivered to the agent.
        not_int32: of ``evaluation_errors``: a value is not a 32-bit integer.
        not_int64: of ``evaluation_errors``: a value is not a 64-bit integer.
        not_double: of ``evaluation_errors``: a value is not a number.
        boolean_with_text: of ``evaluation_errors``: a truth value on the left of a text.
        missed: deleted, because they were too old or too many, before they were read; every skipped
            offset counts, whatever the filter would have decided.
        sent_back: of ``delivered``: the handler raised, and the message is redelivered later.
        dead_lettered: of ``delivered``: the handler raised for the last time.
    """

    scanned: int = 0
    tag_rejected: int = 0
    bloom_rejected: int = 0
    sql_rejected: int = 0
    class_rejected: int = 0
    evaluation_errors: int = 0
    predicate_errors: int = 0
    predicate_timeouts: int = 0
    slow_batches: int = 0
    delivered_on_error: int = 0
    collisions: int = 0
    delivered: int = 0
    not_int32: int = 0
    not_int64: int = 0
    not_double: int = 0
    boolean_with_text: int = 0
    missed: int = 0
    sent_back: int = 0
    dead_lettered: int = 0

    @property
    def rejected(self) -> int:
        return self.tag_rejected + self.bloom_rejected + self.sql_rejected + self.class_rejected

    @property
    def errors(self) -> int:
        """Messages on which a filter failed."""
        return self.evaluation_errors + self.predicate_errors + self.predicate_timeouts

    def numbers(self) -> tuple[int, ...]:
        found: tuple[int, ...] = _numbers(self)
        return found

    def __add__(self, other: FilterCounters) -> FilterCounters:
        return FilterCounters(*map(add, self.numbers(), other.numbers()))

    def __sub__(self, other: FilterCounters) -> FilterCounters:
        return FilterCounters(*map(sub, self.numbers(), other.numbers()))


NO_COUNTERS = FilterCounters()
_numbers = attrgetter(*(field.name for field in fields(FilterCounters)))

"""What became of the messages that a filter looked at: one number for each way to be settled.

Every scanned message is settled once. Where the consumer took all that was matched, before any
of it was deleted,

    scanned = rejected + errors + collisions + (delivered − delivered_on_error)

``delivered_on_error`` are errors that a group wants to have all the same (``on_filter_error``
is ``"deliver"``), so they stand on both sides. Numbers only grow; they begin at 0 with the stream.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Self

import numpy as np
import numpy.typing as npt

__all__ = ["NO_COUNTERS", "FilterCounters"]


@dataclass(frozen=True, slots=True)
class FilterCounters:
    """Messages, by what a filter and then the consumer decided; ``slow_batches`` alone is not.

    Attributes:
        scanned: looked at, if only at the queue entry.
        tag_rejected: by the tags code in the queue entry.
        bloom_rejected: by the bitmap beside the queue entry.
        sql_rejected: by the SQL92 expression: false or unknown.
        class_rejected: by the predicate.
        evaluation_errors: the expression could not be evaluated; no match.
        predicate_errors: the predicate raised, or gave an answer that is none.
        predicate_timeouts: the predicate gave no answer within its time.
        slow_batches: batches that a predicate did not finish in time, though it answered.
        delivered_on_error: handed on because of an error, as the group wants.
        collisions: left out by the consumer: the tag's hash is right and its text is not.
        delivered: handed to the agent.
        not_int32: of ``evaluation_errors``: a value is no 32-bit integer.
        not_int64: the same of 64 bits.
        not_double: the same of numbers.
        boolean_with_text: the same of a truth value on the left of a text.
        missed: deleted, because they were too old or too many, before they were read; an offset
            that was skipped counts, whatever the filter would have said.
        sent_back: of ``delivered``: a handler raised, and the group gets it again later.
        dead_lettered: the same, for the last time.
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
        """Left out because a filter said no."""
        return self.tag_rejected + self.bloom_rejected + self.sql_rejected + self.class_rejected

    @property
    def errors(self) -> int:
        """Messages on which a filter failed."""
        return self.evaluation_errors + self.predicate_errors + self.predicate_timeouts

    def to_array(self) -> npt.NDArray[np.int64]:
        """The numbers in the order of the fields: int64[n]."""
        return np.array(_numbers(self), np.int64)

    @classmethod
    def from_array(cls, numbers: npt.NDArray[np.int64]) -> Self:
        """The counters that :meth:`to_array` wrote."""
        return cls(*numbers.tolist())

    def to_json(self) -> dict[str, int]:
        """The numbers by name, written as JSON writes names: ``tagRejected``."""
        return {_camel_case(field.name): getattr(self, field.name) for field in fields(self)}

    def __add__(self, other: FilterCounters) -> FilterCounters:
        return FilterCounters.from_array(self.to_array() + other.to_array())

    def __sub__(self, other: FilterCounters) -> FilterCounters:
        return FilterCounters.from_array(self.to_array() - other.to_array())


NO_COUNTERS = FilterCounters()
_numbers = attrgetter(*(field.name for field in fields(FilterCounters)))


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))

"""Filters of a query that the source applies itself: Spark then reads no more than matches.

Spark hands over the conditions of ``where`` that compare a column with constants and are joined by
AND. Those on the topic, the queue and its offsets leave queues and ranges out. Those on ``tags``
become a tag expression, which is compared beside the log. All others stay with Spark.

Spark does so only where ``spark.sql.python.filterPushdown.enabled`` is true, as in our sessions,
and elsewhere refuses readers that could take filters: see :func:`are_handed_over`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from rocketray.broker.fetching.read_plan import Range
from rocketray.errors import StreamError
from rocketray.filters.subscription import Subscription, parse

from .source_columns import COLUMN_SETS, ColumnSetName

_PLANNER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
_OFFSET_MAX = (1 << 63) - 1  # of a bigint, which the column is
_EQUAL = (EqualTo, EqualNullSafe)
_ALWAYS = frozenset({"topic", "queueId", "queueOffset"})
"""The columns that no message lacks."""


def are_handed_over() -> bool:
    """Return whether this process of Spark's plans a read and hands its filters over."""
    # Imported, where Spark's daemon forked this process for it; the main module, where the process
    # runs nothing else.
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _PLANNER in sys.modules or (main is not None and main.name == _PLANNER)


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """What filters leave of a read; None is all.

    Of the queues those of ``topics`` with ``queue_ids``, of each the offsets from ``start`` up to,
    not including, ``stop``, and of these the messages with one of ``tags``.
    """

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    start: int = 0
    stop: int = _OFFSET_MAX
    tags: frozenset[str] | None = None

    @classmethod
    def of(
        cls, filters: Iterable[Filter], columns: ColumnSetName, subscription: Subscription
    ) -> tuple[PushedFilters, list[Filter]]:
        """Return what *filters* on these columns leave, and those that Spark has to apply.

        Tags are compared by a tag expression, so only where the source has no filter of another
        kind.
        """
        stored = {
            name: each.stored
            for name, each in COLUMN_SETS[columns].items()
            if each.shape == "as it is"
        }
        found, left = cls(), list[Filter]()
        if subscription.expression_type != "TAG":
            stored.pop("tags", None)
        elif (chosen := parse(subscription.expression)).sub_string != "*":
            found = cls(tags=chosen.tags_set)
        for each in filters:
            more = found._with(each, stored)
            found, left = (more, left) if more is not None else (found, [*left, each])
        return found, left

    def ranges(self, ranges: Iterable[Range]) -> list[Range]:
        clipped = (
            replace(each, start=max(each.start, self.start), stop=min(each.stop, self.stop))
            for each in ranges
            if (self.topics is None or each.key[0] in self.topics)
            and (self.queue_ids is None or each.key[1] in self.queue_ids)
            and self.tags != frozenset()
        )
        return [each for each in clipped if each.start < each.stop]

    def subscription(self, given: Subscription) -> Subscription:
        """Return *given*, or the tag expression that takes its place."""
        return Subscription.tags(" || ".join(sorted(self.tags))) if self.tags else given

    def _with(self, one: Filter, stored: Mapping[str, str]) -> PushedFilters | None:
        """Return what this and another filter leave; None if Spark has to apply that."""
        column = stored.get(".".join(getattr(one, "attribute", ())), "")
        if isinstance(one, IsNotNull):
            return self if column in _ALWAYS else None
        if column == "queueOffset":
            return self._with_offsets(one)
        values, (field, fit) = _values(one), _SETS.get(column, ("", bool))
        if not field or not values or not fit(values):
            return None
        known = getattr(self, field)
        chosen: dict[str, Any] = {field: values if known is None else values & known}
        return replace(self, **chosen)

    def _with_offsets(self, one: Filter) -> PushedFilters | None:
        value = getattr(one, "value", None)
        if type(value) is not int:
            return None
        start, stop = self.start, self.stop
        match one:
            case EqualTo() | EqualNullSafe():
                start, stop = max(start, value), min(stop, value + 1)
            case GreaterThan():
                start = max(start, value + 1)
            case GreaterThanOrEqual():
                start = max(start, value)
            case LessThan():
                stop = min(stop, value)
            case LessThanOrEqual():
                stop = min(stop, value + 1)
            case _:
                return None
        return replace(self, start=start, stop=stop)


def _values(one: Filter) -> frozenset[Any] | None:
    """Return the values of which a column has to have one; None if the filter is another."""
    if isinstance(one, _EQUAL):
        return frozenset({one.value})
    return frozenset(one.value) if isinstance(one, In) else None


def _are_tags(values: frozenset[Any]) -> bool:
    """Return whether a tag expression can name these tags, and no others."""
    try:
        expression = " || ".join(sorted(values))
        return expression != "*" and parse(expression).tags_set == values
    except (TypeError, StreamError):  # there is null, or they are too long
        return False


_SETS: Mapping[str, tuple[str, Callable[[frozenset[Any]], bool]]] = {
    "topic": ("topics", lambda values: all(type(each) is str for each in values)),
    "queueId": ("queue_ids", lambda values: all(type(each) is int for each in values)),
    "tags": ("tags", _are_tags),
}
"""The field for the values of a column, and which values it takes."""

"""SQL92 in two stages, as in a broker: first the filter bitmap, then the record's properties.

Without a registered filter, as when a pull brings its own expression, stage one passes everything.
Source: RocketMQ 5.3.3, ``ExpressionMessageFilter``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rocketray.errors import FilterEvaluationError

from .consumer_filter_data import ConsumerFilterData
from .sql92 import Dialect, compile_expression
from .subscription import Subscription

__all__ = ["ExpressionFilter"]


class _Unit(Protocol):
    """The fields of a ConsumeQueueExt unit that a filter reads."""

    @property
    def store_timestamp_ms(self) -> int: ...
    @property
    def bitmap(self) -> bytes | None: ...


class _Record(Protocol):
    @property
    def properties(self) -> Mapping[str, str]: ...


class ExpressionFilter:
    """An SQL92 expression, and the registration whose bits are in the bitmaps, if there is one.

    ``failures`` counts the records on which the expression failed; they do not match.
    """

    needs_record = True

    def __init__(
        self,
        expression: str,
        registered: ConsumerFilterData | None = None,
        *,
        dialect: Dialect = "rocketmq",
        rules: int | None = None,
    ) -> None:
        """Compile *expression*; ignore a registration of another filter.

        Raises:
            FilterSyntaxError: *expression* does not parse.
        """
        self._compiled = compile_expression(expression, dialect, rules)
        wanted = Subscription("SQL92", expression, dialect=dialect, rules=rules)
        same = registered is not None and registered.subscription == wanted
        self._registered = registered if same else None
        self.failures = 0

    def matches_entry(self, _tags_code: int | None, unit: _Unit | None) -> bool:
        """Run stage one: return False only if a bitmap that covers the filter excludes a match."""
        filter_data = self._registered
        if filter_data is None or unit is None or unit.bitmap is None:
            return True
        if not filter_data.is_message_in_live(unit.store_timestamp_ms):
            return True
        return filter_data.may_match(unit.bitmap)

    def matches_record(self, message: _Record) -> bool:
        """Run stage two: return whether the properties make the expression true."""
        try:
            return self._compiled.matches(message.properties)
        except FilterEvaluationError:
            self.failures += 1
            return False

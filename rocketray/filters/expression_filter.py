"""SQL92 in two stages, as in a broker: first the filter bitmap, then the record's properties.

Without a registered filter, as when a pull brings its own expression, stage one passes everything.
Source: RocketMQ 5.3.3, ``ExpressionMessageFilter``.
"""

from __future__ import annotations

from typing import Protocol

from rocketray.errors import FilterEvaluationError

from .consumer_filter_data import ConsumerFilterData
from .message_filter import RecordView
from .subscription import Subscription


class _Unit(Protocol):
    """The fields of a ConsumeQueueExt unit that a filter reads."""

    @property
    def store_timestamp_ms(self) -> int: ...
    @property
    def bitmap(self) -> bytes | None: ...


class ExpressionFilter:
    """An SQL92 expression, and the registration whose bits are in the bitmaps, if there is one."""

    needs_record = True

    def __init__(
        self, subscription: Subscription, registered: ConsumerFilterData | None = None
    ) -> None:
        """Compile *subscription*, which is by SQL92; ignore a registration of another filter.

        Raises:
            FilterSyntaxError: its expression does not parse.
        """
        self._compiled = subscription.compiled()
        same = registered is not None and registered.subscription == subscription
        self._registered = registered if same else None

    def matches_entry(self, _tags_code: int | None, unit: _Unit | None) -> bool:
        """Run stage one: return False only if a bitmap that covers the filter excludes a match."""
        filter_data = self._registered
        if filter_data is None or unit is None or unit.bitmap is None:
            return True
        if not filter_data.is_message_in_live(unit.store_timestamp_ms):
            return True
        return filter_data.may_match(unit.bitmap)

    def matches_record(self, message: RecordView) -> bool:
        """Run stage two: return whether the properties make the expression true.

        A record on which the expression fails does not match.
        """
        try:
            return self._compiled.matches(message.properties)
        except FilterEvaluationError:
            return False

"""A request for one range of a queue, as the ticket of an Arrow Flight call, and what answers say.

A ticket is JSON. It names what to read, and never where: the service reads its own disk only.
Each batch of the answer has JSON metadata: the position after it, and lines for the query's log.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rocketray.base.names import check_topic
from rocketray.errors import ConfigError
from rocketray.filters.subscription import Subscription
from rocketray.store.reading.columns import column_schema

from .read_plan import Range, ReadPlan

RANGE = "range"
"""The name of the call at the fetch service."""
_TICKET_MAX_BYTES = 1 << 20  # with an expression of 4,096 characters, a fortieth
_BATCH_ROWS_MAX = 1_000_000  # BATCH_BYTES ends a batch of the least records after 92,000
_OFFSET_MAX = (1 << 63) - 1  # an i64, as in the queue's entries
_QUEUE_MAX = (1 << 31) - 1  # an i32, as in a record


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """What to read; if it ``is_first`` of a topic in a query, doubts about the filter are told."""

    plan: ReadPlan
    part: Range
    is_first: bool

    def to_ticket(self) -> bytes:
        """Return it as a ticket."""
        topic, queue_id = self.part.key
        ticket = {
            "topic": topic,
            "queueId": queue_id,
            "start": self.part.start,
            "stop": self.part.stop,
            "columns": self.plan.columns,
            "subscription": self.plan.subscription.to_json(),
            "batchRows": self.plan.batch_rows,
            "failOnDataLoss": self.plan.fail_on_data_loss,
            "isFirst": self.is_first,
        }
        return json.dumps(ticket).encode()

    @classmethod
    def from_ticket(cls, ticket: bytes) -> RangeRequest:
        """Return the request of a ticket.

        Raises:
            ConfigError: it is not one, or a value is outside of its limits.
            InvalidNameError: it names no topic. FilterSyntaxError: its filter does not parse.
        """
        if len(ticket) > _TICKET_MAX_BYTES:
            raise ConfigError(f"a ticket of {len(ticket)} bytes; at most {_TICKET_MAX_BYTES}")
        try:
            return cls._parsed(json.loads(ticket))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"this is no ticket for a range: {error!r:.200}") from None

    @classmethod
    def _parsed(cls, given: dict[str, Any]) -> RangeRequest:
        columns = tuple(map(str, given["columns"]))
        subscription = Subscription.from_json(given["subscription"])
        subscription.check_text()
        if subscription.expression_type == "CLASS":  # users' code, for which it has no thread
            raise ConfigError("the fetch service runs no predicates; filter by tags or sql")
        start = _number(given, "start", 0, _OFFSET_MAX)
        stop = _number(given, "stop", start, _OFFSET_MAX)
        key = check_topic(given["topic"]), _number(given, "queueId", 0, _QUEUE_MAX)
        column_schema(columns)  # refuses unknown ones
        plan = ReadPlan(
            subscription=subscription,
            columns=columns,
            batch_rows=_number(given, "batchRows", 1, _BATCH_ROWS_MAX),
            fail_on_data_loss=given["failOnDataLoss"] is True,
        )
        return cls(plan, Range(key, start, stop), given["isFirst"] is True)


def _number(given: dict[str, Any], name: str, least: int, most: int) -> int:
    value = given[name]
    if type(value) is not int or not least <= value <= most:
        raise ConfigError(f"{name} of a ticket is {value!r:.80}, not a number {least} to {most}")
    return value


@dataclass(frozen=True, slots=True)
class BatchNote:
    """What a service says with a batch; the last batch of an answer has no rows."""

    next_queue_offset: int
    warnings: list[str]

    def to_metadata(self) -> bytes:
        """Return it as metadata of a batch."""
        return json.dumps([self.next_queue_offset, self.warnings]).encode()

    @classmethod
    def from_metadata(cls, metadata: bytes) -> BatchNote:
        """Return what :meth:`to_metadata` wrote."""
        return cls(*json.loads(metadata))

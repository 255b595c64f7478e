"""A request for one range of a queue, as the ticket of an Arrow Flight call, and what answers say.

A ticket names what to read, and never where: the service reads its own disk only. Each batch of the
answer has metadata: the position after it, and lines for the query's log. Both are JSON, in the
forms of these types (value_forms.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketray.errors import ConfigError, StreamError
from rocketray.runtime.calls.call_text import read_text, write_text
from rocketray.runtime.calls.value_forms import form_of
from rocketray.store.reading.columns import column_schema

from .flight_calls import REQUEST_MAX_BYTES, other_release, read_request, write_request
from .read_plan import Range, ReadPlan

RANGE = "range"
"""The name of the stream at the fetch service."""


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """What to read; if it ``is_first`` of a topic in a query, doubts about the filter are told."""

    plan: ReadPlan
    part: Range
    is_first: bool

    def to_ticket(self) -> bytes:
        return write_request(form_of(RangeRequest).write(self))

    @classmethod
    def from_ticket(cls, ticket: bytes) -> RangeRequest:
        """Return the request of a ticket.

        Raises:
            ConfigError: it is not one, or a value is outside of its limits.
            InvalidNameError: it names no topic. FilterSyntaxError: its filter does not parse.
        """
        sent = read_request(ticket, REQUEST_MAX_BYTES)
        try:
            request: RangeRequest = form_of(RangeRequest).read(sent.get("given"))
        except StreamError:
            raise
        except ValueError as error:
            reason = f"{error!s:.200}{other_release(sent)}"
            raise ConfigError(f"this is no ticket for a range: {reason}") from None
        column_schema(request.plan.columns)  # refuses unknown ones
        if request.part.stop < request.part.start:
            raise ConfigError(f"a range from {request.part.start} to {request.part.stop}")
        return request


@dataclass(frozen=True, slots=True)
class BatchNote:
    """What a service says with a batch; the last batch of an answer has no rows."""

    next_queue_offset: int
    warnings: Sequence[str]

    def to_metadata(self) -> bytes:
        return write_text(form_of(BatchNote).write(self))

    @classmethod
    def from_metadata(cls, metadata: bytes) -> BatchNote:
        note: BatchNote = form_of(BatchNote).read(read_text(metadata))
        return note

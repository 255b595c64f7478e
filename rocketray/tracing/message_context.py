"""The W3C trace context in a message: its user properties ``traceparent`` and ``tracestate``.

Rules
  1. A context that a message has is never changed: what sends it on links to it.
  2. An invalid one is as none.
  3. As user properties they stay in all copies: redelivered, delayed and dead letters. So a filter
     can select a trace: ``traceparent CONTAINS '4bf92f3577b34da6a3ce929d0e0e4736'``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rocketray.base.marks import KEYS, TAGS, TRACE_PARENT, TRACE_STATE, UNIQUE_KEY

_W3C = TraceContextTextMapPropagator()
_NO_CONTEXT = Context()  # so that no span of this process becomes the parent


class TracedMessage(NamedTuple):
    """What spans say of a message; each is None if it has none."""

    trace_parent: str | None = None
    trace_state: str | None = None
    unique_key: str | None = None
    tag: str | None = None
    keys: str | None = None


class _Batch(Protocol):
    def property_texts(self, names: Sequence[str]) -> list[list[str | None]]:
        """Return the named properties, a list each with the value of every message."""


def traced_messages(batch: _Batch) -> list[TracedMessage]:
    """Return what spans say of the messages of a batch that was consumed."""
    names = (TRACE_PARENT, TRACE_STATE, UNIQUE_KEY, TAGS, KEYS)
    return [*map(TracedMessage, *batch.property_texts(names))]


def with_context(properties: Mapping[str, str], context: Context) -> dict[str, str]:
    """Return properties with the trace context, unless they have one.

    A state without a parent is of no trace, and W3C's rules drop it: beside this parent it would
    be taken for the state of its trace.
    """
    if TRACE_PARENT in properties:
        return {**properties}
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context)
    kept = {name: value for name, value in properties.items() if name != TRACE_STATE}
    return {**carrier, **kept}


def context_of(parent: str | None, state: str | None) -> Context:
    """Return the context that a message carries; an empty one without, or if it is invalid."""
    if parent is None:
        return _NO_CONTEXT
    carrier = (
        {TRACE_PARENT: parent} if state is None else {TRACE_PARENT: parent, TRACE_STATE: state}
    )
    return _W3C.extract(carrier, _NO_CONTEXT)


def span_context_of(parent: str | None, state: str | None) -> trace.SpanContext | None:
    """Return the span that a message was sent in; None without, or if it is invalid."""
    found = trace.get_current_span(context_of(parent, state)).get_span_context()
    return found if found.is_valid else None

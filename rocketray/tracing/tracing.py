"""Spans of messages: send, receive, process and settle.

    send T      from the call to the acknowledgement; its context is in the message
    receive T   one poll of a member that brought messages; links to their contexts
    process T   while the handler has a message: child of the span that sent it. While it has a list
                or a batch: links to the contexts of its messages
    settle T    the commit of a queue's offset

While the handler runs, its process span is current, so spans of its database or its own sends are
below it. A link costs memory in every exporter, so of a list only the first 128 have one, which is
also the default limit of OpenTelemetry's SDK.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from rocketray.base.marks import TRACE_PARENT, TRACE_STATE
from rocketray.errors import ConfigError

from . import semantic_names as names
from .message_context import TracedMessage, context_of, span_context_of, with_context

LINKS_MAX = 128
"""The messages to which a span links."""
Messages = Callable[[], Sequence[TracedMessage]]
"""Returns what spans say of messages; only the first ``LINKS_MAX`` are looked at."""
_SCOPE = "rocketray"
_MS = 1_000_000  # nanoseconds, which OpenTelemetry counts


class GroupQueue(NamedTuple):
    """A queue as a consumer group sees it."""

    topic: str
    queue_id: int
    group: str
    is_broadcast: bool = False


class Sending:
    """The span of a send, which ends with the acknowledgement."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._context = trace.set_span_in_context(span)

    def carried(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the properties of a message with the context of the span, unless it has one."""
        return with_context(properties, self._context)

    def stored(self, queue_id: int | None = None, message_id: str | None = None) -> None:
        """End the span: the messages are stored, a single one in this queue."""
        if queue_id is not None:
            self._span.set_attribute(names.PARTITION, str(queue_id))
        if message_id is not None:
            self._span.set_attribute(names.MESSAGE_ID, message_id)
        self._span.end()

    def failed(self, error: BaseException) -> None:
        """End the span: the messages are not stored, or it is not known."""
        _fail(self._span, error)
        self._span.end()


class Processing:
    """The span of a handler that has messages; current inside its ``with``."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._has_ended = False
        self._token: Any = None
        self._entered_by: object = None

    def end(self, error: BaseException | None = None) -> None:
        """End the span before its ``with`` does, for a handler that raised *error*."""
        if self._has_ended:
            return
        self._has_ended = True
        if error is not None:
            _fail(self._span, error)
        if self._entered_by is _current_task():  # a generator may be closed by another task
            contexts.detach(self._token)
        self._span.end()

    def __enter__(self) -> Self:
        self._token = contexts.attach(trace.set_span_in_context(self._span))
        self._entered_by = _current_task()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        # A cancelled task and a closed generator end the span, too, but nothing in the handler
        # failed.
        self.end(error if isinstance(error, Exception) else None)


def _current_task() -> object:
    """Return the task that runs, or the thread where there is no loop: each has its own context."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return threading.current_thread()


class Tracing:
    """Gives spans to producers and apps: ``rr.Producer(tracing=…)``, ``rr.App(tracing=…)``."""

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        """Take the provider of the spans, by default OpenTelemetry's global one.

        Raises:
            ConfigError: it is no provider.
        """
        if tracer_provider is not None and not hasattr(tracer_provider, "get_tracer"):
            raise ConfigError(
                f"the provider is {tracer_provider!r:.60}; give a tracer provider of OpenTelemetry, "
                "or leave it out"
            )
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)

    def send(
        self,
        topic: str,
        properties: Mapping[str, str],
        *,
        count: int | None = None,
        tag: str | None = None,
        keys: Sequence[str] | str = (),
        body_bytes: int | None = None,
    ) -> Sending:
        """Begin the span of a send: of one message, or with *count* of a batch.

        *properties* are those of the message: the span links to the context that they have.
        """
        context = span_context_of(properties.get(TRACE_PARENT), properties.get(TRACE_STATE))
        attributes = _attributes(names.SEND, topic) | _present(
            {
                names.BATCH_COUNT: count,
                names.TAG: tag,
                names.KEYS: [keys] if isinstance(keys, str) else [*keys] or None,
                names.BODY_SIZE: body_bytes,
            }
        )
        span = self._tracer.start_span(
            f"{names.SEND} {topic}",
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            links=[] if context is None else [Link(context)],
        )
        return Sending(span)

    def receive(
        self, place: GroupQueue, count: int, messages: Messages, begun_ms: int, ended_ms: int
    ) -> None:
        """Record a poll that brought *count* messages, between two times of the wall clock.

        *messages* is called only for a span that is recorded.
        """
        span = self._tracer.start_span(
            f"{names.RECEIVE} {place.topic}",
            kind=SpanKind.CLIENT,
            # Made afterwards, with both times: a poll that brings nothing has no span.
            start_time=begun_ms * _MS,
            attributes=_of_place(names.RECEIVE, place) | {names.BATCH_COUNT: count},
        )
        _link(span, messages)
        span.end(ended_ms * _MS)

    def process(self, place: GroupQueue, message: TracedMessage) -> Processing:
        """Begin the span of a handler that has one message; give it to ``with``."""
        span = self._tracer.start_span(
            f"{names.PROCESS} {place.topic}",
            context=context_of(message.trace_parent, message.trace_state),
            kind=SpanKind.CONSUMER,
            attributes=_of_place(names.PROCESS, place)
            | _present(
                {
                    names.MESSAGE_ID: message.unique_key,
                    names.TAG: message.tag,
                    names.KEYS: message.keys and message.keys.split(" "),
                }
            ),
        )
        return Processing(span)

    def process_list(self, place: GroupQueue, count: int, messages: Messages) -> Processing:
        """Begin the span of a handler that has *count* messages; give it to ``with``.

        *messages* is called only for a span that is recorded.
        """
        span = self._tracer.start_span(
            f"{names.PROCESS} {place.topic}",
            kind=SpanKind.CONSUMER,
            attributes=_of_place(names.PROCESS, place) | {names.BATCH_COUNT: count},
        )
        _link(span, messages)
        return Processing(span)

    def settle(
        self, place: GroupQueue, next_queue_offset: int, begun_ms: int, ended_ms: int
    ) -> None:
        """Record a commit: the group has finished the queue up to this offset."""
        span = self._tracer.start_span(
            f"{names.SETTLE} {place.topic}",
            kind=SpanKind.CLIENT,
            start_time=begun_ms * _MS,
            attributes=_of_place(names.SETTLE, place) | {names.QUEUE_OFFSET: next_queue_offset},
        )
        span.end(ended_ms * _MS)


def _attributes(operation: str, topic: str) -> dict[str, Any]:
    return {
        names.SYSTEM: names.SYSTEM_NAME,
        names.OPERATION_NAME: operation,
        names.OPERATION_TYPE: operation,
        names.DESTINATION: topic,
    }


def _of_place(operation: str, place: GroupQueue) -> dict[str, Any]:
    return _attributes(operation, place.topic) | {
        names.PARTITION: str(place.queue_id),
        names.GROUP: place.group,
        names.CONSUMPTION_MODEL: "broadcasting" if place.is_broadcast else "clustering",
    }


def _present(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _link(span: trace.Span, messages: Messages) -> None:
    """Link a span to the contexts of its first messages, if it is recorded."""
    if span.is_recording():
        for one in messages()[:LINKS_MAX]:
            context = span_context_of(one.trace_parent, one.trace_state)
            if context is not None:
                span.add_link(context)


def _fail(span: trace.Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute(names.ERROR_TYPE, type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))

"""Spans that tests look at; the tests that need them are skipped without OpenTelemetry's SDK."""

from __future__ import annotations

import pytest

pytest.importorskip(
    "opentelemetry.sdk", reason="OpenTelemetry is not installed: pip install 'rocketray[dev]'"
)

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider, StatusCode

from rocketray.tracing import Tracing

__all__ = ["NoOpTracerProvider", "Spans", "StatusCode", "Tracing"]


class Spans:
    """A tracing, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(self.provider)

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of that name that have ended, in the order in which they began.

        They end in any order: the producer's thread for outcomes ends the span of a single message.
        """
        named = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return sorted(named, key=lambda span: span.start_time or 0)

    def only(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def carried_by(self, span: ReadableSpan) -> str:
        """The ``traceparent`` of a message that was sent in a span."""
        context = span.get_span_context()
        assert context is not None
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

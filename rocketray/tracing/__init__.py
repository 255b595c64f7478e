"""Traces with OpenTelemetry: spans of sends and handlers, and their contexts in the messages."""

from __future__ import annotations

try:
    from .tracing import LINKS_MAX, GroupQueue, Processing, Sending, Tracing
except ModuleNotFoundError as error:  # pragma: no cover - the tests have it
    # Of another module that is missing the advice below would hide the name.
    if not str(error.name).startswith("opentelemetry"):
        raise
    from rocketray.errors import ConfigError

    said = "traces need OpenTelemetry: install it with: pip install 'rocketray[otel]'"
    raise ConfigError(said) from error

from .message_context import TracedMessage, traced_messages

__all__ = [
    "LINKS_MAX",
    "GroupQueue",
    "Processing",
    "Sending",
    "TracedMessage",
    "Tracing",
    "traced_messages",
]

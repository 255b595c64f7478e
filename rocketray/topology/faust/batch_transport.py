"""The transport of a rocketray app: Faust's extension point, implemented by our data path.

The app creates it itself, not by a URL, because it needs parts that only a rocketray app has: its
connection, its outbox and its feeds.
"""

from __future__ import annotations

from typing import Any

from faust.transport.base import Transport
from faust.transport.conductor import Conductor

from .consumer import FeedConsumer
from .fetcher import FeedFetcher
from .outbox_producer import OutboxProducer

__all__ = ["BatchTransport"]


class PromptConductor(Conductor):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's conductor, without its 45 s pause before it reads a topic that is added later."""

    _resubscribe_sleep_lock_seconds = 0.0

    def add(self, topic: Any) -> None:
        """Start to read *topic*; Faust would ignore a name that it knows."""
        is_new = topic not in self
        super().add(topic)
        if is_new:
            self._flag_changes()


class BatchTransport(Transport):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's factory of the parts of the data path."""

    Consumer = FeedConsumer
    Producer = OutboxProducer
    Conductor = PromptConductor
    Fetcher = FeedFetcher
    default_port = 0
    driver_version = "rocketray"

"""The coordinator's service for topics."""

from __future__ import annotations

from typing import Protocol, Unpack

from rocketray.actors.calls.endpoint import COORDINATOR_NAME, Endpoint, waits
from rocketray.store.retention import RetentionPolicy

from .catalog import TopicConfig, TopicOptions
from .topic_start import Started

__all__ = ["TOPICS", "TopicsApi"]


class TopicsApi(Protocol):
    """The calls about topics; see ``TopicService``."""

    def all(self) -> dict[str, TopicConfig]:
        """Return all topics by name."""

    def get(self, name: str) -> TopicConfig:
        """Return one topic; raise :class:`TopicNotFoundError`."""

    @waits
    def create(self, name: str, queues: int, **options: Unpack[TopicOptions]) -> TopicConfig:
        """Save a topic, or its new queues; :meth:`start_queues` starts them."""

    @waits
    def start_queues(self, name: str, topic_id: str, queues: range, wait_s: float) -> Started:
        """Start queues of a topic; return when they answer, or after *wait_s*.

        Running queues are left alone, so the call can be repeated.

        Raises:
            TopicNotFoundError: the topic is gone, also if another one has its name by now.
        """

    @waits
    def set_permission(self, name: str, perm: int) -> TopicConfig:
        """Allow writing (2), reading (4) or both (6)."""

    def set_retention(self, name: str, retention: RetentionPolicy) -> TopicConfig:
        """Set how long, or up to how many bytes a queue, a topic's messages are kept."""

    @waits
    def set_bitmaps(self, name: str, mode: str) -> TopicConfig:
        """Keep filter bitmaps for SQL92 groups: ``on``, ``off``, or ``auto``, where that pays."""

    @waits
    def delete(self, name: str) -> None:
        """Remove a topic and all its messages."""


TOPICS = Endpoint(COORDINATOR_NAME, TopicsApi)

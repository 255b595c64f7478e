"""The classes for programs that have only a node's data directory: a client and producers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Unpack

from rocketray.actors.filtering.filter_advice import doubts
from rocketray.actors.groups.member_options import MemberOptions
from rocketray.actors.producers.async_producer import AsyncProducer as NodeAsyncProducer
from rocketray.actors.producers.options import ProducerOptions, batch_settings
from rocketray.actors.producers.producer import Producer as NodeProducer
from rocketray.actors.remote.remote_consumer import Member
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.actors.topics.topic_start import TopicProgress
from rocketray.errors import ConfigError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.names import QueuesPerProcess, check_queue_count, check_topic
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

from .connection import Connection

__all__ = ["AsyncProducer", "Client", "Producer"]

_LOG = logging.getLogger(__name__)
_QUEUES = 4


class Client(Connection):
    """A connection for queries and administration: ``Client(data)`` connects at once."""

    def __init__(self, data: Path | str | None = None) -> None:
        found = Connection.open(data)
        super().__init__(found.data, found.node)
        self._doubted: set[tuple[str, Subscription]] = set()

    def create_topic(
        self,
        topic: str,
        queues: int | None = None,
        retention: RetentionPolicy = KEEP_ALL,
        *,
        internal: bool = False,
        queues_per_process: QueuesPerProcess = None,
        on_progress: Callable[[TopicProgress], None] | None = None,
    ) -> TopicConfig:
        """Create a topic, by default with 4 queues, or return the existing one.

        Returns when all its queues answer. After an error, or an interruption, the same call starts
        the missing queues; *on_progress* gets the progress.

        Raises:
            ConfigError: it exists, and has another number of queues.
        """
        wanted = _QUEUES if queues is None else check_queue_count(queues)
        existing = self.topics().get(check_topic(topic))
        if existing is not None and queues not in (None, existing.queues):
            raise ConfigError(
                f"topic {topic!r} exists and has {existing.queues} queues, not {queues}; leave "
                "queues= out to take it as it is, or give it more with "
                f"alter_topic({topic!r}, {queues})"
            )
        return super().create_topic(
            topic,
            wanted,
            retention,
            internal=internal,
            queues_per_process=queues_per_process,
            on_progress=on_progress,
        )

    def consumer(
        self,
        group: str,
        topic: str,
        subscription: Subscription,
        **options: Unpack[MemberOptions],
    ) -> Member:
        """Return a new member of *group*; see :class:`MemberOptions`.

        Logs a warning, once for each topic and filter, if the filter most likely rejects messages
        that are wanted.
        """
        member = super().consumer(group, topic, subscription, **options)
        if (topic, subscription) not in self._doubted:
            self._doubted.add((topic, subscription))
            _warn_of_doubts(self.data, group, topic, subscription)
        return member


class Producer(NodeProducer):
    """A producer for the node on *data*: ``with Producer() as producer: producer.send(…)``."""

    def __init__(self, data: Path | str | None = None, **options: Unpack[ProducerOptions]) -> None:
        """Connect; the options are those of :class:`ProducerOptions`."""
        batch_settings(options)  # checked before anything is opened
        connection = Connection.open(data)
        super().__init__(connection, **options)
        connection.keep(self)


class AsyncProducer(NodeAsyncProducer):
    """A producer for tasks: ``async with AsyncProducer() as producer: await producer.send(…)``."""

    def __init__(self, data: Path | str | None = None, **options: Unpack[ProducerOptions]) -> None:
        """Take the options of :class:`Producer`; it connects when it is opened."""
        batch_settings(options)
        super().__init__(partial(Producer, data, **options))


def _warn_of_doubts(data: Path, group: str, topic: str, subscription: Subscription) -> None:
    """Log doubts about a filter, as apps and commands do; unreadable files are no error here."""
    try:
        for line in doubts(data, [topic], subscription):
            _LOG.warning("group %s: %s", group, line)
    except (StreamError, OSError) as error:
        _LOG.debug("the filter of group %s was not compared with messages: %s", group, error)

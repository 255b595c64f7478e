"""The coordinator's service for topics, and its clients: these wait for new queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol, Unpack

from rocketray.base.ack_mode import AckMode, check_ack, durability_of
from rocketray.base.meant import refuse_unknown
from rocketray.base.names import check_queue_count, check_topic
from rocketray.base.quantity import counted
from rocketray.base.system_topics import WAITING_QUEUES
from rocketray.errors import ConfigError, TopicNotFoundError
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME, Endpoint, waits
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

from .catalog import TopicConfig
from .topic_options import TopicOptions
from .topic_start import (
    STEP_S,
    TOPICS_A_STEP,
    QueueStarter,
    Started,
    TopicProgress,
    parts_of,
)

_QUEUES = 4  # as RocketMQ creates a topic at its first message
OnProgress = Callable[[TopicProgress], None]


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
    def create_many(
        self, names: Sequence[str], queues: int, wait_s: float, **options: Unpack[TopicOptions]
    ) -> Started:
        """Save topics with *queues* queues each, and start these; leave existing topics alone.

        Return when they answer, or after *wait_s*. Nothing is saved if one cannot be created.
        """

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

    def set_ack(self, name: str, ack: AckMode | None) -> TopicConfig:
        """Set when a message counts as stored, unless its sender says; None leaves it to the node.

        The producers that have the topic learn it within half a minute.
        """

    def set_node_ack(self, ack: AckMode) -> None:
        """Set the ack mode of all topics that have none of their own, for later starts too."""

    @waits
    def delete(self, name: str) -> None:
        """Remove a topic and all its messages."""


TOPICS = Endpoint(COORDINATOR_NAME, TopicsApi)


class Topics:
    """The topics of one node."""

    def __init__(self, coordinator: TopicsApi) -> None:
        self._coordinator = coordinator

    if not TYPE_CHECKING:  # a type checker knows the names by itself

        def __getattr__(self, name: str) -> NoReturn:
            """Raise ``AttributeError``, which names the calls that look topics up."""
            raise AttributeError(
                f"the topics of a node have no {name!r}; look them up with all(), get(name) or "
                "exists(name)"
            )

    def all(self) -> dict[str, TopicConfig]:
        """Return all topics by name."""
        return self._coordinator.all()

    def exists(self, topic: str) -> bool:
        """Return whether there is a topic of that name."""
        try:
            self.get(topic)
        except TopicNotFoundError:
            return False
        return True

    def get(self, topic: str) -> TopicConfig:
        """Return a topic; raise :class:`TopicNotFoundError`."""
        return self._coordinator.get(topic)

    def create(
        self,
        topic: str,
        queues: int | None = None,
        *,
        on_progress: OnProgress | None = None,
        **options: Unpack[TopicOptions],
    ) -> TopicConfig:
        """Create a topic, by default with 4 queues, or return the existing one.

        The *options* are those of :class:`TopicOptions`. Returns when all its queues answer,
        whichever caller creates it; *on_progress* gets the progress. After an error, or an
        interruption, the same call starts the missing queues.

        Raises:
            ConfigError: it exists, and has another number of queues.
        """
        wanted = _QUEUES if queues is None else check_queue_count(queues)
        existing = self.all().get(check_topic(topic))
        if existing is not None and queues not in (None, existing.queues):
            raise ConfigError(
                f"topic {topic!r} exists and has {counted(existing.queues, 'queue')}, not "
                f"{queues}; leave queues= out to take it as it is, or give it more with "
                f"topics.alter({topic!r}, {queues})"
            )
        return self.ensure(topic, wanted, on_progress=on_progress, **options)

    def create_many(
        self,
        topics: Iterable[str],
        queues: int = _QUEUES,
        *,
        on_progress: OnProgress | None = None,
        **options: Unpack[TopicOptions],
    ) -> dict[str, TopicConfig]:
        """Create topics with as many *queues* each; return them, and existing ones as they are.

        It takes far less time than one call of :meth:`create` for each. The *options* are those of
        :class:`TopicOptions`. Returns when all their queues answer. After an error, or an
        interruption, the same call continues.
        """
        _check_options(options)
        check_queue_count(queues)
        names = [*dict.fromkeys(map(check_topic, topics))]
        parts = [names[at : at + TOPICS_A_STEP] for at in range(0, len(names), TOPICS_A_STEP)]

        def start(part: Sequence[str]) -> Started:
            return self._coordinator.create_many(part, queues, STEP_S, **options)

        what = f"{', '.join(names[:2])}, …" if len(names) > 2 else ", ".join(names)
        counted = [(part, queues * len(part)) for part in parts]
        closed = QueueStarter(what, counted, start, on_progress).run()
        if closed:
            raise next(iter(closed.values()))
        created = self._coordinator.all()
        return {name: created[name] for name in names}

    def ensure(
        self,
        topic: str,
        queues: int = 1,
        *,
        on_progress: OnProgress | None = None,
        **options: Unpack[TopicOptions],
    ) -> TopicConfig:
        """Create a topic unless it exists; an existing one keeps its queues and its retention.

        The missing queues of an existing one are started; see :meth:`create`. A topic of delayed
        messages that was created with fewer delay levels gets the other queues.
        """
        _check_options(options)
        existing = self.all().get(topic)
        if existing is not None:
            queues = max(existing.queues, WAITING_QUEUES.get(topic, 0))
        created = self._coordinator.create(topic, queues, **options)
        return self._start_queues(created, on_progress, is_new=existing is None)

    def alter(self, topic: str, queues: int, on_progress: OnProgress | None = None) -> TopicConfig:
        """Create a topic, or give it more queues; see :meth:`create`."""
        is_new = topic not in self.all()
        altered = self._coordinator.create(topic, queues)
        return self._start_queues(altered, on_progress, is_new=is_new)

    def set_retention(self, topic: str, retention: RetentionPolicy) -> TopicConfig:
        """Set how long, or up to how many bytes a queue, a topic's messages are kept."""
        _check(retention)
        return self._coordinator.set_retention(topic, retention)

    def set_permission(self, topic: str, perm: int) -> TopicConfig:
        """Allow writing (2), reading (4) or both (6)."""
        return self._coordinator.set_permission(topic, perm)

    def set_bitmaps(self, topic: str, mode: str) -> TopicConfig:
        """Keep filter bitmaps for SQL92 groups: ``on``, ``off``, or ``auto``, where that pays."""
        return self._coordinator.set_bitmaps(topic, mode)

    def set_ack(self, topic: str, ack: AckMode | None) -> TopicConfig:
        """Set when a message counts as stored, unless its sender says; None leaves it to the node.

        New producers follow at once, and those that have the topic within half a minute.
        """
        return self._coordinator.set_ack(topic, check_ack(ack))

    def set_node_ack(self, ack: AckMode) -> None:
        """Set the ack mode of all topics that have none of their own, for later starts too."""
        durability_of(ack)
        self._coordinator.set_node_ack(ack)

    def delete(self, topic: str) -> None:
        """Remove a topic and all its messages."""
        self._coordinator.delete(topic)

    def _start_queues(
        self, topic: TopicConfig, on_progress: OnProgress | None, *, is_new: bool
    ) -> TopicConfig:
        def start(queues: range) -> Started:
            return self._coordinator.start_queues(topic.name, topic.topic_id, queues, STEP_S)

        closed = QueueStarter(topic.name, parts_of(topic), start, on_progress).run()
        if is_new and closed:
            raise next(iter(closed.values()))
        return topic


def _check_options(options: TopicOptions) -> None:
    known = TopicOptions.__annotations__
    refuse_unknown("a topic has no option", options, known, f"it has {', '.join(known)}")
    _check(options.get("retention", KEEP_ALL))
    check_ack(options.get("ack"))


def _check(retention: RetentionPolicy) -> None:
    if not isinstance(retention, RetentionPolicy):
        raise ConfigError(
            f"retention is {retention!r:.60}; give a rocketray.store.retention.RetentionPolicy, "
            "such as RetentionPolicy(max_age_ms=72 * 3_600_000)"
        )

"""The app: Faust's, with agents that are consumer groups and topics that filters can see into.

An app is declared at import time and connects when it starts, or at its first send. It is never
pickled: where it runs elsewhere, that process imports it by path (see deploy.py). Everything
outside of the data path (timers, tasks, signals, models, codecs, sinks of agents) is Faust's own.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import socket
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import faust

from rocketray.actors.assignment import Strategy, check_strategy
from rocketray.actors.heartbeat import AppInstance
from rocketray.actors.signal_handlers import restore_signal_handlers
from rocketray.delay import Delay
from rocketray.errors import ConfigError
from rocketray.filters.sql92 import Dialect
from rocketray.filters.subscription import ErrorPolicy, Subscription
from rocketray.message import Message
from rocketray.names import check_queue_count

from .agent import Agent
from .connection import Connection
from .declarations import Declarations
from .failure import FailureOptions
from .faust.batch_transport import BatchTransport
from .faust.fetcher import FeedFetcher
from .faust.wire import group_name
from .feed import Feed
from .fields import MessageFields
from .flow import FlowLimits
from .group import GroupRegistry, Membership, make_start, make_subscription
from .isolation import check_isolation
from .leadership import LedApp
from .outbox import Outbox
from .replies import Replies
from .settings import check_settings, with_defaults
from .spark.sink_spec import SinkSpec, add_sink
from .topic import Topic

if TYPE_CHECKING:
    from rocketray.actors.member_options import StartFrom

__all__ = ["App"]


class App(LedApp):
    """A Faust app on rocketray.

    *data* is the node's data directory (see ``rocketray start``); *connection*, where it is given,
    is used instead of looking for a node. *flow* bounds what waits for handlers. All other options are Faust's settings.
    """

    def __init__(
        self,
        id: str,  # noqa: A002  # Faust's name for it
        *,
        data: Path | str | None = None,
        connection: Connection | None = None,
        flow: FlowLimits | None = None,
        **options: Any,
    ) -> None:
        self.data = data
        self.flow = flow or FlowLimits()
        self._connection = connection
        self._outbox: Outbox | None = None
        self.declarations = Declarations(self)
        self._groups = GroupRegistry()
        self.sinks: dict[str, SinkSpec] = {}
        self.is_coassigned = False
        """Every agent of an instance reads the same queue numbers; so it is with tables, too."""
        self.client_id = f"{socket.gethostname()}@{id}"
        """What its members are called in broadcast groups; each instance needs another one."""
        self._instance = uuid.uuid4().hex
        super().__init__(id, **with_defaults(options))

    # What users declare

    def topic(
        self,
        *topics: str,
        queues: int | None = None,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Sequence[str] = (),
        **options: Any,
    ) -> Topic:
        """Describe a topic; it is created with *queues* queues unless it exists.

        *tag*, *keys* and *properties* name fields of the values, for filters to see. The other
        options are Faust's: ``retention`` in seconds or as a timedelta is how long a topic that
        is created keeps its messages, all of them without it; ``compacting``, ``deleting``,
        ``replicas`` and ``config`` have no effect.
        """
        if queues is not None:
            options["partitions"] = check_queue_count(queues)
        known = inspect.signature(faust.App.topic).parameters
        _refuse_unknown("app.topic", options, known)
        options.pop("maxsize", None)
        fields = MessageFields(tag, tuple(_names(keys)), tuple(_names(properties)))
        return Topic(self, topics=topics, fields=fields, **options)

    def agent(
        self,
        channel: Any = None,
        *,
        tags: str | None = None,
        sql: str | None = None,
        where: str | Callable[..., Any] | None = None,
        on_filter_error: ErrorPolicy = "stop",
        dialect: Dialect = "rocketmq",
        group: str | None = None,
        strategy: Strategy = "averagely",
        start: StartFrom | datetime | None = None,
        broadcast: bool = False,
        name: str | None = None,
        concurrency: int = 1,
        max_attempts: int | None = None,
        dead_letter: str | Literal[False] | None = None,
        ordered: bool | None = None,
        suspend: float | None = None,
        sink: Iterable[Any] | None = None,
        supervisor_strategy: Any = None,
        isolated_partitions: bool = False,
        use_reply_headers: bool = True,
        key_type: Any = None,
        value_type: Any = None,
        schema: Any = None,
    ) -> Callable[[Callable[..., Any]], Agent]:
        """Make an agent of an async function, subscribed by at most one of *tags*, *sql*, *where*.

        *group* defaults to ``"{app.id}-{agent name}"``; agents of one group share its messages.
        *strategy* divides the queues among all members of the group. *start* is where the group
        begins: "earliest", "latest", or at what was stored at a time; the app's setting otherwise.
        With *broadcast* each instance gets all messages, and keeps its offsets under its client id.
        *on_filter_error* says what becomes of a message on which the predicate *where* fails:
        ``"stop"`` before it, ``"skip"`` it, or ``"deliver"`` it. *dialect* ``"rocketray"`` lets
        *sql* have names in double quotes, LIKE, and IN with numbers.
        *concurrency* handlers of this process work side by side, which gives up the queue's order
        unless the agent is ordered. With *isolated_partitions* each queue has a handler of its own,
        and the agent is ordered.

        A message on which the handler raises comes again, up to *max_attempts* (16) times and ever
        later, and then goes to the topic *dead_letter*, ``%DLQ%`` and the group's name by default;
        with ``dead_letter=False`` no message is given up. An *ordered* agent, as one of an app with
        tables is, tries it again before any other of its queue, every *suspend* (1) seconds and
        without a limit unless *max_attempts* gives one.
        """
        check_strategy(strategy)
        subscription = make_subscription(tags, sql, where, on_filter_error, dialect)
        begin = make_start(start)
        is_ordered = True if isolated_partitions and not broadcast else ordered
        failures = FailureOptions(max_attempts, dead_letter, is_ordered, suspend)

        def declare(function: Callable[..., Any]) -> Agent:
            agent_name = name or function.__name__
            if isolated_partitions:
                check_isolation(agent_name, channel, concurrency, ordered=ordered)
            if agent_name in self.agents:
                raise ConfigError(
                    f"app {self.conf.id!r} has an agent {agent_name!r} already; "
                    "give one of them another name="
                )
            membership = Membership(
                group or group_name(f"{self.conf.id}-{agent_name}"),
                subscription,
                concurrency,
                strategy,
                failures,
                begin,
                is_broadcast=broadcast,
            )
            make = super(App, self).agent(
                channel,
                name=agent_name,
                concurrency=concurrency,
                sink=sink,
                supervisor_strategy=supervisor_strategy,
                isolated_partitions=isolated_partitions,
                use_reply_headers=use_reply_headers,
                key_type=key_type,
                value_type=value_type,
                schema=schema,
                membership=membership,
            )
            self._join_group(channel, agent_name, membership)
            self.tables.check_agent(agent_name, strategy, channel)
            agent: Agent = make(function)
            return agent

        return declare

    def sink(
        self, topic: Topic | str, *, name: str | None = None, **options: Any
    ) -> Callable[[Callable[..., Any]], SinkSpec]:
        """Declare a Spark query over *topic*: of a function from a streaming DataFrame to a writer.

        *options* are those of :class:`~.spark.sink_spec.SinkSpec`: tags or sql, dialect, checkpoint,
        trigger, schema, max_rows, starting_offsets. Spark runs it (see spark/sink.py), not the app.
        """
        _refuse_unknown("app.sink", options, set(SinkSpec.__dataclass_fields__) - _SINK_OWN)
        topics = topic if isinstance(topic, str) else ",".join(topic.topics)

        def declare(function: Callable[..., Any]) -> SinkSpec:
            spec = SinkSpec(name or function.__name__, function, topics, **options)
            add_sink(self.sinks, spec)
            return spec

        return declare

    # What the data path needs

    @property
    def predicates(self) -> tuple[str, ...]:
        """The import paths of all predicates that agents name with ``where=``."""
        return self._groups.predicates()

    @property
    def together(self) -> AppInstance | None:
        """This instance, where its agents are to read the same queue numbers."""
        shared = self.is_coassigned or bool(self.tables)
        return AppInstance(self.conf.id, self._instance) if shared else None

    @cached_property
    def _reply_consumer(self) -> Replies:
        return Replies(self, loop=self.loop, beacon=self.beacon)

    @property
    def fetcher(self) -> FeedFetcher:
        """The owner of this app's feeds."""
        fetcher: FeedFetcher = self._fetcher
        return fetcher

    def feeds_of(self, membership: Membership | None) -> list[Feed]:
        """The feeds of one agent."""
        return self.fetcher.feeds_of(membership)

    def membership_without_agent(self, topic: str) -> Membership:
        """What a stream over *topic* reads as when no agent owns it: a group of its own."""
        return Membership(group_name(f"{self.conf.id}-{topic}"), Subscription.tags("*"))

    async def connect(self) -> Connection:
        """The connection to the node, opened on first use."""
        if self._connection is None:
            self._connection = await asyncio.to_thread(_open_connection, self.data)
            restore_signal_handlers()
        return self._connection

    async def declare_topic(
        self, topic: str, queues: int | None, retention: Any = None, **options: bool
    ) -> None:
        """See :meth:`~.declarations.Declarations.declare`."""
        await self.declarations.declare(topic, queues, retention, **options)

    def queue_count(self, topic: str) -> int | None:
        """See :meth:`~.declarations.Declarations.queue_count`."""
        return self.declarations.queue_count(topic)

    async def send_message(
        self,
        message: Message,
        queue_id: int | None,
        queues: int | None = None,
        retention: Any = None,
        delay: Delay | None = None,
    ) -> asyncio.Future[Any]:
        """Queue *message* for sending (see outbox.py), and for delivery after *delay*.

        Its topic is made with *queues* and *retention* if need be.
        """
        if self._outbox is None:
            connection = await self.connect()
            producer = await asyncio.to_thread(connection.producer)
            self._outbox = self._outbox or Outbox(producer)
        if not self.declarations.knows(message.topic):
            await self.declare_topic(message.topic, queues, retention)
        return await self._outbox.put(message, queue_id, delay)

    async def flush_sends(self, *, is_commit: bool = True) -> None:
        """Wait until all that was sent, and every change of a table, is stored.

        Raises what could not be; where no commit follows, only when nobody heard of it.
        """
        await self.tables.flush()
        if self._outbox is not None:
            await (self._outbox.flush() if is_commit else self._outbox.settle())

    # Running

    def main(self) -> None:
        """Run until SIGINT or SIGTERM; starts a node in *data* when none runs there.

        A node that is started here allows the predicates that the app's agents name.
        """
        with ExitStack() as stack:
            if self._connection is None:
                self._connection = stack.enter_context(_ensure_node(self.data, self.predicates))
            asyncio.run(self._run_until_signalled())

    async def run_until(self, asked: asyncio.Event) -> None:
        """Wait until *asked* is set or the app crashed, whichever is first."""
        waits = [asyncio.create_task(asked.wait()), asyncio.create_task(self.wait_until_stopped())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def on_started(self) -> None:
        """Begin timers and tasks when every agent is a member of its group."""
        await self.wait_for_stopped(self.fetcher.is_open)
        await super().on_started()

    async def on_stop(self) -> None:
        """Drain agents, store what was sent, and let Faust end the rest."""
        await super().on_stop()
        if self._outbox is not None:
            outbox, self._outbox = self._outbox, None
            await outbox.close()
        await self._reply_consumer.delete_topic()

    async def _run_until_signalled(self) -> None:
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, asked.set)
        await self.start()
        try:
            await self.run_until(asked)
        finally:
            await self.stop()
        if self.crash_reason is not None:
            raise self.crash_reason

    def _join_group(self, channel: Any, agent_name: str, membership: Membership) -> None:
        """Check the group's name and that its members subscribe alike."""
        if channel is None:
            channel = self.topic(f"{self.conf.id}-{agent_name}", has_prefix=True)
        elif isinstance(channel, str):
            channel = self.topic(channel)
        if not isinstance(channel, Topic):
            return  # an in-memory channel has no group
        membership.failures.check(channel.reads)
        self._groups.join(membership, channel.subscribes_to)

    def _new_transport(self) -> Any:
        return BatchTransport(self.conf.broker_consumer, self)

    _new_producer_transport = _new_transport

    def _configure(self, *, silent: bool = False) -> None:
        super()._configure(silent=silent)
        check_settings(self._conf)

    def _create_directories(self) -> None:
        if any(table.keeps_offsets for table in self.tables.values()):
            super()._create_directories()


_SINK_OWN = {"name", "function", "topic"}


def _open_connection(data: Path | str | None) -> Connection:
    from rocketray.actors.client import Connection as NodeConnection  # noqa: PLC0415  # imports ray

    connection: Connection = NodeConnection.open(data)
    return connection


def _ensure_node(
    data: Path | str | None, predicates: tuple[str, ...]
) -> AbstractContextManager[Connection]:
    from rocketray.actors.client import default_data_directory  # noqa: PLC0415  # imports ray
    from rocketray.actors.node import NodeOptions, ensure_node  # noqa: PLC0415  # the same

    return ensure_node(data or default_data_directory(), NodeOptions(own_predicates=predicates))


def _names(fields: Sequence[str] | str) -> Sequence[str]:
    return (fields,) if isinstance(fields, str) else fields


def _refuse_unknown(what: str, options: dict[str, Any], known: Iterable[str]) -> None:
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigError(f"{what} has no option {unknown[0]!r}; it has {', '.join(sorted(known))}")

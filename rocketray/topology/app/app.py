"""The app: Faust's, with agents that are consumer groups and topics with fields for filters.

An app is declared at import time and connects when it starts, or at its first send. It is never
pickled: a process elsewhere imports it by path (hosting/host.py). Everything outside of the data
path (timers, tasks, signals, models, codecs, sinks of agents) is Faust's own.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Never, NoReturn, TypeVar, Unpack, overload

import faust
from faust.types.channels import ChannelT

from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.base.ack_mode import AckMode
from rocketray.base.cluster import Cluster, chosen_node
from rocketray.base.delay import Delay
from rocketray.base.names import check_queue_count
from rocketray.errors import ConfigError, StreamError
from rocketray.filters.filter_choice import FilterChoice
from rocketray.filters.filter_name import FilterName
from rocketray.filters.sql92 import Dialect
from rocketray.filters.subscription import EVERYTHING, ErrorPolicy
from rocketray.groups.assignment import Strategy, check_strategy
from rocketray.groups.heartbeat import AppInstance
from rocketray.groups.member_options import FetchCompression, check_compression
from rocketray.message import Message
from rocketray.messaging.producers.producer_options import check_tracing
from rocketray.runtime.one_process import unique_here
from rocketray.runtime.waiting_log import logged_wait
from rocketray.topology.connection import AppNode, OneConnection
from rocketray.topology.delivery.flow import FlowLimits
from rocketray.topology.delivery.isolation import check_isolation
from rocketray.topology.delivery.outbox import Outboxes
from rocketray.topology.faust.batch_transport import BatchTransport
from rocketray.topology.faust.fetcher import FeedFetcher
from rocketray.topology.values.declarations import Declarations
from rocketray.topology.values.failure_rules import DecodeErrorPolicy, FailureOptions
from rocketray.topology.values.fields import MessageFields
from rocketray.topology.values.group import DeclaredGroups, GroupMembership, make_start
from rocketray.topology.values.topic import StoredMetadata, Topic, Value
from rocketray.topology.values.wire import group_name

from .agent import Agent
from .app_log import AppLog, show_log, show_warnings
from .app_spans import send_traced
from .declared import (
    check_agent_options,
    check_app,
    check_crontab,
    check_handler,
    check_interval,
)
from .leadership import Leadership
from .loop_watch import LoopWatch, watch_loop
from .option_types import DeclaredTopicOptions, Handler, MakeTable, SinkOptions
from .replies import Replies
from .running import run_until_signalled
from .running_loop import use_running_loop
from .sensing import sense_sends
from .settings import arguments_of, check_settings, refuse_unknown_options, with_defaults
from .sink_spec import SinkSpec, add_sink
from .spark_need import sink_service
from .spark_options import SparkOptions
from .start_report import report_places, report_start, warn_of_doubts

if TYPE_CHECKING:
    from rocketray.groups.member_options import StartFrom
    from rocketray.tracing import Tracing

_Function = TypeVar("_Function", bound=Callable[..., Any])


class App(faust.App):  # type: ignore[misc]  # Faust's types are not followed
    """A Faust app on rocketray.

    *data* is the node's data directory, by default that of ROCKETRAY_DATA, else ./rocketray-data.
    *connection*, if given, is used instead of finding a node. *flow* bounds the messages that wait
    for handlers. *fetch_compression* is for messages that come from another machine: "lz4", "zstd"
    or None. *spark* is the size of the session that its sinks share. With *tracing*, sends and
    handlers have spans. All other options are Faust's settings.
    """

    def __init__(
        self,
        id: str,  # noqa: A002  # Faust's name for it
        *,
        data: Path | str | None = None,
        cluster: str | None = None,
        connection: AppNode | None = None,
        flow: FlowLimits | None = None,
        fetch_compression: FetchCompression | None = None,
        spark: SparkOptions | None = None,
        tracing: Tracing | None = None,
        **options: Any,
    ) -> None:
        check_app(id, connection)
        self.place = None if data is None and cluster is None else chosen_node(data, cluster)
        """The node's data directory, or its cluster, if one is given."""
        self.flow = flow or FlowLimits()
        self.fetch_compression = check_compression(fetch_compression)
        """How messages that come from another machine are compressed."""
        self.tracing = check_tracing(tracing)
        """The spans of its sends and handlers, if it has them."""
        self._connection = OneConnection(connection)
        self._outboxes = Outboxes(self.connect, partial(sense_sends, self))
        self.outbox_of_changes = partial(self._outboxes.get, "disk")
        """Return the outbox of the tables' changes, which are stored when they are on disk."""
        self.declarations = Declarations(self)
        self._groups = DeclaredGroups()
        self.sinks: dict[str, SinkSpec] = {}
        self.spark = spark or SparkOptions()
        self.client_id = f"{socket.gethostname()}@{id}"
        """The name of its members in broadcast groups; each instance needs its own."""
        self._instance = unique_here()  # a fork is another instance
        self.loop_watch: LoopWatch | None = None  # from the start on
        super().__init__(id, **with_defaults(options))
        show_warnings()

    # What users declare

    Table: MakeTable
    GlobalTable: MakeTable
    SetTable: MakeTable
    SetGlobalTable: MakeTable

    def topic(
        self,
        *topics: str,
        queues: int | None = None,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Sequence[str] = (),
        ack: AckMode | None = None,
        value_type: type[Value] | None = None,
        **options: Unpack[DeclaredTopicOptions],
    ) -> Topic[Value]:
        """Describe a topic; it is created with *queues* queues unless it exists.

        *ack* says when its messages count as stored, also those of other senders (the modes are in
        ``rocketray/base/ack_mode.py``); by default what the node says. A topic that exists keeps
        what it has, and a warning names the difference.

        *value_type* is the class of the values: str, bytes, a number's, or one of ``rr.Record``.
        *tag*, *keys* and *properties* name fields of the values, for filters to read. The other
        options are Faust's: ``retention``, in seconds or as a timedelta, is how long a topic
        created here keeps its messages; without it, for ever. ``compacting``, ``deleting``,
        ``replicas`` and ``config`` have no effect.
        """
        if queues is not None:
            options["partitions"] = check_queue_count(queues)
        refuse_unknown_options(
            "app.topic", options, [*arguments_of(App.topic), *DeclaredTopicOptions.__annotations__]
        )
        options.pop("maxsize", None)
        fields = MessageFields(tag, tuple(_names(keys)), tuple(_names(properties)))
        topic = Topic(self, topics=topics, fields=fields, value_type=value_type, **options)
        for name in topics:
            self.declarations.create_with_ack(name, ack)
        if not (options.get("internal") or options.get("has_prefix")):
            self.declarations.will_create(topic)
        return topic

    def agent(
        self,
        channel: Topic[Value] | ChannelT[Value] | str | None = None,
        *,
        tags: str | None = None,
        sql: str | None = None,
        where: str | Callable[..., Any] | None = None,
        filter: str | None = None,  # noqa: A002  # as the commands and Spark name it
        on_filter_error: ErrorPolicy = "stop",
        dialect: Dialect | None = None,
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
        on_decode_error: DecodeErrorPolicy | None = None,
        sink: Iterable[Any] | None = None,
        supervisor_strategy: Any = None,
        isolated_partitions: bool = False,
        use_reply_headers: bool = True,
        key_type: Any = None,
        value_type: Any = None,
        schema: Any = None,
        **unknown: Never,
    ) -> Callable[[Handler[Value]], Agent]:
        """Make an agent of an async function, with one of *tags*, *sql*, *where* and *filter*.

        - *filter* is the name of a filter of the topic, as ``"large"`` or ``"large@2"``. Without a
          version, the agent gets that of its group while the group has members, else the latest.
        - *group* defaults to ``"{app.id}-{agent name}"``; agents of one group share its messages.
          *strategy* divides the queues among all members of the group.
        - *start* is the group's start offset: "earliest", "latest", or a time of storing; by
          default the app's setting.
        - With *broadcast* each instance receives every message, and keeps its offsets under its
          client id.
        - *on_filter_error* applies to a message on which the predicate *where* fails: ``"stop"``
          before it, ``"skip"`` it, or ``"deliver"`` it.
        - *dialect* is the SQL dialect of *sql*: ``"rocketray"``, the default, compares numbers in
          any form; ``"rocketmq"`` is exact to the error.
        - *concurrency* handlers of this process work in parallel, which loses the queue's order
          unless the agent is ordered. With *isolated_partitions* each queue has a handler of its
          own, and the agent is ordered.
        - A failed message is redelivered with growing delay, up to *max_attempts* (16) times, then
          moved to the topic *dead_letter*, by default ``%DLQ%`` and the group's name. With
          ``dead_letter=False`` no message is dead-lettered.
        - An *ordered* agent, as every agent of an app with tables, retries a failed message before
          any other of its queue, every *suspend* (1) seconds, without a limit unless *max_attempts*
          gives one.
        - A message that cannot be decoded has *max_attempts* (16) in either case. An ordered agent
          holds its queue meanwhile, with pauses that double up to 30 seconds. Then
          *on_decode_error* ``"dead_letter"``, the default, moves it to the dead letters. With
          ``"stop"`` any agent, ordered or not, holds the queue at it until it can be decoded.
        """
        refuse_unknown_options("app.agent", unknown, arguments_of(App.agent))
        check_agent_options(channel, concurrency)
        check_strategy(strategy)
        subscription = FilterChoice(tags, sql, where, filter, dialect, on_filter_error).filter()
        begin = make_start(start)
        is_ordered = True if isolated_partitions and not broadcast else ordered
        failures = FailureOptions(max_attempts, dead_letter, is_ordered, suspend, on_decode_error)

        def declare(function: Handler[Value]) -> Agent:
            check_handler(function)
            agent_name = name or function.__name__
            if isolated_partitions:
                check_isolation(agent_name, channel, concurrency, ordered=ordered)
            if agent_name in self.agents:
                raise ConfigError(
                    f"app {self.conf.id!r} has an agent {agent_name!r} already; "
                    "give one of them another name="
                )
            membership = GroupMembership(
                group_name(f"{self.conf.id}-{agent_name}") if group is None else group,
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
        self, topic: Topic | str, *, name: str | None = None, **options: Unpack[SinkOptions]
    ) -> Callable[[Callable[..., Any]], SinkSpec]:
        """Declare a Spark query over *topic*: a function from a streaming DataFrame to a writer.

        *options* are those of ``SinkSpec``: tags, sql or filter, dialect, checkpoint, trigger,
        schema, max_rows, starting_offsets. It runs beside the agents, on Spark (see spark/sink.py).
        """
        refuse_unknown_options("app.sink", options, SinkOptions.__annotations__)
        topics = topic if isinstance(topic, str) else ",".join(topic.topics)

        def declare(function: Callable[..., Any]) -> SinkSpec:
            owner = group_name(self.conf.id)  # a name that can be a directory's
            spec = SinkSpec(name or function.__name__, function, topics, owner=owner, **options)
            add_sink(self.sinks, spec)
            return spec

        return declare

    def timer(
        self,
        interval: float | timedelta,
        on_leader: bool = False,  # noqa: FBT001, FBT002  # Faust's interface
        *more: Any,
        **options: Any,
    ) -> Callable[[_Function], _Function]:
        """Declare Faust's timer; on the leader alone if *on_leader*."""
        check_interval(interval)
        self.leadership.is_wanted |= on_leader
        return super().timer(interval, on_leader, *more, **options)  # type: ignore[no-any-return]

    def crontab(
        self, cron_format: str, *, on_leader: bool = False, **options: Any
    ) -> Callable[[_Function], _Function]:
        """Declare Faust's crontab; on the leader alone if *on_leader*."""
        check_crontab(cron_format)
        self.leadership.is_wanted |= on_leader
        return super().crontab(cron_format, on_leader=on_leader, **options)  # type: ignore[no-any-return]

    @overload
    def task(self, fun: _Function) -> _Function: ...

    @overload
    def task(
        self, fun: None = None, *, on_leader: bool = False, **options: Any
    ) -> Callable[[_Function], _Function]: ...

    def task(self, fun: Any = None, *, on_leader: bool = False, **options: Any) -> Any:
        """Declare Faust's task; if *on_leader*, on the instance that leads when the app begins."""
        self.leadership.is_wanted |= on_leader
        return super().task(fun, on_leader=on_leader, **options)

    def LiveCheck(self, **_: Any) -> NoReturn:  # noqa: N802  # Faust's name
        """Raise ``ConfigError``."""
        raise ConfigError(
            "LiveCheck is not supported: it needs a second Faust cluster; test agents with "
            "rocketray.testing, and watch a running app with rocketray groups lag"
        )

    # What the data path needs

    @property
    def predicates(self) -> tuple[str, ...]:
        """The import paths of all predicates that agents name with ``where=``."""
        return self._groups.predicates()

    @property
    def together(self) -> AppInstance | None:
        """The key of this instance, whose agents have to read the same queues if it has tables."""
        return AppInstance(self.conf.id, self._instance()) if self.tables else None

    @cached_property
    def leadership(self) -> Leadership:
        """The membership of this instance in the leader's group."""
        return Leadership(self)

    def is_leader(self) -> bool:
        """Return whether this instance leads; none does unless a part is ``on_leader``."""
        return self.leadership.is_leader

    @cached_property
    def _reply_consumer(self) -> Replies:
        return Replies(self, loop=self.loop, beacon=self.beacon)

    @property
    def fetcher(self) -> FeedFetcher:
        """The owner of this app's feeds."""
        fetcher: FeedFetcher = self._fetcher
        return fetcher

    def membership_without_agent(self, topic: str) -> GroupMembership:
        """Return the membership of a stream over *topic* without an agent: a group of its own."""
        return GroupMembership(group_name(f"{self.conf.id}-{topic}"), EVERYTHING)

    async def connect(self) -> AppNode:
        """Return the connection to the node, opened on first use."""
        return await self._connection.to(self._place)

    def _place(self) -> Path | Cluster:
        return self.place or chosen_node()

    async def send_message(
        self,
        message: Message,
        queue_id: int | None,
        queues: int | None = None,
        retention: Any = None,
        delay: Delay | None = None,
        *,
        is_told: bool = False,
    ) -> asyncio.Future[StoredMetadata]:
        """Queue *message* for sending (see outbox.py), and for delivery after *delay*.

        Its topic is created with *queues* and *retention* if necessary. The future is done when the
        message is stored as its topic says. Of one that *is_told* Faust tells the sensors.
        """
        outbox = self._outboxes.opened(None) or await self._outboxes.get(None)
        if not self.declarations.knows(message.topic):
            await self.declarations.declare(message.topic, queues, retention)
        if (tracing := self.tracing) is None:
            return await outbox.put(message, queue_id, delay, is_told=is_told)
        put = partial(outbox.put, queue_id=queue_id, delay=delay, is_told=is_told)
        return await send_traced(tracing, message, put)

    async def flush_sends(self, *, is_commit: bool = True) -> bool:
        """Wait until what was sent is stored, and changes of tables; False if those have to wait.

        Raises what could not be stored; where no commit follows, only if it was not reported yet.
        """
        has_all: bool = await self.tables.flush()
        await (self._outboxes.flush() if is_commit else self._outboxes.settle_sends())
        return has_all

    # Running

    def main(self) -> None:
        """Run agents and sinks until SIGINT or SIGTERM; start a node in *data* if none runs there.

        A node started here allows the predicates that the app's agents name. The log goes to
        stderr, unless the program configured logging. Ctrl-C while the node starts exits with 130,
        a sink that fails for good, or does not stop, with 1 and the reason, when the agents are
        drained.

        Raises:
            ConfigError: it has sinks, and there is no Spark, or no Java for it; nothing started.
        """
        show_log()
        sinks = sink_service(self)
        log = AppLog()
        try:
            with log.following(), ExitStack() as stack:
                if self._connection.node is None:
                    from rocketray.actors.cluster import ensured_node  # noqa: PLC0415  # slow

                    options = NodeOptions(own_predicates=self.predicates)
                    ensured = ensured_node.ensure_node(self._place(), options)
                    with logged_wait(f"app {self.conf.id} waits for its node"):
                        self._connection.node = stack.enter_context(ensured)
                    report_places(self, log, self._connection.node)
                asyncio.run(run_until_signalled(self, sinks))
        except KeyboardInterrupt:  # before it ran: from then on the signal stops it in order
            raise SystemExit(128 + signal.SIGINT) from None  # as a shell reports it
        if sinks is not None and sinks.error is not None:
            if not isinstance(sinks.error, StreamError):
                raise sinks.error
            raise SystemExit(f"app {self.conf.id}: {sinks.error}")  # a traceback would add nothing

    async def start(self) -> None:
        """Start it on the running loop, whatever was read of it before."""
        use_running_loop(self)
        self.loop_watch = watch_loop(self)
        await super().start()

    async def on_started(self) -> None:
        """Start timers and tasks once every agent is a member of its group."""
        await self.declarations.create_named()
        await self.wait_for_stopped(self.fetcher.is_open)
        report_start(self)
        self.add_future(warn_of_doubts(self))
        await self.leadership.start()  # before any part asks who leads
        await super().on_started()

    async def on_stop(self) -> None:
        """Drain agents, store what was sent, and let Faust stop the rest."""
        await super().on_stop()
        await self.leadership.stop()
        await self._outboxes.close()
        await self._reply_consumer.delete_topic()
        if self.loop_watch is not None:
            self.loop_watch.stop()

    def _join_group(self, channel: Any, agent_name: str, membership: GroupMembership) -> None:
        """Check the group's name and that its members subscribe alike."""
        if channel is None:
            channel = self.topic(f"{self.conf.id}-{agent_name}", has_prefix=True)
        elif isinstance(channel, str):
            channel = self.topic(channel)
        if not isinstance(channel, Topic):
            return  # an in-memory channel has no group
        membership.failures.check(channel.reads)
        if isinstance(membership.subscription, FilterName) and len(channel.topics) != 1:
            raise ConfigError(
                f"agent {agent_name!r} has filter={str(membership.subscription)!r}, which is of one "
                "topic: give it a channel of one topic, by its name"
            )
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


def _names(fields: Sequence[str] | str) -> Sequence[str]:
    return (fields,) if isinstance(fields, str) else fields

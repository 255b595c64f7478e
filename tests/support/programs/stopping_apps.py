"""Programs whose apps have one of Faust's features each, declared as at the top of a module.

A program is declared while no event loop runs, as users' modules are: what a service takes of the
loop then would be of one that never runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import faust
from faust.serializers.codecs import Codec
from mode.supervisors import OneForOneSupervisor
from support.harness.patience import until
from support.nodes.register_servers import free_port

import rocketray as rr
from rocketray.testing import Broker


class Program:
    """An app with topic In, which one of :data:`PROGRAMS` declares the rest of."""

    def __init__(self, broker: Broker, directory: Path, **options: Any) -> None:
        self.broker = broker
        self.app = rr.App("app", connection=broker, datadir=str(directory), **options)
        self.topic = self.app.topic("In", key_type=str, value_type=str, queues=1)
        self.seen: list[Any] = []
        self.use: Callable[[], Awaitable[Any]] = self.send
        self.kept: Callable[[], Any] = lambda: None
        """What has to be there again after the next start."""

    async def send(self) -> None:
        """Send a message and wait until it is handled."""
        await self.topic.send(key="k", value="1")
        await self.broker.settle()

    def read(self, each: Callable[[Any], Any] = lambda _: None, **options: Any) -> Any:
        """Declare an agent that calls *each* with every value."""

        async def reader(stream: Any) -> None:
            async for value in stream:
                each(value)
                self.seen.append(value)

        return self.app.agent(self.topic, **options)(reader)

    def iterate(self, iterator: Callable[[Any], Any], **options: Any) -> None:
        """Declare an agent that iterates what *iterator* makes of its stream."""

        async def reader(stream: Any) -> None:
            async for value in iterator(stream):
                self.seen.append(value)  # one by one, as users write it

        self.app.agent(self.topic, **options)(reader)

    def keep(self, table: Any, change: Callable[[Any], Any], content: Callable[[], Any]) -> None:
        """Declare an agent that changes *table*, whose *content* has to be kept."""
        self.read(lambda _: change(table))
        self.kept = content


def _iterating(iterator: Callable[[Any], Any], **options: Any) -> Callable[[Program], None]:
    return lambda program: program.iterate(iterator, **options)


def _reading(**options: Any) -> Callable[[Program], Any]:
    return lambda program: program.read(**options)


def _count(table: Any) -> None:
    table["k"] += 1


def _table(**options: Any) -> Callable[[Program], None]:
    def declare(program: Program) -> None:
        table = program.app.Table("counts", default=int, **options)
        program.keep(table, _count, lambda: dict(table.items()))

    return declare


def _global_table(program: Program) -> None:
    table = program.app.GlobalTable("counts", default=int)
    program.keep(table, _count, lambda: dict(table.items()))


def _sets(kind: str) -> Callable[[Program], None]:
    def declare(program: Program) -> None:
        table = getattr(program.app, kind)("sets")
        program.keep(
            table,
            lambda sets: sets["k"].add("member"),
            lambda: {key: set(members) for key, members in table.data.data.items()},
        )

    return declare


def _managed_sets(program: Program) -> None:
    table = program.app.SetTable("sets", start_manager=True, partitions=4)

    async def use() -> None:
        await table.manager.add("k", "member")
        await program.broker.settle()

    program.use = use
    program.kept = lambda: {key: set(members) for key, members in table.data.data.items()}


def _windows(make: Callable[[Any], Any], kind: str = "Table") -> Callable[[Program], None]:
    def declare(program: Program) -> None:
        is_set = kind == "SetTable"
        table = getattr(program.app, kind)("w", **({} if is_set else {"default": int}))
        window = make(table)
        change = (lambda sets: sets["k"].add("m")) if is_set else _count
        program.keep(window, change, lambda: sorted(table.keys()))

    return declare


def _looks_of_windows(program: Program) -> None:
    counts = program.app.Table("w", default=int).tumbling(60.0)

    def look(table: Any) -> None:
        _count(table)
        one = table["k"]
        program.seen += [one.now(), one.current(), one.value(), one.delta(60.0)]

    program.keep(counts, look, lambda: sorted(counts.table.keys()))


def _callbacks_of_tables(program: Program) -> None:
    async def closed(key: Any, value: Any) -> None:
        program.seen.append((key, value))

    table = program.app.Table("w", default=int, on_window_close=closed)

    @table.on_recover  # type: ignore[untyped-decorator]  # Faust's
    async def recovered() -> None:
        program.seen.append("recovered")

    program.keep(table.tumbling(10.0, expires=60.0), _count, lambda: sorted(table.keys()))


def _group_by(program: Program) -> None:
    program.iterate(lambda stream: stream.group_by(lambda value: value, name="by"))


def _echo(program: Program) -> None:
    program.iterate(lambda stream: stream.echo("Echoed"))


def _processor(program: Program) -> None:
    def iterator(stream: Any) -> Any:
        stream.add_processor(str.upper)
        return stream

    program.iterate(iterator)


def _acks(program: Program) -> None:
    @program.app.agent(program.topic)
    async def reader(stream: Any) -> None:
        async for event in stream.noack().events():
            event.ack()

    @program.app.agent(program.topic)
    async def entering(stream: Any) -> None:
        async for event in stream.events():
            async with event:
                program.seen.append(event.value)


def _never_acknowledged(program: Program) -> None:
    program.iterate(lambda stream: stream.noack_take(2, within=0.05))

    async def use() -> None:
        await program.topic.send(key="k", value="1")
        await until(lambda: program.seen)

    program.use = use


def _replies(program: Program) -> None:
    @program.app.agent(program.app.topic("Numbers", value_type=int, queues=1))
    async def double(stream: Any) -> Any:
        async for value in stream:
            yield value * 2

    async def use() -> None:
        assert await double.ask(2) == 4
        assert await double.join([1, 2]) == [2, 4]
        assert {each async for each in double.map([1, 2])} == {2, 4}
        assert await double.kvjoin([("a", 1)]) == [2]
        assert [each async for each in double.kvmap([("a", 1)])] == [2]
        await double.cast(1)
        await double.send(value=1)
        await double.ask_nowait(1, reply_to=double)

    program.use = use


def _pattern(program: Program) -> None:
    program.app.agent(program.app.topic(pattern="I.", value_type=str))(_silent)


async def _silent(stream: Any) -> None:
    async for _ in stream:
        pass


def _several(program: Program) -> None:
    program.app.agent(program.app.topic("In", "Other", value_type=str, queues=1))(_silent)


def _channel(program: Program) -> None:
    channel = program.app.channel(value_type=str)
    program.app.agent(channel)(_silent)

    async def use() -> None:
        await channel.send(value="1")

    program.use = use


def _sinks(program: Program) -> None:
    app = program.app

    async def coroutine(value: Any) -> None:
        program.seen.append(value)

    other = app.agent(app.topic("Other", value_type=str, queues=1), name="other")(_silent)
    results = app.topic("Results", value_type=str, queues=1)

    @app.agent(program.topic, sink=[program.seen.append, coroutine, results, other])
    async def reader(stream: Any) -> Any:
        async for value in stream:
            yield value


def _sends(program: Program) -> None:
    results = program.app.topic("Results", value_type=str, queues=1)

    @program.app.on_produce_message.connect  # type: ignore[untyped-decorator]  # Faust's
    def sign(*_: Any, headers: list[Any], **__: Any) -> None:
        headers.append(("signed", b"yes"))

    @program.app.agent(program.topic)
    async def reader(stream: Any) -> None:
        async for event in stream.events():
            await results.send(value=event.value)
            results.send_soon(value=event.value)
            await program.app.send(results, value=event.value)
            await event.forward(results)
            await event.send("Results")


class _Order(faust.Record, coerce=True, validation=True):  # type: ignore[misc, call-arg]  # Faust's
    amount: int


class _Reversed(Codec):  # type: ignore[misc]  # the same
    def _dumps(self, value: bytes) -> bytes:
        return value[::-1]

    _loads = _dumps


def _values(program: Program) -> None:
    faust.serializers.codecs.register("backwards", _Reversed())
    schema = faust.Schema(value_type=_Order, value_serializer="json|backwards|binary")
    orders = program.app.topic("Orders", schema=schema, queues=1)
    program.app.agent(orders)(_silent)

    async def use() -> None:
        await orders.send(value=_Order(amount=2))
        await program.broker.settle()

    program.use = use


def _background(program: Program) -> None:
    app = program.app
    program.read()

    @app.timer(0.01)
    async def tick() -> None: ...

    @app.timer(0.01, on_leader=True)
    async def lead() -> None:
        program.seen.append(app.is_leader())

    @app.crontab("* * * * *", timezone=None)
    async def minute() -> None: ...

    @app.task
    async def for_ever() -> None:
        await app.wait_until_stopped()

    @app.service
    class Own(faust.Service):  # type: ignore[misc]  # Faust's types are not followed
        @faust.Service.task  # type: ignore[untyped-decorator]  # the same
        async def watch(self) -> None:
            await self.wait_until_stopped()

    @app.on_before_shutdown.connect  # type: ignore[untyped-decorator]  # the same
    def note(*_: Any, **__: Any) -> None:
        program.seen.append("shutdown")

    @app.command()  # type: ignore[untyped-decorator]  # the same
    async def greet(self: Any) -> None: ...


def _streams_of_tasks(program: Program) -> None:
    """Read by tasks: a stream that is made while no loop runs, and one that the task makes."""
    made = program.topic.stream().filter(bool)
    other = program.app.topic("Other", value_type=str, queues=1)

    async def read(stream: Any) -> None:
        async for value in stream:
            program.seen.append(value)

    @program.app.task
    async def first() -> None:
        await read(made)

    @program.app.task
    async def second() -> None:
        await read(other.stream())

    async def use() -> None:
        await program.topic.send(key="k", value="1")
        await other.send(value="2")
        await until(lambda: len(program.seen) == 2)

    program.use = use


def _web(program: Program) -> None:
    app = program.app
    app.conf.web_enabled, app.conf.web_port, app.conf.web_bind = True, free_port(), "127.0.0.1"
    counts = app.Table("counts", default=int)
    program.keep(counts, _count, lambda: dict(counts.items()))

    @app.page("/count/{word}/")  # type: ignore[untyped-decorator]  # Faust's
    @app.table_route(table=counts, match_info="word")  # type: ignore[untyped-decorator]  # the same
    async def look_up(web: Any, request: Any, word: str) -> Any:  # Faust's names
        return web.json(counts[word])

    @app.page("/seen/{word}/")  # type: ignore[untyped-decorator]  # the same
    @app.topic_route(topic=program.topic, match_info="word")  # type: ignore[untyped-decorator]
    async def last(web: Any, request: Any, word: str) -> Any:  # the same
        return web.json(word)


def _touched(program: Program) -> None:
    """Read, while no loop runs, all that makes a service of the app's."""
    app = program.app
    table, sets = app.Table("counts", default=int), app.SetTable("sets")
    for each in (app.monitor, app.sensors, app.producer, app.consumer, app.topics, app.tables):
        assert each is not None
    for each in (app.loop, app.flow_control, app.web, app.cache, app.router, app.assignor):
        assert each is not None
    assert len(table) == len(sets.data.data) == 0
    program.keep(table, _count, lambda: dict(table.items()))


_relative: Callable[[Any], Any] = lambda table: table.tumbling(60.0).relative_to_stream()  # noqa: E731

PROGRAMS: dict[str, tuple[Callable[[Program], Any], str]] = {
    "agent": (
        _reading(name="named", supervisor_strategy=OneForOneSupervisor),
        "@app.agent(|async for value|supervisors|app.topic()|names with dots",
    ),
    "events": (_iterating(lambda stream: stream.events()), "stream.events()"),
    "items": (_iterating(lambda stream: stream.items()), "stream.items()"),
    "enumerate": (_iterating(lambda stream: stream.enumerate()), "stream.enumerate()"),
    "filter": (_iterating(lambda stream: stream.filter(bool)), "stream.filter()"),
    "take": (_iterating(lambda stream: stream.take(2, within=0.05)), "stream.take()"),
    "take_events": (
        _iterating(lambda stream: stream.take_events(2, within=0.05)),
        "stream.take_events()",
    ),
    "take_with_timestamp": (
        _iterating(lambda s: s.take_with_timestamp(2, within=0.05, timestamp_field_name="at")),
        "stream.take_with_timestamp()",
    ),
    "acks": (_acks, "stream.noack()|async with event:"),
    "noack_take": (_never_acknowledged, "stream.noack_take()"),
    "group_by": (_group_by, "stream.group_by()"),
    "through": (_iterating(lambda stream: stream.through("Through")), "stream.through()"),
    "echo": (_echo, "stream.echo()"),
    "processor": (_processor, "stream.add_processor()"),
    "concurrency": (_reading(concurrency=3), "concurrency="),
    "isolated": (_reading(isolated_partitions=True), "isolated_partitions="),
    "several": (_several, "several names|derive_topic()"),
    "pattern": (_pattern, "pattern="),
    "channel": (_channel, "app.channel()"),
    "sinks": (_sinks, "sinks:"),
    "sends": (_sends, "topic.send()|event.forward()|@app.on_produce_message"),
    "values": (_values, "faust.Record|codecs|faust.Schema"),
    "replies": (_replies, "ask()|map()|cast()|reply_to=|reply topics"),
    "table": (_table(), "app.Table()"),
    "rocksdb": (_table(store="rocksdb://"), 'store="rocksdb'),
    "set table": (_sets("SetTable"), "app.SetTable()"),
    "managed set table": (_managed_sets, "SetTable(start_manager=True)"),
    "global table": (_global_table, "app.GlobalTable()"),
    "global set table": (_sets("SetGlobalTable"), "app.GlobalTable()"),
    "tumbling": (_windows(lambda table: table.tumbling(60.0)), ".tumbling()"),
    "hopping": (_windows(lambda table: table.hopping(60.0, 30.0)), ".hopping()"),
    "tumbling sets": (_windows(lambda table: table.tumbling(60.0), "SetTable"), ".tumbling()"),
    "sliding": (
        _windows(lambda table: table.using_window(faust.SlidingWindow(10.0, 5.0, 0.0))),
        "SlidingWindow",
    ),
    "relative": (_windows(_relative), "relative_to_now"),
    "looks of windows": (_looks_of_windows, "now()"),
    "key index": (_windows(lambda table: table.tumbling(60.0, key_index=True)), "key_index="),
    "callbacks of tables": (_callbacks_of_tables, "expires=|on_recover"),
    "background": (
        _background,
        "@app.timer|@app.crontab|crontab(timezone=)|on_leader=|signals|@app.command",
    ),
    "streams of tasks": (_streams_of_tasks, "@app.timer"),
    "web": (_web, "@app.page|@app.table_route|app.web_server"),
    "touched": (_touched, "sensors"),
}
"""By name: what declares the program, and how the rows of docs/reference/faust.md begin whose
features it has, with | between them."""

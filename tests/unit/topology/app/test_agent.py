from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience, until
from support.nodes.apps import collecting, committed, make_app, numbers, put, running
from support.nodes.local_node import LocalNode

from rocketray.errors import ConfigError
from rocketray.message import Message
from rocketray.topology.app.agent import agent_doubts
from rocketray.topology.app.app import App

SILENT = """
import asyncio, logging, sys
from pathlib import Path
import rocketray as rr
from support.nodes.local_node import LocalNode
from rocketray.topology.app import app as module

node = LocalNode(Path(sys.argv[1]))
app = rr.App("shop", connection=node)

@app.agent(app.topic("T", queues=1), tags="pay|ship")
async def pays(stream):
    async for _ in stream:
        pass

async def run():
    await app.start()
    await asyncio.sleep(0.2)
    logging.getLogger(module.__name__).warning("a line of a module with services")
    await app.stop()

asyncio.run(run())
node.close()
"""


@pytest.mark.proves(
    "faust",
    "`@app.agent(channel, name=, concurrency=, sink=, supervisor_strategy=)`: works",
)
def test_an_agent_gets_every_message_and_its_group_is_committed(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, queues=3)
        seen: list[bytes] = []

        reader = app.agent(topic, name="reader")(collecting(seen))

        async with running(app):
            for body in numbers(300):
                await topic.send(value=body)
            await until(lambda: len(seen) == 300)
        assert sorted(seen, key=int) == numbers(300)
        assert committed(node, "app-reader", "T") == 300
        statistics = reader.statistics()
        assert (statistics.received, statistics.finished, statistics.failures) == (300, 300, 0)
        assert statistics.group == "app-reader"

    asyncio.run(scenario())


def test_a_restarted_app_goes_on_where_its_group_stands(node: LocalNode) -> None:
    async def life(expected: int) -> list[bytes]:
        app, topic = make_app(node, queues=2)
        seen: list[bytes] = []

        app.agent(topic, name="reader")(collecting(seen))

        async with running(app):
            await until(lambda: len(seen) >= expected)
            await asyncio.sleep(0.05)
        return seen

    node.topics.ensure("T", 2)
    put(node, "T", numbers(40))
    assert sorted(asyncio.run(life(40)), key=int) == numbers(40)
    put(node, "T", numbers(10, first=40))
    assert sorted(asyncio.run(life(10)), key=int) == numbers(10, first=40)


def test_only_messages_with_the_tag_arrive_even_where_hashes_collide(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, value_serializer="raw")
        seen: list[bytes] = []

        reader = app.agent(topic, tags="Aa || pay", name="reader")(collecting(seen))

        node.topics.ensure("T", 1)
        for tag in ("Aa", "BB", "pay", "order", None):  # Aa and BB have one hash
            put(node, "T", [str(tag).encode()] * 3, tags=tag)
        async with running(app):
            await until(lambda: len(seen) == 6)
            await until(lambda: reader.statistics().batches)
        assert seen == [b"Aa"] * 3 + [b"pay"] * 3
        assert committed(node, "app-reader", "T") == 15  # behind what was filtered out, too

    asyncio.run(scenario())


def test_sql_and_class_filters(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        large: list[bytes] = []
        short: list[bytes] = []

        app.agent(topic, sql="TAGS = 'pay' AND amount BETWEEN 100 AND 500", name="large_payments")(
            collecting(large)
        )

        app.agent(topic, where="support.predicates:body_is_short", name="short_ones")(
            collecting(short)
        )

        async with running(app):
            for amount in (50, 100, 500, 501):
                await topic.send(
                    value=b"a body of %d" % amount, tags="pay", properties={"amount": amount}
                )
            await topic.send(value=b"a body of 200", tags="order", properties={"amount": 200})
            await topic.send(value=b"short", tags="pay")
            await until(lambda: len(large) == 2 and len(short) == 1)
        assert large == [b"a body of 100", b"a body of 500"]
        assert short == [b"short"]
        assert committed(node, "app-large_payments", "T") == 6

    asyncio.run(scenario())


def test_an_agent_gets_a_delayed_message_when_it_is_due(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []
        app.agent(topic, tags="pay", name="payments")(collecting(seen))
        async with running(app):
            await topic.send(value=b"later", tags="pay", delay=0.5)
            await topic.send(value=b"order", tags="order", delay=0.1)
            await (await topic.send(value=b"at once", tags="pay"))
            await until(lambda: len(seen) == 2)
            with pytest.raises(ConfigError, match="one delay"):
                await topic.send(value=b"x", delay=1, delay_level=1)
            with pytest.raises(ConfigError, match="delays=; did you mean delay="):
                await topic.send(value=b"x", delays=1)
        assert seen == [b"at once", b"later"]

    asyncio.run(scenario())


def test_each_agent_is_a_group_and_gets_everything(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, queues=2)
        counts = {"one": 0, "two": 0}

        def declare(name: str) -> None:
            @app.agent(topic, name=name)
            async def reader(stream: Any) -> None:
                async for _ in stream:
                    counts[name] += 1

        declare("one")
        declare("two")
        async with running(app):
            for body in numbers(50):
                await topic.send(value=body)
            await until(lambda: counts == {"one": 50, "two": 50})

    asyncio.run(scenario())


def test_agents_that_name_one_group_share_its_messages(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, queues=2)
        seen: dict[str, list[bytes]] = {"one": [], "two": []}

        def declare(name: str) -> None:
            app.agent(topic, name=name, group="shared")(collecting(seen[name]))

        declare("one")
        declare("two")
        async with running(app):
            feeds = list(app.fetcher.feeds)
            await until(lambda: [len(feed.assignment()) for feed in feeds] == [1, 1])
            for number, body in enumerate(numbers(100)):
                await topic.send(value=body, partition=number % 2)
            await until(lambda: len(seen["one"]) + len(seen["two"]) >= 100)
        assert sorted(seen["one"] + seen["two"], key=int) == numbers(100)
        assert len(seen["one"]) == len(seen["two"]) == 50

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`concurrency=`: works")
def test_handlers_of_one_agent_work_side_by_side(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []
        inside = most = 0

        @app.agent(topic, concurrency=4)
        async def reader(stream: Any) -> None:
            nonlocal inside, most
            async for value in stream:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.02)
                inside -= 1
                seen.append(value)

        node.topics.ensure("T", 1)
        put(node, "T", numbers(40))
        async with running(app):
            await until(lambda: len(seen) == 40)
        assert 2 <= most <= 4
        assert sorted(seen, key=int) == numbers(40)
        assert committed(node, "app-reader", "T") == 40

    asyncio.run(scenario())


def test_what_an_agent_yields_goes_to_its_sinks(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, value_serializer="json")
        doubled = app.topic("Doubled")
        called: list[int] = []
        arrived: list[int] = []

        @app.agent(topic, sink=[called.append, doubled])
        async def double(stream: Any) -> Any:
            async for value in stream:
                yield value * 2

        app.agent(doubled, name="collect")(collecting(arrived))

        async with running(app):
            for value in range(5):
                await topic.send(value=value)
            await until(lambda: len(arrived) == 5)
        assert called == sorted(arrived) == [0, 2, 4, 6, 8]

    asyncio.run(scenario())


@pytest.mark.proves("faust", "An app stops, with and without unacknowledged messages")
def test_a_stop_lets_the_message_in_hand_finish_and_hands_out_no_other(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        begun: list[bytes] = []
        done: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream:
                begun.append(value)
                await asyncio.sleep(0.2)
                done.append(value)

        node.topics.ensure("T", 1)
        put(node, "T", numbers(10))
        await app.start()
        await until(lambda: begun)
        await app.stop()
        assert begun == done == [b"0"]
        assert committed(node, "app-reader", "T") == 1

    asyncio.run(scenario())


def test_what_a_handler_sends_is_stored_before_its_message_is_committed(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        out = app.topic("Out", value_serializer="raw", queues=1)

        @app.agent(topic)
        async def forward(stream: Any) -> None:
            async for value in stream:
                await out.send(value=value)

        node.topics.ensure("T", 1)
        put(node, "T", numbers(500))
        async with running(app):
            await until(lambda: forward.statistics().finished == 500)
        assert committed(node, "app-forward", "T") == 500
        assert node.shard("Out", 0).writer.control.visible() == 500

    asyncio.run(scenario())


def test_messages_of_other_producers_arrive_with_their_own_keys(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        events: list[Any] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                events.append(event)  # noqa: PERF401

        node.topics.ensure("T", 1)
        producer = node.producer()
        producer.send_many(
            "T", [Message("T", b"x", tags="pay", keys=["k1", "k2"], properties={"region": "eu"})]
        )
        producer.close()
        async with running(app):
            await until(lambda: events)
        (event,) = events
        assert event.key == b"k1"
        assert event.headers["TAGS"] == b"pay"
        assert event.headers["region"] == b"eu"
        assert (event.message.topic, event.message.partition, event.message.offset) == ("T", 0, 0)

    asyncio.run(scenario())


@pytest.fixture
def topic(node: LocalNode) -> str:
    node.topics.ensure("T", 1)
    with node.producer() as producer:
        producer.send("T", b"x", tags="pay", properties={"amount": "120"})
    return "T"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tags": "pay|ship"}, "pay || ship"),
        ({"sql": "amont > 100"}, "amont is in none of 1 recent message; did you mean amount?"),
    ],
)
def test_a_filter_that_looks_like_a_slip_is_told_once_an_agent(
    node: LocalNode, topic: str, options: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        app = App("shop", connection=node)
        app.agent(app.topic(topic), name="doubted", **options)(collecting([]))
        app.agent(app.topic(topic), name="sound", sql="amount > 100")(collecting([]))
        app.agent(app.channel(), name="no_group")(collecting([]))
        async with running(app):
            await until(lambda: "doubted: topic" in caplog.text)

    asyncio.run(scenario())
    told = [each for each in caplog.records if each.getMessage().startswith("agent ")]
    (line,) = [record.getMessage() for record in told]
    assert line.startswith("agent doubted: topic T, ")
    assert says in line
    assert told[0].levelname == "WARNING"


def test_the_topics_of_a_pattern_are_looked_at(node: LocalNode, topic: str) -> None:
    app = App("shop", connection=node)
    app.agent(app.topic(pattern="[TU]"), sql="amont > 1", name="a")(collecting([]))
    (line,) = agent_doubts(node, app.agents.values())
    assert "topic T, " in line


def test_a_program_without_logging_set_up_shows_warnings(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SILENT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience(60),
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert "agent pays: topic T, tags 'pay|ship'" in done.stderr
    assert "a line of a module with services" in done.stderr


async def _attribute(order: Any) -> None:
    _ = order.amount


async def _key(order: Any) -> None:
    _ = order["amount"]


async def _of_the_handler_itself(_: Any) -> None:
    _ = len.amount  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("handler", "is_hinted"),
    [(_attribute, True), (_key, True), (_of_the_handler_itself, False)],
)
def test_a_handler_that_takes_the_stream_for_one_message_is_told(
    node: LocalNode, handler: Any, is_hinted: bool
) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        agent = app.agent(topic)(handler)
        async with running(app):
            await until(lambda: agent.statistics().last_failure)
            failure = agent.statistics().last_failure
        assert failure is not None
        assert ("write `async for message in stream:`" in failure.reason) == is_hinted, failure

    asyncio.run(scenario())

"""Stock Faust apps: streams, offsets and rebalances over a node in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import until
from support.nodes.apps import collecting, committed, numbers, put, running
from support.nodes.local_node import LocalNode
from support.nodes.stock_apps import stock_app
from yarl import URL

from rocketray.errors import ConfigError, ShardUnavailableError, TopicNotFoundError
from rocketray.message import Message
from rocketray.messaging.consumers.app_member import AppMember
from rocketray.topology.stock.transport import node_of_broker


def put_in_each(node: LocalNode, first: int, count: int) -> None:
    """The *count* numbers from *first* on, divided over the four queues of T."""
    with node.producer() as producer:
        for queue in range(4):
            bodies = numbers(count // 4, first + queue * (count // 4))
            producer.send_many("T", [Message("T", body) for body in bodies], queue_id=queue)


@pytest.mark.proves("stock-faust", "A restarted app continues where it stopped")
def test_a_restarted_app_goes_on_where_it_committed(node: LocalNode) -> None:
    async def run(expected: int) -> list[bytes]:
        app = stock_app(node)
        seen: list[bytes] = []
        app.agent(app.topic("T", value_serializer="raw"))(collecting(seen))
        async with running(app):
            await until(lambda: len(seen) >= expected)
            await asyncio.sleep(0.05)
        return seen

    node.topics.ensure("T", 2)
    put(node, "T", numbers(40))
    assert sorted(map(int, asyncio.run(run(40)))) == list(range(40))
    assert committed(node, "stock", "T") == 40
    put(node, "T", numbers(10, first=40))
    assert sorted(map(int, asyncio.run(run(10)))) == list(range(40, 50))


@pytest.mark.proves(
    "stock-faust",
    "A handler that raises loses its message, as does a message that cannot be decoded",
)
def test_a_message_that_does_not_decode_is_lost_as_one_on_which_a_handler_raises(
    node: LocalNode,
) -> None:
    async def scenario() -> list[Any]:
        app = stock_app(node)
        seen: list[Any] = []
        app.agent(app.topic("T", value_type=int, value_serializer="json"))(collecting(seen))
        async with running(app):
            await until(lambda: len(seen) == 2)
            await until(lambda: committed(node, "stock", "T") == 3)
        return seen

    node.topics.ensure("T", 1)
    put(node, "T", [b"1", b"{broken", b"2"])
    assert asyncio.run(scenario()) == [1, 2]


@pytest.mark.proves(
    "stock-faust",
    "Two instances join and leave: no message is missed, none is processed twice",
)
def test_two_instances_share_the_queues_and_none_is_missed_or_doubled(node: LocalNode) -> None:
    def build() -> tuple[Any, list[bytes]]:
        app = stock_app(node)
        seen: list[bytes] = []

        async def slow(stream: Any) -> None:
            async for value in stream:
                seen.append(value)
                await asyncio.sleep(0.001)

        app.agent(app.topic("T", value_serializer="raw"), name="slow")(slow)
        return app, seen

    def queues_of(app: Any) -> int:
        return len(app.consumer.assignment())

    async def scenario() -> tuple[list[bytes], list[bytes]]:
        (one, first), (other, second) = build(), build()
        async with running(one):
            await until(lambda: len(first) > 50)
            async with running(other):
                await until(lambda: queues_of(one) == queues_of(other) == 2)
                put_in_each(node, 400, 400)
                await until(lambda: len(first) + len(second) >= 800)
                assert second
            put_in_each(node, 800, 100)
            await until(lambda: len(first) + len(second) >= 900)
            assert queues_of(one) == 4
        return first, second

    node.topics.ensure("T", 4)
    put_in_each(node, 0, 400)
    first, second = asyncio.run(scenario())
    assert sorted(map(int, first + second)) == list(range(900))


@pytest.mark.proves(
    "stock-faust",
    "A topic is created with the queues that its agent asks for, or not at all",
)
def test_a_topic_gets_the_queues_that_its_agent_asks_for(node: LocalNode) -> None:
    async def scenario() -> None:
        app = stock_app(node)
        seen: list[bytes] = []
        asking = app.topic("Asking", value_serializer="raw", partitions=3)
        app.agent(asking, name="asking")(collecting(seen))
        async with running(app):
            await asking.send(value=b"1")
            await app.send("Silent", value=b"2")
            await until(lambda: seen)

    asyncio.run(scenario())
    assert (node.topics.get("Asking").queues, node.topics.get("Silent").queues) == (3, 2)


@pytest.mark.proves(
    "stock-faust",
    "A topic is created with the queues that its agent asks for, or not at all",
)
def test_an_app_that_may_not_make_topics_says_which_one_is_missing(node: LocalNode) -> None:
    async def scenario() -> None:
        app = stock_app(node, topic_allow_declare=False)
        with pytest.raises(TopicNotFoundError, match="Nowhere"):
            await app.transport.queue_count("Nowhere")

    asyncio.run(scenario())


@pytest.mark.proves("groups", "A deleted topic stops its agent alone, which waits for it")
def test_a_deleted_topic_is_waited_for_and_the_others_are_read_on(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        app = stock_app(node)
        seen: list[bytes] = []
        for name in ("T", "U"):
            app.agent(app.topic(name, value_serializer="raw"), name=name)(collecting(seen))
        async with running(app):
            put(node, "T", [b"1"])
            put(node, "U", [b"2"])
            await until(lambda: sorted(seen) == [b"1", b"2"])
            node.topics.delete("T")
            await until(lambda: "topic T was deleted" in caplog.text)
            put(node, "U", [b"3"])
            await until(lambda: b"3" in seen)
            assert "T" not in node.topics.all(), "an app that waits creates nothing"
            node.topics.ensure("T", 3)
            put(node, "T", [b"4", b"5", b"6"])
            await until(lambda: len(seen) == 6)
            assert not app.crashed

    node.topics.ensure("T", 2)
    node.topics.ensure("U", 2)
    asyncio.run(scenario())


@pytest.mark.proves(
    "groups",
    "A queue that is added later is read from its first message, whatever `start=` says",
)
def test_a_queue_that_is_added_is_read_from_its_first_message(node: LocalNode) -> None:
    async def scenario() -> None:
        app = stock_app(node, consumer_auto_offset_reset="latest")
        seen: list[bytes] = []
        app.agent(app.topic("T", value_serializer="raw"))(collecting(seen))
        async with running(app):
            put(node, "T", [b"first"])
            await until(lambda: seen == [b"first"])
            node.topics.alter("T", 2)
            with node.producer() as producer:
                producer.send("T", b"second", queue_id=1)
            await until(lambda: seen == [b"first", b"second"])

    node.topics.ensure("T", 1)
    put(node, "T", [b"old"])
    asyncio.run(scenario())


@pytest.mark.proves("stock-faust", "Settings that need Kafka are refused")
def test_settings_that_rest_on_kafka_are_refused(node: LocalNode) -> None:
    with pytest.raises(ConfigError, match="exactly_once"):
        stock_app(node, processing_guarantee="exactly_once")
    with pytest.raises(ConfigError, match="producer_threaded"):
        stock_app(node, producer_threaded=True)


@pytest.mark.proves("stock-faust", "The URL or the environment names the node's data directory")
def test_the_node_is_found_by_the_url_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETRAY_DATA", raising=False)
    assert node_of_broker(URL("rocketray://")) == Path("rocketray-data")
    assert node_of_broker(URL("rocketray:///srv/data")) == Path("/srv/data")
    monkeypatch.setenv("ROCKETRAY_DATA", "/srv/other")
    assert node_of_broker(URL("rocketray://")) == Path("/srv/other")
    assert node_of_broker(URL("rocketray:///srv/data")) == Path("/srv/data")
    with pytest.raises(ConfigError, match="name a node's data directory"):
        node_of_broker(URL("rocketray://host/srv"))


def test_a_rebalance_is_done_again_when_the_node_did_not_answer(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketray.topology.stock.stock_consumer._RETRY_S", 0.05)
    adopt, failures = AppMember.adopt, [ShardUnavailableError("the coordinator", "away", 1)] * 2

    def fail_first(member: AppMember) -> Any:
        if failures:
            raise failures.pop()
        return adopt(member)

    monkeypatch.setattr(AppMember, "adopt", fail_first)

    async def scenario() -> None:
        app = stock_app(node)
        seen: list[bytes] = []
        app.agent(app.topic("T", value_serializer="raw"))(collecting(seen))
        async with running(app):
            await until(lambda: len(seen) == 10)

    node.topics.ensure("T", 1)
    put(node, "T", numbers(10))
    asyncio.run(scenario())
    assert not failures

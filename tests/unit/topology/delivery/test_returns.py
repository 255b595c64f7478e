"""Messages on their way back to the node, when what they need fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack

import pytest
from support.harness.durable import CommitWatch, Input
from support.harness.patience import patience, until
from support.nodes.apps import committed, make_app, put, running
from support.nodes.feeds import feeding
from support.nodes.ladder import Ladder, stored_in
from support.nodes.local_node import LocalNode

from rocketray.base.names import RETRY_PREFIX
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import ConfigError, ShardUnavailableError
from rocketray.filters.subscription import Subscription
from rocketray.groups.member_options import MemberOptions
from rocketray.message import ForwardedMessage, StoredMessage
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.producers.batch import SendResults
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.services.delays.delay_service import DelayService
from rocketray.topology.app.app import App
from rocketray.topology.delivery import feed as feed_module
from rocketray.topology.delivery import returns as returns_module
from rocketray.topology.delivery.failure import fail_message
from rocketray.topology.delivery.inbox import Inbox
from rocketray.topology.faust import fetcher


class FailingNode(LocalNode):
    """A node on which what has to do with retry topics fails as often as the test asks."""

    makings_to_fail = joins_to_fail = 0

    def consumer(
        self, group: str, topic: str, subscription: Subscription, **options: Unpack[MemberOptions]
    ) -> GroupConsumer:
        if topic.startswith(RETRY_PREFIX) and self.joins_to_fail:
            self.joins_to_fail -= 1
            raise ConfigError("the topic may not be read, as the test asked")
        return super().consumer(group, topic, subscription, **options)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingNode]:
    monkeypatch.setattr(DelayService, "step", lambda _, now_ms: now_ms + 60_000)
    monkeypatch.setattr(returns_module, "_REFUSED_RETRY_S", 0.05)
    monkeypatch.setattr(fetcher, "RETRY_LOOK_S", 60.0)
    node = FailingNode(tmp_path)
    ensure = node.topics.ensure

    def ensure_or_fail(topic: str, *args: Any, **options: Any) -> TopicConfig:
        if topic.startswith(RETRY_PREFIX) and node.makings_to_fail:
            node.makings_to_fail -= 1
            raise RuntimeError("an error that is none of ours")
        return ensure(topic, *args, **options)

    monkeypatch.setattr(node.topics, "ensure", ensure_or_fail)
    with node:
        yield node


@pytest.mark.parametrize("fails", ["making the topic", "reading it"])
def test_each_message_is_sent_back_once_whatever_fails_on_the_way(
    node: FailingNode, fails: str
) -> None:
    if fails == "reading it":
        node.joins_to_fail = 1
    else:
        node.makings_to_fail = 2

    async def scenario() -> None:
        app, topic = make_app(node)

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if value.startswith(b"bad"):
                    raise ValueError(value)

        node.topics.ensure("T", 1)
        put(node, "T", [b"ok", b"bad 1", b"bad 2", b"ok"])
        async with running(app):
            await until(lambda: reader.statistics().sent_back == 2)
            await asyncio.sleep(0.2)
            assert node.makings_to_fail == node.joins_to_fail == 0
            assert app.crash_reason is None
        assert sorted(one.body for one in Ladder(node).waiting()) == [b"bad 1", b"bad 2"]
        assert committed(node, "app-reader", "T") == 4

    asyncio.run(scenario())
    node.close()


def test_a_dead_letter_is_said_to_be_there_when_it_is(
    node: FailingNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    may_store = threading.Event()
    forward = NodeProducer.forward

    def slow(
        producer: NodeProducer, topic: str, queue_id: int, messages: list[ForwardedMessage]
    ) -> SendResults:
        assert may_store.wait(60)
        return forward(producer, topic, queue_id, messages)

    monkeypatch.setattr(NodeProducer, "forward", slow)
    caplog.set_level(logging.INFO)
    at = "at topic T queue 0 offset 0"

    async def scenario() -> None:
        app, topic = make_app(node)

        @app.agent(topic, max_attempts=0, dead_letter="Letters")
        async def reader(stream: Any) -> None:
            async for _ in stream:
                raise LookupError("on purpose")

        node.topics.ensure("T", 1)
        put(node, "T", [b"1"])
        async with running(app):
            await until(lambda: f"{at}, attempt 1, goes to Letters" in caplog.text)
            assert "is in Letters now" not in caplog.text
            may_store.set()
            await until(lambda: f"the message {at} is in Letters now" in caplog.text)
            assert len(stored_in(node, "Letters")) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("what", ["taken away", "acknowledged"])
def test_a_message_that_is_settled_while_there_is_no_room_is_not_sent_back(
    node: FailingNode, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(returns_module, "WAITING_MAX", 1)
    may_store = threading.Event()
    forward = NodeProducer.forward

    def slow(
        producer: NodeProducer, topic: str, queue_id: int, messages: list[ForwardedMessage]
    ) -> SendResults:
        may_store.wait(patience(30))
        return forward(producer, topic, queue_id, messages)

    monkeypatch.setattr(NodeProducer, "forward", slow)
    node.topics.ensure("T", 2)
    with node.producer() as producer:
        for queue_id in range(2):
            producer.send("T", b"%d" % queue_id, queue_id=queue_id)

    async def scenario() -> None:
        async with feeding(node) as (feed, queue, _):
            first, second = await queue.get(), await queue.get()
            second.acks.require(second.cursor)
            inbox = Inbox(queue)
            assert await fail_message(inbox, first, ValueError("first"), "a handler")
            failing = asyncio.create_task(fail_message(inbox, second, ValueError("2nd"), "it"))
            await asyncio.sleep(0.02)
            assert not failing.done()
            if what == "taken away":
                second.is_withdrawn = True
            else:
                second.acks.acknowledge(0)
            may_store.set()
            assert await failing is (what == "acknowledged")
            await until(lambda: feed.statistics().sent_back == 1)
            assert second.is_finished() is (what == "acknowledged")
            body = first.shared.bodies[0]
        assert [one.body for one in Ladder(node).waiting()] == [body]

    asyncio.run(scenario())
    node.close()


def test_what_could_not_be_sent_back_before_its_queue_was_revoked_comes_from_there_only(
    node: FailingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(returns_module, "_RETRY_S", 0.01)
    monkeypatch.setattr(feed_module, "_REVOKE_TIMEOUT_S", 0.05)
    forward, tries, is_away = NodeProducer.forward, list[list[bytes]](), True

    def try_to(
        producer: NodeProducer, topic: str, queue_id: int, messages: list[ForwardedMessage]
    ) -> SendResults:
        tries.append([one.body for one in messages])
        if is_away:
            raise ShardUnavailableError(topic, "as the test asked", 1)
        return forward(producer, topic, queue_id, messages)

    monkeypatch.setattr(NodeProducer, "forward", try_to)
    node.topics.ensure("T", 2)
    with node.producer() as producer:
        for queue_id in range(2):
            producer.send("T", b"%d" % queue_id, queue_id=queue_id)

    async def scenario() -> None:
        nonlocal is_away
        async with feeding(node) as (feed, queue, _):
            inbox = Inbox(queue)
            for _ in range(2):
                assert await fail_message(inbox, await queue.get(), ValueError("bad"), "it")
            await until(lambda: tries)  # the second message may be in the same list, or wait for it
            await feed._revoke([0])
            await until(lambda: tries[-1] == [b"1"])  # none with both is under way any more
            is_away = False
            await until(lambda: feed.statistics().sent_back == 1)
            await feed._services.returns.flush(patience(30))
            assert not feed._services.returns._pending
        assert [one.body for one in Ladder(node).waiting()] == [b"1"]

    asyncio.run(scenario())
    node.close()


@pytest.mark.proves(
    "durability",
    "Messages returned for retry and changes of tables are on disk before the offset behind them "
    "is committed",
)
@pytest.mark.proves(
    "delivery",
    "Retries and dead letters are on disk before the offset behind them is committed",
)
@pytest.mark.parametrize("max_attempts", [16, 0], ids=["a retry", "a dead letter"])
def test_what_is_sent_back_is_on_disk_before_its_offset_is_committed(
    node: FailingNode, monkeypatch: pytest.MonkeyPatch, max_attempts: int
) -> None:
    def input_of(message: StoredMessage) -> Input:
        return Input("T", 0, int(message.body) - 1)

    watch = CommitWatch(node, monkeypatch, input_of, SCHEDULE_TOPIC, "%DLQ%app-reader")

    async def scenario() -> None:
        app = App("app", connection=node, broker_commit_interval=0.01)
        topic = app.topic("T", queues=1, value_serializer="raw")

        @app.agent(topic, max_attempts=max_attempts)
        async def reader(stream: Any) -> None:
            async for _ in stream:
                raise ValueError("on purpose")

        node.topics.ensure("T", 1)
        async with running(app):
            for number in (1, 2, 3):
                put(node, "T", [b"%d" % number])
                await until(lambda: watch.seen == number)  # noqa: B023 - awaited in this round

    asyncio.run(scenario())
    assert not watch.endangered, "a power failure would take what no queue has any more"
    node.close()


def test_a_queue_that_is_revoked_while_the_node_is_away_gives_nothing_back_afterwards(
    node: FailingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "_REVOKE_TIMEOUT_S", 0.05)
    forward, bodies = NodeProducer.forward, list[bytes]()

    def note(
        producer: NodeProducer, topic: str, queue_id: int, messages: list[ForwardedMessage]
    ) -> SendResults:
        bodies.extend(one.body for one in messages)
        return forward(producer, topic, queue_id, messages)

    monkeypatch.setattr(NodeProducer, "forward", note)
    node.topics.ensure("T", 2)
    with node.producer() as producer:
        for queue_id in range(2):
            producer.send("T", b"%d" % queue_id, queue_id=queue_id)

    async def scenario() -> None:
        async with feeding(node) as (feed, queue, _):
            returns, inbox = feed._services.returns, Inbox(queue)
            connect, is_back = returns._connect, asyncio.Event()

            async def connect_later() -> Any:
                await is_back.wait()
                return await connect()

            monkeypatch.setattr(returns, "_connect", connect_later)
            for _ in range(2):
                assert await fail_message(inbox, await queue.get(), ValueError("bad"), "it")
            await asyncio.sleep(0.05)  # the sending waits for the node
            await feed._revoke([0])
            is_back.set()
            await until(lambda: feed.statistics().sent_back == 1)
            await returns.flush(patience(30))
            assert not returns._pending

    asyncio.run(scenario())
    assert bodies == [b"1"]

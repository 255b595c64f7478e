"""Agents with the name of a filter."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.nodes.apps import collecting

from rocketray.errors import ConfigError, InvalidNameError, SubscriptionConflictError
from rocketray.filters.subscription import EVERYTHING, Subscription
from rocketray.services.explaining.cause import Cause
from rocketray.testing import Broker
from rocketray.topology.app.app import App

OLD, NEW = Subscription.sql("amount > 10"), Subscription.sql("amount > 20")


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = Broker(tmp_path)
    broker.topics.create("Trade", 1)
    broker.named_filters.save("Trade", "large", OLD)
    return broker


def send(broker: Broker, *amounts: int) -> None:
    with broker.producer() as producer:
        for amount in amounts:
            producer.send("Trade", b"%d" % amount, properties={"amount": str(amount)})


def make(broker: Broker, named: str, seen: list[bytes], *, id: str = "shop") -> App:  # noqa: A002
    app = App(id, connection=broker)
    topic = app.topic("Trade", value_serializer="raw")
    app.agent(topic, filter=named, name="reader", group="Readers")(collecting(seen))
    return app


def test_an_app_reads_with_the_version_of_its_group(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        first: list[bytes] = []
        second: list[bytes] = []
        send(broker, 5, 15)
        async with broker.running(make(broker, "large", first)):
            await broker.settle()
            broker.named_filters.save("Trade", "large", NEW)
            async with broker.running(make(broker, "large", second, id="more")):
                send(broker, 6, 16)
                await broker.settle()
            assert [each.named for each in subscriptions(broker)] == ["large@1"]
        assert sorted(first + second) == [b"15", b"16"]
        async with broker.running(make(broker, "large", first)):
            send(broker, 7, 17, 27)
            await broker.settle()
        assert first[-1] == b"27"
        assert [each.named for each in subscriptions(broker)] == ["large@2"]

    caplog.set_level("INFO")
    with broker:
        asyncio.run(scenario())
    assert "topic Trade, sql 'amount > 20' (filter large@2)" in caplog.text


async def crashed(broker: Broker) -> None:
    """Raise why an app crashed."""
    for _ in range(1000):
        await broker.settle()
        await asyncio.sleep(0.01)


def subscriptions(broker: Broker) -> list[Subscription]:
    return [each.subscription for each in broker.groups.all()]


def test_a_failed_message_is_redelivered_though_a_later_version_rejects_it(broker: Broker) -> None:
    async def scenario() -> None:
        seen: list[bytes] = []

        def make_reader(named: str) -> App:
            app = App("shop", connection=broker)
            topic = app.topic("Trade", value_serializer="raw")

            @app.agent(topic, filter=named, name="reader")
            async def reader(stream: object) -> None:
                async for body in stream:  # type: ignore[attr-defined]
                    seen.append(body)
                    if len(seen) == 1:
                        raise ValueError("the first time")

            return app

        async with broker.running(make_reader("large@1")):
            send(broker, 15)
            await broker.settle()
        broker.named_filters.save("Trade", "large", NEW)
        async with broker.running(make_reader("large@2")):
            send(broker, 16)
            for _ in range(30):
                broker.clock.advance(seconds=1)
                await asyncio.sleep(0.01)
            await broker.settle()
        assert seen == [b"15", b"15"]
        by_topic = {each.topic: each.subscription for each in broker.groups.all()}
        assert by_topic["Trade"].named == "large@2"
        assert by_topic["%RETRY%shop-reader"] == EVERYTHING
        [failed, left_out] = broker.stored("Trade")
        found = broker.explain(failed.offset_message_id, "shop-reader")
        assert found.cause is Cause.DELIVERED
        assert broker.explain(left_out.offset_message_id, "shop-reader").cause is Cause.SQL_FALSE

    with broker:
        asyncio.run(scenario())


def test_another_version_than_the_groups_is_refused(broker: Broker) -> None:
    async def scenario() -> None:
        async with broker.running(make(broker, "large@1", [])):
            with pytest.raises(SubscriptionConflictError, match=r"large@1.*large@2"):
                async with broker.running(make(broker, "large@2", [], id="more")):
                    await crashed(broker)

    with broker:
        broker.named_filters.save("Trade", "large", NEW)
        asyncio.run(scenario())


def test_a_name_that_there_is_not_is_an_error_at_the_start(broker: Broker) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError, match="has no filter 'lrage'; did you mean 'large'"):
            async with broker.running(make(broker, "lrage", [])):
                await crashed(broker)

    with broker:
        asyncio.run(scenario())


def test_a_wrong_declaration_is_refused_at_once() -> None:
    app = App("shop")
    topic = app.topic("Trade")
    with pytest.raises(ConfigError, match=r"names a whole filter.*leave out sql"):
        app.agent(topic, filter="large", sql="amount > 1")
    with pytest.raises(ConfigError, match="leave out dialect and on_filter_error"):
        app.agent(topic, filter="large", dialect="rocketmq", on_filter_error="skip")
    with pytest.raises(InvalidNameError, match="is not a version of filter 'large'"):
        app.agent(topic, filter="large@latest")
    for channel in (app.topic("Trade", "Order"), app.topic(pattern="Tr.*")):
        with pytest.raises(ConfigError, match="agent 'reader' has filter='large', which is of one"):
            app.agent(channel, filter="large", name="reader")(collecting([]))

"""A deleted topic stops its agent alone, which waits for the topic and says so."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from support.harness.patience import until

import rocketray as rr
from rocketray.groups.member_options import StartFrom
from rocketray.testing import Broker
from rocketray.topology.faust import fetcher


@pytest.fixture(autouse=True)
def quick_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "RETRY_LOOK_S", 0.05)


class Reading:
    """An app with an agent on topic A and one on topic B."""

    def __init__(
        self, broker: Broker, *, start: StartFrom | None = None, tables: bool = False
    ) -> None:
        self.app = rr.App("app", connection=broker)
        self.a = self.app.topic("A", value_type=str, queues=1)
        self.b = self.app.topic("B", value_type=str, queues=1)
        self.seen: dict[str, list[str]] = {"A": [], "B": []}
        counts = self.app.Table("counts", default=int) if tables else None

        def read(topic: Any, name: str) -> None:
            @self.app.agent(topic, name=f"read_{name}", start=start)
            async def read(stream: Any) -> None:
                async for value in stream:
                    if counts is not None:
                        counts[value] += 1
                    self.seen[name].append(value)

        read(self.a, "A")
        read(self.b, "B")


def put(broker: Broker, topic: str, value: str) -> None:
    with broker.producer() as producer:
        producer.send(topic, value.encode())


@pytest.mark.proves("groups", "A deleted topic stops its agent alone, which waits for it")
@pytest.mark.parametrize(
    "options", [{}, {"start": "latest"}, {"tables": True}], ids=["plain", "latest", "tables"]
)
def test_the_agent_waits_and_the_others_go_on(
    broker: Broker, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    caplog.set_level(logging.INFO, "rocketray")

    async def scenario() -> None:
        one = Reading(broker, **options)
        agent = one.app.agents["read_A"]
        async with broker.running(one.app):
            put(broker, "A", "first")
            await until(lambda: one.seen["A"] == ["first"])
            broker.topics.delete("A")
            broker.clock.advance(seconds=1)
            await until(lambda: "A was deleted" in str(agent.statistics().last_failure))
            put(broker, "B", "other")
            await until(lambda: one.seen["B"] == ["other"])
            assert not one.app.crashed
            assert "A" not in broker.topics.all(), "an app that waits creates nothing"
            broker.topics.ensure("A", 1)
            put(broker, "A", "second")
            await until(lambda: one.seen["A"] == ["first", "second"])
            assert agent.statistics().last_failure is None
            await broker.settle()

    asyncio.run(scenario())
    (said,) = [each.message for each in caplog.records if "was deleted" in each.message]
    assert said == (
        "agent read_A: topic A was deleted; group app-read_A waits until it exists again, and reads "
        "it then from its beginning: rocketray topics create A"
    )


def test_an_app_whose_topic_is_deleted_stops_and_starts_again(broker: Broker) -> None:
    async def scenario() -> None:
        one = Reading(broker)
        async with broker.running(one.app):
            broker.topics.delete("A")
            broker.clock.advance(seconds=1)
            agent = one.app.agents["read_A"]
            await until(lambda: agent.statistics().last_failure is not None)
        again = Reading(broker)
        async with broker.running(again.app):
            put(broker, "A", "first")
            await until(lambda: again.seen["A"] == ["first"])

    asyncio.run(scenario())


def test_an_app_whose_changelog_is_deleted_ends_and_its_table_begins_anew(broker: Broker) -> None:
    async def scenario() -> None:
        one = Reading(broker, tables=True)
        async with broker.running(one.app):
            put(broker, "A", "first")
            await until(lambda: one.seen["A"] == ["first"])
            await broker.settle()
            broker.topics.delete("app-counts-changelog")
            put(broker, "A", "second")
            await until(lambda: one.app.crashed)
            assert "app-counts-changelog" in str(one.app.crash_reason)
        again = Reading(broker, tables=True)
        async with broker.running(again.app):
            await until(lambda: again.seen["A"] == ["second"])
            await broker.settle()
            assert dict(again.app.tables["counts"].items()) == {"second": 1}

    asyncio.run(scenario())

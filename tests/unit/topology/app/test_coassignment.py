"""Agents of one instance that read the same queue numbers."""

from __future__ import annotations

import asyncio

import pytest
from support.harness.patience import until
from support.nodes.apps import collecting, running
from support.nodes.local_node import LocalNode

from rocketray.errors import ConfigError
from rocketray.filters.subscription import Subscription
from rocketray.groups.heartbeat import AppInstance
from rocketray.topology.app.app import App


def make(node: LocalNode) -> App:
    app = App("trade", connection=node)
    app.Table("counts", default=int)
    for name, queues in (("orders", 4), ("prices", 2)):
        topic = app.topic(name, queues=queues, value_serializer="raw")
        app.agent(topic, name=f"reads_{name}")(collecting([]))
    return app


def numbers_read(app: App, topic: str) -> set[int]:
    return {
        queue for feed in app.fetcher.feeds if feed.topic == topic for _, queue in feed.assignment()
    }


def test_agents_of_one_instance_read_the_same_queue_numbers(node: LocalNode) -> None:
    def is_shared(*apps: App) -> bool:
        orders = [numbers_read(app, "orders") for app in apps]
        prices = [numbers_read(app, "prices") for app in apps]
        is_whole = sorted(q for read in orders for q in read) == [0, 1, 2, 3]
        is_whole &= sorted(q for read in prices for q in read) == [0, 1]
        is_even = {len(read) for read in orders} == {4 // len(apps)}
        is_same = all(few <= many for few, many in zip(prices, orders, strict=True))
        return is_whole and is_even and is_same

    async def scenario() -> None:
        first, second = make(node), make(node)
        async with running(first):
            await until(lambda: is_shared(first))
            async with running(second):
                await until(lambda: is_shared(first, second))
            await until(lambda: is_shared(first))

    asyncio.run(scenario())


def test_an_app_owns_queues_together_only_where_it_asks_for_it(node: LocalNode) -> None:
    assert App("trade", connection=node).together is None
    together = make(node).together
    assert together is not None
    assert together.app == "trade"


def test_an_app_with_one_assignment_takes_no_other_strategy(node: LocalNode) -> None:
    node.topics.ensure("orders", 4)
    everything, instance = Subscription.tags("*"), AppInstance("trade", "one")
    with pytest.raises(ConfigError, match="its groups cannot use strategy 'sticky'"):
        node.consumer("g", "orders", everything, strategy="sticky", together=instance)
    with pytest.raises(ConfigError, match="no strategy 'AVG'"):
        App("trade").agent("orders", strategy="AVG")  # type: ignore[arg-type]

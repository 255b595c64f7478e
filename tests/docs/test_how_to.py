"""The programs that the how-to pages show are run as they stand there, on a node for tests."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from aiohttp.test_utils import TestClient, TestServer
from support.harness.page_modules import modules_of
from support.harness.patience import until
from support.harness.source_tree import ROOT
from support.nodes.local_node import LocalNode
from support.nodes.serving_node import serving

import rocketray as rr
from rocketray.client import Producer
from rocketray.testing import Broker, Clock

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Give the module of a how-to page, whose app and producers reach *broker*."""
    monkeypatch.setattr(rr, "App", partial(rr.App, connection=broker), raising=False)
    monkeypatch.setattr(rr, "Producer", broker.producer, raising=False)
    monkeypatch.setattr(rr, "AsyncProducer", broker.async_producer, raising=False)

    def module_of(page: str) -> ModuleType:
        [module] = modules_of(ROOT / "docs/how-to" / f"{page}.md", monkeypatch)
        return module

    return module_of


def run(broker: Broker, module: ModuleType, steps: Callable[[], Awaitable[None]]) -> None:
    """Do *steps* while the app of *module* runs."""

    async def scenario() -> None:
        async with broker.running(module.app):
            await steps()

    asyncio.run(scenario())


@pytest.mark.proves("documentation", "A web service stores an order before it responds")
def test_a_web_service_stores_an_order_before_it_responds(broker: Broker, load: Load) -> None:
    broker.topics.ensure("WebOrders", 1)
    service = load("web-service").make_service()
    order = {"order_id": "order-1", "amount": 120}

    async def scenario() -> tuple[int, int]:
        async with TestClient(TestServer(service)) as client:
            stored = await client.post("/orders", json=order)
            [message] = broker.stored("WebOrders")
            assert message.unique_key == (await stored.json())["message_id"]
            assert (message.tags, message.keys) == ("order", ["order-1"])
            with broker.faults.disk_full():
                refused = await client.post("/orders", json=order)
            return stored.status, refused.status

    assert asyncio.run(scenario()) == (202, 503)
    assert len(broker.stored("WebOrders")) == 1


@pytest.mark.proves(
    "durability",
    "A fork writes nothing over messages of its parent, ends by itself, and leaves ring, group "
    "and node alone; what it inherits raises, and ids differ between all processes",
)
def test_each_worker_has_a_producer_of_its_own(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalNode(tmp_path / "data") as node, serving(node), node.producer() as of_master:
        node.topics.ensure("PoolOrders", 1)
        module = load("workers")
        monkeypatch.setattr(rr, "Producer", Producer)
        monkeypatch.setenv("ROCKETRAY_DATA", str(node.data))
        first = of_master.send("PoolOrders", b"of the master").message_id
        fork = multiprocessing.get_context("fork")
        ids = module.store_all([f"order {number}" for number in range(20)], fork)
        stored = {message.unique_key: message.body for message in node.stored("PoolOrders")}
        assert [stored[each] for each in [first, *ids]] == [
            b"of the master",
            *[b"order %d" % number for number in range(20)],
        ]


@pytest.mark.proves("documentation", "An account is booked in order")
def test_an_account_is_booked_in_order(broker: Broker, load: Load) -> None:
    module = load("ordered")

    async def steps() -> None:
        for account, amount in (("a", 10), ("a", -25), ("b", 7)):
            await module.deposit(account, amount)
        await until(lambda: module.balances == {"a": 10, "b": 7})
        module.balances["a"] = 30  # paid in by other means: the held message is booked
        await until(lambda: module.balances["a"] == 5)

    run(broker, module, steps)


@pytest.mark.proves(
    "documentation",
    "A rejected invoice becomes a dead letter in a topic of its own",
)
def test_a_rejected_invoice_ends_in_the_topic_of_rejected_ones(
    broker: Broker, load: Load, clock: Clock
) -> None:
    module = load("retries")

    async def steps() -> None:
        for number, address in ((1, "Main Street 1"), (2, "")):
            await module.invoices.send(value=module.Invoice(number=number, address=address))
        await broker.settle()
        for _ in range(2):
            assert (module.mailed, module.to_check) == ([1], [])
            clock.advance(minutes=1)
            await broker.settle()

    run(broker, module, steps)
    assert (module.mailed, module.to_check) == ([1], [2])


@pytest.mark.proves("documentation", "A reminder that was recalled is not delivered")
def test_a_paid_order_has_no_reminder(broker: Broker, load: Load, clock: Clock) -> None:
    module = load("delay")
    broker.topics.ensure("Reminders", 1)
    with broker.producer() as producer:
        handles = [module.remind(producer, order_id) for order_id in ("paid", "open")]
        clock.advance(hours=23)
        assert module.was_paid(producer, handles[0])
        assert broker.stored("Reminders") == []
        clock.advance(hours=1)
        assert [message.body for message in broker.stored("Reminders")] == [b"open"]
        assert not module.was_paid(producer, handles[1])


@pytest.mark.proves("documentation", "An order and its message are stored both, or neither")
def test_an_order_and_its_message_are_there_both_or_neither(
    broker: Broker, load: Load, clock: Clock, tmp_path: Path
) -> None:
    broker.topics.ensure("PlacedOrders", 1)
    orders = load("transactions").Orders(str(tmp_path / "orders.db"))
    orders.place("order-1")
    with pytest.raises(sqlite3.IntegrityError):
        orders.place("order-1")  # is there already: no second message
    clock.advance(seconds=1)
    [placed] = broker.stored("PlacedOrders")
    assert placed.body == b"order-1"
    assert orders.was_placed(placed) == "commit"
    unknown = replace(placed, body=b"order-2", store_timestamp_ms=round(time.time() * 1000))
    assert orders.was_placed(unknown) == "unknown"
    old = replace(unknown, store_timestamp_ms=unknown.store_timestamp_ms - 61_000)
    assert orders.was_placed(old) == "rollback"
    orders.producer.close()


@pytest.mark.proves("documentation", "The tables of the how-to page count all, and by the hour")
def test_tables_count_all_and_by_the_hour(broker: Broker, load: Load) -> None:
    module = load("tables")
    seen = []

    async def steps() -> None:
        for count, at in ((2, 3600.0), (3, 7100.0), (4, 7300.0)):
            now = 1_700_000_000 // 3600 * 3600 + at
            sale = module.Sale(article="lamp", count=count, at=now)
            await module.sales.send(key="lamp", value=sale)
        await broker.settle()
        seen.append(module.sold["lamp"])
        seen.append(sorted(module.by_hour.table.values()))

    run(broker, module, steps)
    assert seen == [9, [4, 5]]


@pytest.mark.proves("documentation", "A Faust app counts with its new base")
def test_the_faust_app_counts_with_its_new_base(broker: Broker, load: Load) -> None:
    module = load("from-faust")
    seen = {}

    async def steps() -> None:
        for account, amount in (("a", 1), ("b", 2), ("a", 3)):
            await module.orders.send(value=module.Order(account=account, amount=amount))
        await broker.settle()
        seen.update(module.totals)

    run(broker, module, steps)
    assert seen == {"a": 4, "b": 2}

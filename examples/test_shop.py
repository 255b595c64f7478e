"""Tests of shop.py, on a node in this process: pytest examples/test_shop.py.

Real shards, filters and groups; no Ray and no waiting, because the test advances the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from shop import Order, Shop

from rocketray.testing import Broker, Clock

pytest_plugins = ["rocketray.testing.fixtures"]


class Bank:
    """A bank that refuses the first *failures* charges."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.charged: list[str] = []

    async def __call__(self, order: Order) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the bank is unavailable")
        self.charged.append(order.order_id)


def run(broker: Broker, bank: Bank, steps: Callable[[Shop], Awaitable[None]]) -> None:
    """Run the shop while *steps* are done."""

    async def scenario() -> None:
        shop = Shop(bank, connection=broker)
        async with broker.running(shop.app):
            for order_id, amount in (("small", 50.0), ("large", 200.0)):
                await shop.orders.send(value=Order(order_id=order_id, amount=amount))
            await broker.settle()
            await steps(shop)

    asyncio.run(scenario())


def test_large_orders_are_charged(broker: Broker) -> None:
    async def nothing(_: Shop) -> None: ...

    bank = Bank()
    run(broker, bank, nothing)
    assert bank.charged == ["large"]
    assert broker.lag_of("shop-charge") == 0


def test_a_refused_order_is_charged_ten_seconds_later(broker: Broker, clock: Clock) -> None:
    bank = Bank(failures=1)

    async def wait(_: Shop) -> None:
        assert bank.charged == []
        clock.advance(seconds=10)
        await broker.settle()

    run(broker, bank, wait)
    assert bank.charged == ["large"]


def test_the_log_says_why_a_small_order_was_not_charged(broker: Broker) -> None:
    async def explain(_: Shop) -> None:
        assert broker.explain("small", "shop-charge").cause.value == "sql_false"

    run(broker, Bank(), explain)

"""A filter takes the fields of an app's records, which are texts beside the log."""

from __future__ import annotations

import asyncio

import rocketray as rr
from rocketray.testing import Broker


class Order(rr.Record):
    order_id: str
    kind: str
    amount: float


def test_a_filter_of_whole_numbers_takes_the_fields_of_records(broker: Broker) -> None:
    """``amount: float`` is the text 120.0 beside the log, and BETWEEN 100 AND 500 compares it."""
    app = rr.App("trade", connection=broker)
    properties = ["amount"]
    trade = app.topic("Trade", value_type=Order, tag="kind", properties=properties)
    seen: set[str] = set()

    @app.agent(trade, sql="TAGS = 'pay' AND amount BETWEEN 100 AND 500")
    async def large(orders: rr.Stream[Order]) -> None:
        async for order in orders:
            seen.add(order.order_id)

    amounts = {"below": 99.0, "whole": 120.0, "between": 130.5, "int": 400, "above": 500.01}

    async def scenario() -> None:
        async with broker.running(app):
            for name, amount in amounts.items():
                await trade.send(value=Order(order_id=name, kind="pay", amount=amount))
            await trade.send(value=Order(order_id="ordered", kind="order", amount=120.0))
            await broker.settle()

    asyncio.run(scenario())
    assert seen == {"between", "int", "whole"}
    [filtered] = [each for each in broker.groups.all() if each.group == "trade-large"]
    assert filtered.counters.evaluation_errors == 0

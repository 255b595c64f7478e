"""SQL92 filters over the properties of messages: python examples/sql_filters.py, end with Ctrl-C.

The filter runs beside the log and reads properties only, never a body. The agents below get
nothing but the orders that match. Numbers are compared by value in any form: a ``float`` field
becomes the property ``120.0``, and ``BETWEEN 100 AND 500`` takes it.
"""

from __future__ import annotations

import rocketray as rr

app = rr.App("sql-filters")


class Order(rr.Record):
    """An order; ``coupon`` is None in most, and then the message has no such property."""

    order_id: str
    region: str
    amount: float
    coupon: str | None = None


orders = app.topic(
    "FilteredOrders",
    value_type=Order,
    queues=2,
    tag="region",
    keys=["order_id"],
    properties=["region", "amount", "coupon"],
)


@app.agent(orders, sql="amount BETWEEN 100 AND 500 AND region IN ('eu', 'us')")
async def medium(stream: rr.Stream[Order]) -> None:
    """Handle orders of medium size from two regions."""
    async for order in stream:
        print(f"medium      {order.order_id}")


@app.agent(orders, sql="coupon IS NOT NULL AND coupon STARTSWITH 'SUMMER'")
async def summer_sale(stream: rr.Stream[Order]) -> None:
    """Handle orders with a coupon of the sale."""
    async for order in stream:
        print(f"summer sale {order.order_id}")


@app.agent(orders, sql="TAGS = 'asia' OR amount > 1e3")
async def by_air(stream: rr.Stream[Order]) -> None:
    """Handle what goes by air; TAGS is the message's tag."""
    async for order in stream:
        print(f"by air      {order.order_id}")


@app.task
async def send_orders() -> None:
    """Send some orders."""
    for order in (
        Order("order-1", "eu", 120.0, "SUMMER-7"),
        Order("order-2", "eu", 20.0),
        Order("order-3", "asia", 130.5, "WINTER-1"),
        Order("order-4", "us", 2500.0),
    ):
        await orders.send(key="shop", value=order)


if __name__ == "__main__":
    app.main()

"""An app that tests can create: test_shop.py runs it on a node in the test's process."""

from __future__ import annotations

from typing import Any

import rocketray as rr


class Order(rr.Record):
    """An order."""

    order_id: str
    amount: float


class Shop:
    """The app with its topic and its agent; *bank* is called with each large order."""

    def __init__(self, bank: Any, **options: Any) -> None:
        """Declare the app; *options* are those of ``rr.App``, such as ``connection``."""
        self.app = rr.App("shop", **options)
        self.orders = self.app.topic(
            "ShopOrders", value_type=Order, queues=2, keys=["order_id"], properties=["amount"]
        )

        @self.app.agent(self.orders, sql="amount > 100")
        async def charge(stream: rr.Stream[Order]) -> None:
            async for order in stream:
                await bank(order)


async def print_order(order: Order) -> None:
    """Stand for a bank."""
    print(f"charge {order.amount} for {order.order_id}")


if __name__ == "__main__":
    Shop(print_order).app.main()

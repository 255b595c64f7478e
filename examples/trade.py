"""One topic, four systems: each agent is a consumer group and gets what it subscribed to.

Trade carries order, pay and logistics messages. Run it with ``python examples/trade.py`` and end it
with Ctrl-C; if no node runs on ./rocketray-data, it starts one. Each system prints its messages.
"""

from __future__ import annotations

import rocketray as rr

app = rr.App("trade")


class Event(rr.Record):
    """What happened to an order."""

    order_id: str
    kind: str
    note: str


trade = app.topic("Trade", value_type=Event, queues=2, tag="kind", keys=["order_id"])


@app.agent(trade, tags="logistics")
async def logistics(events: rr.Stream[Event]) -> None:
    """Deliver what was sent off."""
    async for event in events:
        print(f"logistics     {event.order_id}: {event.note}")


@app.agent(trade, tags="pay")
async def payment(events: rr.Stream[Event]) -> None:
    """Book payments."""
    async for event in events:
        print(f"payment       {event.order_id}: {event.note}")


@app.agent(trade, tags="order || pay")
async def success_rate(events: rr.Stream[Event]) -> None:
    """Compute how many orders were paid."""
    count = {"order": 0, "pay": 0}
    async for event in events:
        count[event.kind] += 1
        print(f"success rate  {count['pay']} of {count['order']} orders are paid")


@app.agent(trade, tags="*")
async def real_time(events: rr.Stream[Event]) -> None:
    """Show everything."""
    async for event in events:
        print(f"real time     {event.order_id}: {event.kind}, {event.note}")


@app.task
async def send_events() -> None:
    """Send some messages; those with one key are stored, and delivered, in their order."""
    for order_id, kind, note in (
        ("order-17", "order", "two books"),
        ("order-17", "pay", "120"),
        ("order-18", "order", "a lamp"),
        ("order-17", "logistics", "on its way"),
    ):
        await trade.send(key="shop", value=Event(order_id=order_id, kind=kind, note=note))


if __name__ == "__main__":
    app.main()

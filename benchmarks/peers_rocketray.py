"""rocketray's programs for python_peers.py: each way to send and to read, as the pages show it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from support.harness.peer_programs import (
    Pace,
    answer_turns,
    customer,
    measured_sends,
    order_body,
    order_json,
)

import rocketray as rr


class Order(rr.Record):
    """The values of the agents."""

    order_id: str
    customer: str
    region: str
    amount: float


Handler = Callable[["rr.Stream[Order]", Pace, Any], Awaitable[None]]


def fill(data: str, pace: Pace) -> None:
    with rr.Producer(data) as producer:
        for number in range(pace.count):
            sent(producer.send_oneway, number, "Back")
            producer.send_oneway(
                "Orders",
                order_json(number),
                tags="pay",
                sharding_key=customer(number),
                properties={"region": "eu", "amount": str(number % 1000)},
            )


def sent(send: Callable[..., Any], number: int, topic: str = "Load") -> Any:
    """Send a message by a call of a producer; return its result."""
    return send(
        topic,
        order_body(number),
        tags="pay",
        keys=[f"order-{number}"],
        properties={"region": "eu", "amount": str(number % 1000)},
    )


def single(data: str, pace: Pace) -> dict[str, float]:
    with rr.Producer(data) as producer:
        found = measured_sends(pace, partial(sent, producer.send))
        pace.end()
    return found


def later(data: str, pace: Pace) -> None:
    with rr.Producer(data) as producer:
        sends = [sent(producer.send_async, number) for number in pace.numbers()]
        for send in sends:
            send.result()
        pace.end()


def oneway(data: str, pace: Pace) -> None:
    with rr.Producer(data) as producer:
        for number in pace.numbers():
            sent(producer.send_oneway, number)
        producer.flush()
        pace.end()


def lists(size: int, data: str, pace: Pace) -> None:
    with rr.Producer(data) as producer:
        for first in pace.numbers(size):
            messages = [
                rr.Message(
                    "Load",
                    order_body(number),
                    tags="pay",
                    keys=[f"order-{number}"],
                    properties={"region": "eu", "amount": str(number % 1000)},
                )
                for number in range(first, first + size)
            ]
            producer.send_many("Load", messages)
        pace.end()


def messages(data: str, pace: Pace) -> None:
    group, everything = f"peers-{time.monotonic_ns()}", rr.Subscription.tags("*")
    with rr.Client(data) as client:
        pace.subscribe()
        with client.consumer(group, "Back", everything) as member:
            while pace.seen < pace.count:
                for batch in member.poll(1.0):
                    for message in batch.messages():
                        properties = message.properties
                        _ = message.body, message.keys, message.tags
                        _ = properties["region"], properties["amount"]
                    pace.read(len(batch))
                    member.commit(batch.topic, batch.queue_id, batch.next_queue_offset)
            pace.end()


async def values(stream: rr.Stream[Order], pace: Pace, _: Any) -> None:
    async for order in stream:
        _ = order.amount
        pace.one()


async def events(stream: rr.Stream[Order], pace: Pace, _: Any) -> None:
    async for event in stream.events():
        _ = event.value.amount, event.key, event.headers["region"]
        pace.one()


async def items(stream: rr.Stream[Order], pace: Pace, _: Any) -> None:
    async for key, order in stream.items():
        _ = key, order.amount
        pace.one()


async def take(stream: rr.Stream[Order], pace: Pace, _: Any) -> None:
    async for orders in stream.take(100, within=1):
        for order in orders:
            _ = order.amount
            pace.one()


async def table(stream: rr.Stream[Order], pace: Pace, counts: Any) -> None:
    async for order in stream:
        counts[order.customer] += 1
        pace.one()


async def out(stream: rr.Stream[Order], pace: Pace, topic: rr.Topic[Order]) -> None:
    async for order in stream:
        await topic.send(value=order)
        pace.one()


async def group_by(stream: rr.Stream[Order], pace: Pace, _: Any) -> None:
    stream.add_processor(pace.passed)  # what is ahead of the loop counts
    # A topic of its own: that of another turn has what this one would wait for.
    async for order in stream.group_by(Order.region, name=stream.app.conf.id):
        _ = order.amount
        pace.one()


def agent(
    handler: Handler, data: str, pace: Pace, *, needs: Callable[[rr.App], Any] | None = None
) -> None:
    """Run an app until its handler has seen all; the clocks stop with the app, all committed.

    The handler also gets what it *needs* of the app.
    """

    async def run(client: rr.Client) -> None:
        app = rr.App(f"peers-{time.monotonic_ns()}", connection=client)
        needed = needs(app) if needs else None

        @app.agent(app.topic("Orders", value_type=Order, queues=4))
        async def read(stream: rr.Stream[Order]) -> None:
            await handler(stream, pace, needed)

        done = asyncio.Event()
        pace.done = done.set
        await app.start()
        await done.wait()
        await app.stop()
        pace.end()

    with rr.Client(data) as client:
        asyncio.run(run(client))


WAYS: dict[str, Callable[[str, Pace], Any]] = {
    "fill": fill,
    "single": single,
    "later": later,
    "oneway": oneway,
    "lists-1024": partial(lists, 1024),
    "lists-32": partial(lists, 32),
    "messages": messages,
    "values": partial(agent, values),
    "events": partial(agent, events),
    "items": partial(agent, items),
    "take": partial(agent, take),
    "table": partial(agent, table, needs=lambda app: app.Table("counts", default=int)),
    "out": partial(agent, out, needs=lambda app: app.topic("Out", value_type=Order, queues=4)),
    "group_by": partial(agent, group_by),
}

if __name__ == "__main__":
    answer_turns(WAYS, sys.argv[1])

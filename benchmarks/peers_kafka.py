"""Kafka's clients for Python, for python_peers.py: each way to send and to read, as on their pages.

It runs in the environment of ``make peers``, which has the clients, and not rocketray. aiokafka and
Quix are imported only where they are measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Producer
from support.harness.peer_programs import (
    Pace,
    answer_turns,
    customer,
    measured_sends,
    order_body,
    order_json,
)


def group() -> str:
    """Return the name of a new group."""
    return f"peers-{time.monotonic_ns()}"


def produce(producer: Any, topic: str, value: bytes, key: str, number: int, **more: Any) -> None:
    """Produce a message with two headers, as soon as the producer has room for it."""
    while True:
        producer.poll(0)
        try:
            headers = {"region": "eu", "amount": str(number % 1000)}
            producer.produce(topic, value, key=key, headers=headers, **more)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def load(producer: Any, number: int, **more: Any) -> None:
    produce(producer, "Load", order_body(number), f"order-{number}", number, **more)


def fill(address: str, pace: Pace) -> None:
    """Store what the others read; a topic is created by its first message."""
    producer = Producer({"bootstrap.servers": address})
    produce(producer, "Out", order_json(0), customer(0), 0)
    for number in range(pace.count):
        produce(producer, "Back", order_body(number), f"order-{number}", number)
        produce(producer, "Orders", order_json(number), customer(number), number)
    producer.flush()


def single(address: str, pace: Pace) -> dict[str, float]:
    producer = Producer({"bootstrap.servers": address})

    def send(number: int) -> None:
        load(producer, number)
        producer.flush()

    found = measured_sends(pace, send)
    pace.end()
    return found


def reported(address: str, pace: Pace) -> None:
    producer = Producer({"bootstrap.servers": address})
    errors: list[Any] = []

    def report(error: Any, _: Any) -> None:
        if error:
            errors.append(error)

    for number in pace.numbers():
        load(producer, number, on_delivery=report)
    producer.flush()
    pace.end()
    assert not errors, errors[0]


def unreported(address: str, pace: Pace) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number in pace.numbers():
        load(producer, number)
    producer.flush()
    pace.end()


def confluent_consumer(address: str, pace: Pace) -> Any:
    """Return a consumer that begins with the first message."""
    settings = {"group.id": group(), "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": address, **settings})
    pace.subscribe()
    consumer.subscribe(["Back"])
    return consumer


def read(message: Any) -> None:
    if message.error():
        raise RuntimeError(message.error())
    headers = dict(message.headers())
    _ = message.value(), message.key(), headers["region"], headers["amount"]


def consumed(address: str, pace: Pace) -> None:
    consumer = confluent_consumer(address, pace)
    while pace.seen < pace.count:
        messages = consumer.consume(1024, timeout=1.0)
        for message in messages:
            read(message)
        if messages:
            pace.read(len(messages))
    pace.end()
    consumer.close()


def polled(address: str, pace: Pace) -> None:
    consumer = confluent_consumer(address, pace)
    while pace.seen < pace.count:
        message = consumer.poll(1.0)
        if message is not None:
            pace.one()
            read(message)
    pace.end()
    consumer.close()


def aiokafka_consumer(address: str, topic: str) -> Any:
    """Return a consumer that begins with the first message."""
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415

    settings = {"group_id": group(), "auto_offset_reset": "earliest"}
    return AIOKafkaConsumer(topic, bootstrap_servers=address, **settings)


async def many(address: str, pace: Pace) -> None:
    pace.subscribe()
    async with aiokafka_consumer(address, "Back") as consumer:
        while pace.seen < pace.count:
            found = await consumer.getmany(timeout_ms=1000, max_records=1024)
            for messages in found.values():
                for message in messages:
                    headers = dict(message.headers)
                    _ = message.value, message.key, headers["region"], headers["amount"]
                pace.read(len(messages))
        pace.end()


async def loop_values(address: str, pace: Pace) -> None:
    async with aiokafka_consumer(address, "Orders") as consumer:
        async for message in consumer:
            order = json.loads(message.value)
            _ = order["amount"]
            pace.one()
            if pace.seen == pace.count:
                break
    pace.end()


async def loop_out(address: str, pace: Pace) -> None:
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415

    async with (
        AIOKafkaProducer(bootstrap_servers=address) as producer,
        aiokafka_consumer(address, "Orders") as consumer,
    ):
        async for message in consumer:
            order = json.loads(message.value)
            await producer.send("Out", json.dumps(order).encode())
            pace.one()
            if pace.seen == pace.count:
                break
    pace.end()


def in_loop(way: Callable[[str, Pace], Awaitable[None]], address: str, pace: Pace) -> None:
    async def run() -> None:
        await way(address, pace)

    asyncio.run(run())


def quix(declare: Callable[[Any, Any, Pace], object], address: str, pace: Pace) -> None:
    """Run an application until it has seen all; the clocks stop with it, all committed."""
    from quixstreams import Application  # noqa: PLC0415

    settings = {"consumer_group": group(), "auto_offset_reset": "earliest"}
    app = Application(address, loglevel="WARNING", **settings)
    pace.done = app.stop
    declare(app, app.dataframe(app.topic("Orders")), pace)
    app.run()
    pace.end()


def quix_values(_: Any, orders: Any, pace: Pace) -> None:
    def look(order: Any) -> None:
        _ = order["amount"]
        pace.one()

    orders.update(look)


def quix_metadata(_: Any, orders: Any, pace: Pace) -> None:
    def look(order: Any, key: Any, _timestamp: Any, headers: Any) -> None:
        _ = order["amount"], key, dict(headers)["region"]
        pace.one()

    orders.update(look, metadata=True)


def quix_state(_: Any, orders: Any, pace: Pace) -> None:
    def count(_order: Any, state: Any) -> None:
        state.set("count", state.get("count", 0) + 1)
        pace.one()

    orders.update(count, stateful=True)


def quix_out(app: Any, orders: Any, pace: Pace) -> None:
    orders.update(lambda _: pace.one()).to_topic(app.topic("Out"))


def quix_group_by(app: Any, orders: Any, pace: Pace) -> None:
    quix_values(app, orders.update(pace.passed).group_by("region"), pace)


WAYS: dict[str, Callable[[str, Pace], Any]] = {
    "fill": fill,
    "single": single,
    "reported": reported,
    "unreported": unreported,
    "consumed": consumed,
    "polled": polled,
    "many": partial(in_loop, many),
    "loop_values": partial(in_loop, loop_values),
    "loop_out": partial(in_loop, loop_out),
    "quix_values": partial(quix, quix_values),
    "quix_metadata": partial(quix, quix_metadata),
    "quix_state": partial(quix, quix_state),
    "quix_out": partial(quix, quix_out),
    "quix_group_by": partial(quix, quix_group_by),
}

if __name__ == "__main__":
    answer_turns(WAYS, sys.argv[1])

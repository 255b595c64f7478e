"""Manual acknowledgement: what nobody acknowledges comes again in time, without a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.harness.patience import patience, until

from rocketray.testing import Broker, Clock
from rocketray.testing.fixtures import broker, clock
from rocketray.topology.app.app import App

__all__ = ["broker", "clock"]


@pytest.mark.parametrize("ordered", [False, True])
def test_what_is_left_behind_by_a_failure_comes_again_after_the_timeout(
    broker: Broker, clock: Clock, ordered: bool
) -> None:
    app = App("shop", connection=broker)
    topic = app.topic("orders", value_serializer="raw")
    seen: list[tuple[bytes, int]] = []

    @app.agent(topic, ordered=ordered)
    async def reader(stream: Any) -> None:
        remembered: list[Any] = []
        async for event in stream.noack().events():
            seen.append((event.value, clock()))
            if event.value == b"0" and len(seen) == 1:
                remembered.append(event)  # to be acknowledged later, but the handler fails before
            elif event.value == b"1" and len(seen) == 2:
                raise ValueError("on purpose")
            else:
                event.ack()

    def offset() -> int:
        return broker.node.state.registry.offsets.get("shop-reader", "orders", 0)

    async def scenario() -> None:
        async with broker.running(app):
            await until(lambda: b"2" in [value for value, _ in seen])
            await app.consumer.force_commit()
            assert offset() <= 0
            began = clock()
            clock.advance(minutes=14)
            await app.consumer.force_commit()
            await asyncio.sleep(0.05)
            assert reader.statistics().overdue == 0
            clock.advance(minutes=1)
            await app.consumer.force_commit()
            await until(lambda: reader.statistics().sent_back >= 1 + (not ordered))
            assert reader.statistics().overdue == 1
            clock.advance(seconds=11)
            await broker.settle()
            assert [at - began for value, at in seen if value == b"0"][1:] == [911_000]
            assert offset() == 3

    broker.topics.ensure("orders", 1)
    with broker.producer() as producer:
        for number in range(3):
            producer.send("orders", b"%d" % number)
    asyncio.run(scenario())


@pytest.mark.proves("faust", "An app stops, with and without unacknowledged messages")
def test_a_stop_neither_waits_for_what_nobody_acknowledges_nor_commits_over_it(
    broker: Broker,
) -> None:
    """Faust waits for ever for one that is still referred to, and commits over a single one."""
    app = App("shop", connection=broker)
    topic = app.topic("orders", value_serializer="raw")
    held: list[Any] = []

    @app.agent(topic)
    async def reader(stream: Any) -> None:
        async for event in stream.noack().events():
            held.append(event)
            if event.value != b"4":
                event.ack()

    async def scenario() -> None:
        async with broker.running(app):
            await until(lambda: len(held) == 10)

    broker.topics.ensure("orders", 1)
    with broker.producer() as producer:
        for number in range(10):
            producer.send("orders", b"%d" % number)
    asyncio.run(asyncio.wait_for(scenario(), patience(30)))
    assert broker.node.state.registry.offsets.get("shop-reader", "orders", 0) == 4

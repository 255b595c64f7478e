"""Apps on the kit: an agent is tested with its filter, its failures and its sends."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from support.harness.patience import until

import rocketray as rr
from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.testing import Broker, Clock


class Order(rr.Record, serializer="json"):
    region: str
    amount: int


def shop(broker: Broker) -> tuple[rr.App, Any, list[int], list[int]]:
    """An app that charges large orders, and what it charged and on what it failed."""
    app = rr.App("shop", connection=broker)
    orders = app.topic("orders", value_type=Order, properties=["region", "amount"], queues=2)
    receipts = app.topic("receipts", value_type=int, queues=1)
    charged: list[int] = []
    failures: list[int] = []

    @app.agent(orders, sql="amount > 100")
    async def charge(stream: Any) -> None:
        async for order in stream:
            if order.amount == 666 and len(failures) < 2:
                failures.append(order.amount)
                raise ConnectionError("the bank is away")
            charged.append(order.amount)
            await receipts.send(value=order.amount)

    return app, orders, charged, failures


def test_an_agent_gets_what_its_filter_lets_through_and_what_it_failed_on_again(
    broker: Broker, clock: Clock
) -> None:
    async def scenario() -> None:
        app, orders, charged, failures = shop(broker)
        async with broker.running(app):
            for amount in (50, 666, 200, 80):
                await orders.send(value=Order("eu", amount))
            await broker.settle()
            assert (charged, failures) == ([200], [666])
            clock.advance(seconds=10)
            await broker.settle()
            assert failures == [666, 666]
            clock.advance(seconds=29)
            await broker.settle()
            assert charged == [200]
            clock.advance(seconds=1)
            await broker.settle()
            assert charged == [200, 666]
            assert broker.lag_of("shop-charge") == 0
            assert sum(broker.committed("shop-charge", "orders").values()) == 4
            assert sorted(int(one.body) for one in broker.stored("receipts")) == [200, 666]

    asyncio.run(scenario())


def test_a_message_climbs_the_whole_ladder_in_no_time(broker: Broker, clock: Clock) -> None:
    async def scenario() -> None:
        app = rr.App("shop", connection=broker)
        orders = app.topic("orders", value_type=Order, queues=1)
        attempts: list[int] = []

        @app.agent(orders)
        async def charge(stream: Any) -> None:
            async for event in stream.events():
                attempts.append(clock() - started)
                assert event.reconsume_times == len(attempts) - 1
                raise ConnectionError("the bank is away")

        started = clock()
        async with broker.running(app):
            await orders.send(value=Order("eu", 1))
            await broker.settle()
            for level in DELAY_LEVELS_MS[2:]:
                clock.advance(milliseconds=level)
                await broker.settle()
            clock.advance(hours=10)
            await broker.settle()
        waits = [after - before for before, after in pairwise(attempts)]
        assert waits == list(DELAY_LEVELS_MS[2:])
        [letter] = broker.stored("%DLQ%shop-charge")
        assert letter.reconsume_times == 17
        assert broker.lag_of("shop-charge") == 0

    asyncio.run(scenario())


def test_settling_says_what_does_not_come_to_an_end(broker: Broker) -> None:
    async def scenario() -> None:
        app = rr.App("shop", connection=broker)
        orders = app.topic("orders", value_type=Order, queues=1)

        @app.agent(orders, ordered=True)
        async def charge(stream: Any) -> None:
            async for _ in stream:
                raise ConnectionError("the bank is away")

        async with broker.running(app):
            await orders.send(value=Order("eu", 1))
            await until(lambda: charge.statistics().failures)
            with pytest.raises(TimeoutError, match="orders/0 at offset 0 of 1") as raised:
                await broker.settle(rounds=500)
            assert "agent charge failed last: ConnectionError: the bank" in str(raised.value)

    asyncio.run(scenario())


def test_settling_names_a_handler_that_never_asks_for_a_message(broker: Broker) -> None:
    async def scenario() -> None:
        app = rr.App("shop", connection=broker)
        orders = app.topic("orders", value_type=Order, queues=1)

        @app.agent(orders)
        async def charge(stream: Any) -> None:
            for _ in stream:
                pass

        async with broker.running(app):
            await orders.send(value=Order("eu", 1))
            await until(lambda: charge.statistics().failures)
            with pytest.raises(TimeoutError, match=r"agent charge failed last: .*use `async for`"):
                await broker.settle(rounds=250)

    asyncio.run(scenario())


def test_settling_raises_what_ended_an_app(broker: Broker) -> None:
    async def scenario() -> None:
        app = shop(broker)[0]
        async with broker.running(app):
            (member,) = broker.members("shop-charge")
            broker.faults.crash(member)
            await until(lambda: app.crash_reason)
            with pytest.raises(rr.StreamError, match="crashed"):
                await broker.settle()

    asyncio.run(scenario())


def test_two_instances_of_an_app_share_its_group(broker: Broker, clock: Clock) -> None:
    async def scenario() -> None:
        broker.topics.ensure("orders", 2)
        (one, orders, charged, _), (two, _, charged_too, _) = shop(broker), shop(broker)
        async with broker.running(one), broker.running(two):
            for _ in range(4):
                clock.advance(seconds=1)
                await broker.settle()
            held = [member.assignment() for member in broker.members("shop-charge")]
            assert sorted(map(len, held)) == [1, 1]
            for amount in range(101, 121):
                await orders.send(value=Order("eu", amount), partition=amount % 2)
            await broker.settle()
            assert sorted([charged, charged_too]) == [
                list(range(101, 121, 2)),
                list(range(102, 121, 2)),
            ]

    asyncio.run(scenario())


def test_a_shard_that_is_away_for_a_moment_costs_an_app_nothing(broker: Broker) -> None:
    async def scenario() -> None:
        app, orders, charged, _ = shop(broker)
        async with broker.running(app):
            await orders.send(value=Order("eu", 101))
            await broker.settle()
            with broker.faults.shard_down("receipts"):
                await orders.send(value=Order("eu", 102))
                with pytest.raises(TimeoutError):
                    await broker.settle(rounds=100)
            await broker.settle()
            assert charged == [101, 102]
            assert [int(one.body) for one in broker.stored("receipts")] == [101, 102]

    asyncio.run(scenario())

"""Stock Faust apps without a lease: nothing is handed out, and nothing is lost."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from support.harness.patience import until
from support.nodes.apps import committed, numbers, put, running
from support.nodes.local_node import LocalNode
from support.nodes.stock_apps import stock_app

from rocketray.errors import ShardUnavailableError
from rocketray.groups.lease import LEASE_MS
from rocketray.messaging.consumers.app_member import AppMember
from rocketray.runtime.clock import steady_clock_ms
from rocketray.topology.stock.stock_consumer import LeasedGeneration


def test_a_generation_is_equal_to_its_number_as_long_as_the_lease_runs() -> None:
    runs = [True]
    generation = LeasedGeneration(3, lambda: runs[0])
    assert (generation == 3, generation != 3, generation == 4) == (True, False, False)
    runs[0] = False
    assert (generation == 3, generation != 3) == (False, True)
    assert hash(generation) == hash(3)


@pytest.mark.proves(
    "stock-faust",
    "A stopped process that continues delivers nothing without a lease and loses nothing",
)
@pytest.mark.parametrize("uses_cython", [True, False])
def test_a_stopped_app_drops_what_it_had_fetched_and_gets_it_again(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, uses_cython: bool
) -> None:
    if not uses_cython:
        monkeypatch.setattr("faust.streams._CStreamIterator", None)
    late_ms = [0]
    monkeypatch.setattr(
        "rocketray.topology.stock.stock_consumer.AppMember",
        partial(AppMember, clock_ms=lambda: steady_clock_ms() + late_ms[0]),
    )
    seen: list[bytes] = []
    is_away = [False]
    beat = node.sessions.heartbeat

    def heartbeat(report: Any) -> Any:
        if is_away[0]:
            raise ShardUnavailableError("the coordinator", "away", 1)
        return beat(report)

    monkeypatch.setattr(node.sessions, "heartbeat", heartbeat)

    async def scenario() -> None:
        app, goes_on = stock_app(node), asyncio.Event()

        async def hold(stream: Any) -> None:
            async for value in stream:
                seen.append(value)
                await goes_on.wait()

        app.agent(app.topic("T", value_serializer="raw"), name="hold")(hold)
        async with running(app):
            await until(lambda: seen)
            is_away[0] = True
            late_ms[0] = LEASE_MS  # as if the process had been stopped
            goes_on.set()
            await asyncio.sleep(0.5)
            assert seen == [b"0"]
            is_away[0] = False
            await until(lambda: len(seen) == 50)

    node.topics.ensure("T", 1)
    put(node, "T", numbers(50))
    asyncio.run(scenario())
    assert seen == numbers(50)
    assert committed(node, "stock", "T") == 50

"""Agents that get everything, in each instance of their app."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.harness.patience import until
from support.nodes.apps import collecting, numbers, put, running
from support.nodes.local_node import LocalNode

from rocketray.errors import ConfigError
from rocketray.topology.app.app import App

pytestmark = pytest.mark.proves(
    "durability",
    "A damaged file of the node's state is rebuilt from its copy, and each other row of that table",
)


def instance(node: LocalNode, client_id: str, seen: list[bytes]) -> App:
    app = App("app", connection=node)
    app.client_id = client_id

    async def reader(stream: Any) -> None:
        async for body in stream:
            if body == b"1":
                raise ValueError("on purpose")
            seen.append(body)

    topic = app.topic("T", queues=2, value_serializer="raw")
    app.agent(topic, name="reader", broadcast=True)(reader)
    return app


def test_each_instance_gets_everything_and_passes_what_fails(node: LocalNode) -> None:
    first_seen: list[bytes] = []
    second_seen: list[bytes] = []

    async def scenario() -> None:
        first, second = instance(node, "one", first_seen), instance(node, "two", second_seen)
        async with running(first), running(second):
            await asyncio.to_thread(put, node, "T", numbers(4))
            await until(lambda: len(first_seen) == len(second_seen) == 3)
            await until(lambda: first.agents["reader"].statistics().failures == 1)
        again = instance(node, "one", first_seen)
        async with running(again):
            await asyncio.to_thread(put, node, "T", numbers(1, first=7))
            await until(lambda: len(first_seen) > 3)

    asyncio.run(scenario())
    assert sorted(second_seen) == [b"0", b"2", b"3"]
    assert sorted(first_seen) == [b"0", b"2", b"3", b"7"], "it went on where it was"
    assert [name for name in node.topics.all() if name.startswith("%")] == []


def test_a_broadcast_agent_has_nothing_to_divide_and_no_retries() -> None:
    several: list[dict[str, Any]] = [{"max_attempts": 3}, {"ordered": True}, {"strategy": "sticky"}]
    for options in several:
        with pytest.raises(ConfigError, match="logs, counts and skips"):
            App("app").agent("T", broadcast=True, **options)(collecting([]))

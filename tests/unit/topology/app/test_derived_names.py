"""Names that Faust makes of an app's, agents' and tables' names, where those have dots.

RocketMQ's names have none; what is derived has ``%2E`` instead, as with stock apps. Names that
users give to topics and groups themselves are taken as they are, or refused.
"""

from __future__ import annotations

import asyncio
from typing import Any

import faust
import pytest
from support.harness.patience import patience, until
from support.nodes.apps import running
from support.nodes.local_node import LocalNode

from rocketray.errors import ConfigError
from rocketray.topology.app.app import App


class Order(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    kind: str


@pytest.mark.proves("faust", "Names with dots: differs")
def test_an_app_with_dots_in_every_name_groups_counts_answers_and_tries_again(
    node: LocalNode,
) -> None:
    app = App("shop.eu", connection=node)
    orders = app.topic("Orders", value_type=Order, queues=2)
    counts = app.Table("counts.by.kind", default=int, partitions=2)
    failed: list[str] = []

    @app.agent(orders, name="shop.count")
    async def count(stream: Any) -> None:
        async for order in stream.group_by(Order.kind):
            counts[order.kind] += 1

    @app.agent(orders, name="shop.fail", max_attempts=0)
    async def fail(stream: Any) -> None:
        async for order in stream:
            failed.append(order.kind)
            raise ValueError("asked to")

    @app.agent(name="shop.answer")
    async def answer(stream: Any) -> Any:
        async for number in stream:
            yield number + 1

    async def scenario() -> None:
        async with running(app):
            for kind in ("a", "b", "a"):
                await orders.send(value=Order(kind))
            await until(lambda: counts["a"] == 2 and counts["b"] == 1 and len(failed) == 3)
            assert await asyncio.wait_for(answer.ask(1), patience(30)) == 2

    asyncio.run(scenario())
    assert {name for name in node.topics.all() if "%2E" in name} == {
        "shop%2Ecount-Orders-kind-repartition",
        "shop%2Eeu-counts%2Eby%2Ekind-changelog",
        "shop%2Eeu-shop%2Eanswer",
        "%DLQ%shop%2Eeu-shop%2Efail",
    }


def test_a_dot_in_a_name_that_the_user_gave_is_refused_at_once(node: LocalNode) -> None:
    app = App("shop.eu", connection=node)

    async def read(stream: Any) -> None: ...

    with pytest.raises(
        ConfigError, match=r"topic 'a\.b' has characters that are not allowed: '\.'"
    ):
        app.topic("a.b")
    for channel, group in (("a.b", None), ("Orders", "a.b")):
        with pytest.raises(ConfigError, match=r"'a\.b' has characters that are not allowed: '\.'"):
            app.agent(channel, name="read", group=group)(read)

"""The programs that Faust's own examples are about, with nothing changed but the broker.

Greetings, a word count over two agents and a web page, page views that are grouped by page, and
aggregates over windows that go to another topic when their window closes.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any

import aiohttp
import faust
import pytest
from faust.web import View
from support.harness.patience import patience, until
from support.nodes.apps import collecting, running
from support.nodes.local_node import LocalNode
from support.nodes.stock_apps import stock_app


class PageView(faust.Record, serializer="json"):  # type: ignore[misc,call-arg]  # Faust's types
    page: str
    user: str


class Reading(faust.Record, serializer="json"):  # type: ignore[misc,call-arg]  # the same
    sensor: str
    degrees: float
    second: float


class Average(faust.Record, serializer="json"):  # type: ignore[misc,call-arg]  # the same
    sensor: str
    degrees: float


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.proves("stock-faust", "Greetings")
def test_greetings_that_a_timer_sends(node: LocalNode) -> None:
    heard: list[str] = []

    async def scenario() -> None:
        app = stock_app(node, "greetings")
        greetings = app.topic("greetings", value_type=str, value_serializer="raw")
        app.agent(greetings, name="listen")(collecting(heard))

        @app.timer(0.02)  # type: ignore[untyped-decorator]  # Faust's
        async def greet() -> None:
            await greetings.send(value="hello")

        async with running(app):
            await until(lambda: len(heard) >= 3)

    asyncio.run(scenario())
    assert set(heard) == {"hello"}


@pytest.mark.proves("stock-faust", "Word count, with a page routed by key")
def test_words_are_counted_and_looked_up_on_a_web_page(node: LocalNode) -> None:
    posts = ["to be or not", "not to be", "or to be"]

    async def scenario() -> None:
        port = free_port()
        app = stock_app(
            node, "words", web_enabled=True, web_port=port, web_bind="127.0.0.1",
            web_host="127.0.0.1",
        )  # fmt: skip
        counts = app.Table("counts", default=int, key_type=str, value_type=int)

        @app.agent(value_type=str, key_type=str, name="count")  # type: ignore[untyped-decorator]
        async def count(words: Any) -> None:
            async for word in words:
                counts[word] += 1

        @app.agent(app.topic("posts", value_type=str))  # type: ignore[untyped-decorator]
        async def split(stream: Any) -> None:
            async for post in stream:
                for word in post.split():
                    await count.send(key=word, value=word)

        @app.page("/count/{word}/")  # type: ignore[untyped-decorator]
        @app.table_route(table=counts, match_info="word")  # type: ignore[untyped-decorator]
        async def look_up(web: Any, request: Any, word: str) -> Any:
            return web.json({word: counts[word]})

        @app.page("/all/")
        class All(View):  # type: ignore[misc]
            async def get(self, request: Any) -> Any:
                return self.json(dict(counts.items()))

        async with running(app):
            for post in posts:
                await split.send(value=post)
            await until(lambda: sum(counts.values()) == 10)
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                async with session.get("/count/be/") as answer:
                    assert await answer.json() == {"be": 3}
                async with session.get("/all/") as answer:
                    assert await answer.json() == Counter(" ".join(posts).split())

    asyncio.run(scenario())


@pytest.mark.proves("stock-faust", "Word count, with a page routed by key")
def test_a_page_that_is_routed_by_key_answers_from_the_instance_that_has_it(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketray.topology.stock.stock_consumer.LOOK_INTERVAL_S", 0.05)
    words = [f"w{number}" for number in range(8)]

    def build(port: int) -> tuple[Any, Any, Any]:
        app = stock_app(
            node, "routed", web_enabled=True, web_port=port, web_bind="127.0.0.1",
            web_host="127.0.0.1",
        )  # fmt: skip
        counts = app.Table("counts", default=int, key_type=str, value_type=int)
        topic = app.topic("words", key_type=str, value_type=str)

        @app.agent(topic)  # type: ignore[untyped-decorator]
        async def count(stream: Any) -> None:
            async for word in stream:
                counts[word] += 1

        @app.page("/count/{word}/")  # type: ignore[untyped-decorator]
        @app.table_route(table=counts, match_info="word")  # type: ignore[untyped-decorator]
        async def look_up(web: Any, request: Any, word: str) -> Any:
            return web.json({word: counts[word]})

        return app, counts, topic

    async def look_all_up(port: int) -> list[dict[str, int]]:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            answers = [await session.get(f"/count/{word}/") for word in words]
            return [await answer.json() if answer.status == 200 else {} for answer in answers]

    async def scenario() -> None:
        ports = free_port(), free_port()
        (one, first, topic), (other, second, _) = map(build, ports)
        async with running(one), running(other):
            await until(lambda: one.consumer.assignment() and other.consumer.assignment())
            for word in words:
                await topic.send(key=word, value=word)
            await until(lambda: len(first) + len(second) == len(words))
            assert first
            assert second
            async with asyncio.timeout(patience(30)):
                for port in ports:
                    while await look_all_up(port) != [{word: 1} for word in words]:  # noqa: ASYNC110  # nothing tells
                        await asyncio.sleep(0.05)

    asyncio.run(scenario())


@pytest.mark.proves("stock-faust", "Page views grouped by page")
def test_page_views_are_grouped_by_page(node: LocalNode) -> None:
    async def scenario() -> None:
        app = stock_app(node, "page-views")
        views = app.topic("views", value_type=PageView)
        counts = app.Table("views-by-page", default=int)

        @app.agent(views)  # type: ignore[untyped-decorator]
        async def count(stream: Any) -> None:
            async for view in stream.group_by(PageView.page):
                counts[view.page] += 1

        async with running(app):
            for number in range(40):
                await views.send(value=PageView(page=f"/{number % 5}", user=f"u{number}"))
            await until(lambda: sum(counts.values()) == 40)
            assert dict(counts.items()) == {f"/{page}": 8 for page in range(5)}
            # A page has one queue, so its changes have one, too.
            assert {tp.topic for tp in app.consumer.assignment()} >= {
                "views",
                "page-views-views-by-page-changelog",
            }

    asyncio.run(scenario())


@pytest.mark.proves("stock-faust", "Aggregates over windows")
def test_windows_that_close_send_their_aggregates_on(node: LocalNode) -> None:
    averages: list[Average] = []
    seen = 0
    begin = 1_000_000.0  # windows by the readings' own times, which are long ago

    async def scenario() -> None:
        app = stock_app(node, "averages", table_cleanup_interval=3600, topic_partitions=1)
        readings = app.topic("readings", value_type=Reading)
        results = app.topic("averages", value_type=Average)

        def close(key: Any, values: list[float]) -> None:
            sensor = key[0]
            results.send_soon(value=Average(sensor=sensor, degrees=sum(values) / len(values)))

        table = (
            app.Table("by-window", default=list, partitions=1, on_window_close=close)
            .tumbling(10.0, expires=10.0)
            .relative_to_field(Reading.second)
        )

        @app.agent(readings)  # type: ignore[untyped-decorator]
        async def aggregate(stream: Any) -> None:
            async for reading in stream:
                nonlocal seen
                table[reading.sensor] = [*table[reading.sensor].value(), reading.degrees]
                seen += 1

        app.agent(results, name="watch")(collecting(averages))
        async with running(app):
            for number in range(40):
                await readings.send(
                    value=Reading(sensor="s", degrees=float(number), second=begin + number)
                )
            await until(lambda: seen == 40)
            await table.table._del_old_keys()  # what Faust does at its interval
            await until(lambda: len(averages) == 4)

    asyncio.run(scenario())
    assert [average.degrees for average in averages] == [4.5, 14.5, 24.5, 34.5]

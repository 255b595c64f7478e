"""Pages of apps: which instance answers, and with what."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from support.harness.patience import patience, until
from support.nodes.apps import running
from support.nodes.local_node import LocalNode

from rocketray.topology.app.app import App

WORDS = ["to", "be", "or", "not", "that", "is", "the", "question"]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Counter:
    """An instance of an app that counts words and answers for them."""

    def __init__(self, node: LocalNode) -> None:
        self.port = free_port()
        self.app = App(
            "app", connection=node, web_enabled=True, web_port=self.port, web_bind="127.0.0.1",
            web_host="127.0.0.1",
        )  # fmt: skip
        self.topic = self.app.topic("Words", key_type=str, value_type=int, queues=4)
        self.counts = counts = self.app.Table("counts", default=int, key_type=str)
        self.seen: dict[str, int] = {}

        @self.app.agent(self.topic, name="count")
        async def count(stream: Any) -> None:
            async for word, number in stream.items():
                counts[word] += number
                self.seen[word] = number

        @self.app.page("/hello/{name}/")  # type: ignore[untyped-decorator]  # Faust's
        async def hello(web: Any, request: Any, name: str) -> Any:  # Faust's names
            return web.json({"hello": name})

        @self.app.page("/count/{word}/")  # type: ignore[untyped-decorator]
        @self.app.table_route(table=counts, match_info="word")  # type: ignore[untyped-decorator]
        async def look_up(web: Any, request: Any, word: str) -> Any:
            return web.json(counts[word])

        @self.app.page("/seen/{word}/")  # type: ignore[untyped-decorator]
        @self.app.topic_route(topic=self.topic, match_info="word")  # type: ignore[untyped-decorator]
        async def last(web: Any, request: Any, word: str) -> Any:
            return web.json(self.seen.get(word))

    async def get(self, path: str) -> Any:
        """What the page says, or its status where that is not 200."""
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self.port}") as session,
            session.get(path) as answer,
        ):
            return json.loads(await answer.text()) if answer.status == 200 else answer.status


async def until_answered(ask: Callable[[], Awaitable[Any]], expected: Any) -> None:
    """Wait until *ask* gives *expected*: routes are looked for every two seconds."""
    async with asyncio.timeout(patience(30)):
        while await ask() != expected:  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0.05)


@pytest.mark.proves("faust", "`@app.page`: differs")
def test_pages_and_routes_to_keys_of_tables(node: LocalNode) -> None:
    async def scenario() -> None:
        one = Counter(node)
        async with running(one.app):
            await one.topic.send(key="a", value=3)
            await until(lambda: one.seen)
            assert await one.get("/hello/bob/") == {"hello": "bob"}
            assert await one.get("/count/a/") == 3
            assert await one.get("/count/none/") == 0, "all of the table is here"

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`@app.table_route`, `@app.topic_route`: works")
def test_a_key_of_another_instance_is_asked_there(node: LocalNode) -> None:
    async def scenario() -> None:
        one, other = Counter(node), Counter(node)
        async with running(one.app), running(other.app):
            await until(lambda: one.app.tables.owned_queues() and other.app.tables.owned_queues())
            await until(lambda: len(one.app.tables.owned_queues()) == 2)
            for number, word in enumerate(WORDS):
                await one.topic.send(key=word, value=number)
            await until(lambda: len(one.seen) + len(other.seen) == len(WORDS))
            assert one.seen
            assert other.seen
            for number, word in enumerate(WORDS):
                for instance in (one, other):
                    for path in (f"/count/{word}/", f"/seen/{word}/"):
                        await until_answered(lambda: instance.get(path), number)  # noqa: B023  # awaited

    asyncio.run(scenario())


def test_a_key_whose_queue_nobody_is_known_to_have_is_not_found_out_about(node: LocalNode) -> None:
    async def scenario() -> None:
        one, other = Counter(node), Counter(node)
        async with running(one.app), running(other.app):
            await until(lambda: len(one.app.tables.owned_queues()) == 2)
            for word in WORDS:
                await one.topic.send(key=word, value=0)
            await until(lambda: len(one.seen) + len(other.seen) == len(WORDS))
            one.app.router._owners = {}
            answers = {word: await one.get(f"/count/{word}/") for word in WORDS}
            assert set(answers.values()) == {0, 503}

    asyncio.run(scenario())


async def look_away() -> None:
    """In place of a look at the routes: an instance learns nothing new."""


def test_a_request_is_passed_on_once_though_each_instance_names_the_other(node: LocalNode) -> None:
    async def scenario() -> None:
        one, other = Counter(node), Counter(node)
        async with running(one.app), running(other.app):
            await until(lambda: len(one.app.tables.owned_queues()) == 2)
            for instance, named in ((one, other), (other, one)):
                address = f"http://127.0.0.1:{named.port}"
                instance.app.router._owners = {"Words": dict.fromkeys(range(4), address)}
                instance.app.router.refresh_owners = look_away
            async with asyncio.timeout(patience(20)):
                assert await one.get("/seen/to/") == 503

    asyncio.run(scenario())

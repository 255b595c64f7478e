"""Messages that were damaged on disk while their shard runs: agents get all others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import until
from support.nodes.apps import committed, make_app, running
from support.nodes.ladder import Ladder
from support.nodes.local_node import LocalNode

from rocketray.message import Message
from rocketray.runtime.files.paths import shard_directory

pytestmark = pytest.mark.proves(
    "durability",
    "Agents skip damaged records, count them and get all others",
)

BODIES = [b"body %d" % number for number in range(12)]
BAD = (0, 4, 5, 11)
GOOD = [body for number, body in enumerate(BODIES) if number not in BAD]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    """A node with twelve messages, of which four were damaged afterwards."""
    with LocalNode(tmp_path) as node:
        node.topics.ensure("T", 1)
        with node.producer() as producer:
            properties = {"colour": "green"}
            producer.send_many("T", [Message("T", body, properties=properties) for body in BODIES])
        damage(node, [(BODIES[number], BODIES[number].upper()) for number in BAD])
        yield node


def damage(node: LocalNode, changes: list[tuple[bytes, bytes]]) -> None:
    [log] = (shard_directory(node.data, "T", 0) / "commitlog").iterdir()
    with log.open("r+b") as file:
        content = file.read()
        for old, new in changes:
            file.seek(content.index(old))
            file.write(new)


async def values(stream: Any) -> AsyncIterator[bytes]:
    async for value in stream:
        yield value


async def events(stream: Any) -> AsyncIterator[bytes]:
    async for event in stream.events():
        yield event.value


async def acknowledged(stream: Any) -> AsyncIterator[bytes]:
    async for event in stream.noack().events():
        yield event.value
        event.ack()


async def filtered(stream: Any) -> AsyncIterator[bytes]:
    async for value in stream.filter(lambda _: True):
        yield value


async def lists(stream: Any) -> AsyncIterator[bytes]:
    async for part in stream.take(5, within=0.01):
        for value in part:
            yield value


async def rows(stream: Any) -> AsyncIterator[bytes]:
    async for batch in stream.batches(["body"]):
        for value in batch.column(0).to_pylist():
            yield value


@pytest.mark.proves("delivery", "Damaged messages are counted, and all others are delivered")
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("read", [values, events, acknowledged, filtered, lists, rows])
def test_damaged_messages_are_counted_and_all_others_are_handed_out(
    node: LocalNode,
    read: Callable[[Any], AsyncIterator[bytes]],
    ordered: bool,  # of the parameters
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []

        @app.agent(topic, ordered=ordered)
        async def reader(stream: Any) -> None:
            async for value in read(stream):
                seen.append(value)  # noqa: PERF401

        async with running(app):
            await until(lambda: reader.statistics().damaged == len(BAD) and len(seen) >= len(GOOD))
            statistics = reader.statistics()
            assert (statistics.failures, statistics.sent_back) == (0, 0)
        assert seen == GOOD
        assert committed(node, "app-reader", "T") == len(BODIES)

    asyncio.run(scenario())
    node.close()
    for number in BAD:
        assert f"topic T queue 0 offset {number} is damaged and is not delivered" in caplog.text


def test_a_handler_that_fails_on_a_good_message_gets_that_one_again_and_no_damaged_one(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for batch in stream.batches(["body"]):
                seen.extend(batch.column(0).to_pylist())
                if BODIES[2] in seen[-batch.num_rows :]:
                    raise ValueError("on purpose")

        async with running(app):
            await until(lambda: reader.statistics().damaged == len(BAD) and BODIES[10] in seen)
        assert set(seen) == set(GOOD)
        assert [one.body for one in Ladder(node).waiting()] == [BODIES[2]]

    asyncio.run(scenario())
    node.close()


def test_a_message_that_is_damaged_beside_its_body_is_skipped_too(node: LocalNode) -> None:
    damage(node, [(BODIES[7] + b"\x01T", BODIES[7] + b"\x01\xff")])  # its topic is no text now

    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream:
                seen.append(value)  # noqa: PERF401 - the test waits for each

        async with running(app):
            await until(lambda: reader.statistics().damaged == len(BAD) + 1 and BODIES[10] in seen)
        assert seen == [body for body in GOOD if body != BODIES[7]]
        assert committed(node, "app-reader", "T") == len(BODIES)

    asyncio.run(scenario())
    node.close()

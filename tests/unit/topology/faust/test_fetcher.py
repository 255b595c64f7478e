"""Feeds are opened each for itself: one that fails takes no other along, and leaves no member."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack

import pytest
from support.harness.patience import patience, until
from support.nodes.apps import collecting, running
from support.nodes.local_node import LocalNode

from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.groups.member_options import FetchCompression, MemberOptions
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.topology.app.app import App
from rocketray.topology.delivery.feed import Feed
from rocketray.topology.faust import fetcher
from rocketray.topology.faust.fetcher import join

RETRIES = {name: f"%RETRY%app-{name}" for name in "ab"}


class WatchedNode(LocalNode):
    """A node that members cannot join at once."""

    def __init__(self, data: Path) -> None:
        self.refusals: list[str] = []
        self.compressions: dict[str, FetchCompression | None] = {}
        self.may_join = threading.Event()
        self.may_join.set()
        super().__init__(data)

    def consumer(
        self,
        group: str,
        topic: str,
        subscription: Subscription,
        **options: Unpack[MemberOptions],
    ) -> GroupConsumer:
        if topic in self.refusals:
            self.refusals.remove(topic)
            raise ShardUnavailableError("the coordinator", "away, as the test asked")
        self.may_join.wait(patience(30))
        self.compressions[topic] = options.get("fetch_compression")
        return super().consumer(group, topic, subscription, **options)

    def member_counts(self) -> dict[str, int]:
        return {group.topic: len(group.members) for group in self.groups.all()}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[WatchedNode]:
    with WatchedNode(tmp_path) as node:
        yield node


def make_app(node: LocalNode, **options: Any) -> App:
    app = App("app", connection=node, **options)
    for name in "ab":
        topic = app.topic(f"T{name}", value_serializer="raw")
        app.agent(topic, name=name)(collecting([]))
    return app


def test_a_retry_topic_is_read_though_another_cannot_be_joined(
    node: WatchedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "RETRY_LOOK_S", 0.05)

    async def scenario() -> None:
        async with running(make_app(node)) as app:
            node.may_join.clear()
            node.refusals = [RETRIES["a"]]
            for topic in RETRIES.values():
                node.topics.ensure(topic, 1, internal=True)
            await until(lambda: not node.refusals)
            node.may_join.set()
            expected = {"Ta", "Tb", *RETRIES.values()}
            await until(lambda: {feed.topic for feed in app.fetcher.feeds} == expected)
            assert node.member_counts() == dict.fromkeys(expected, 1)
        assert set(node.member_counts().values()) == {0}

    asyncio.run(scenario())
    node.close()


def test_all_members_of_an_app_fetch_with_its_compression(node: WatchedNode) -> None:
    async def scenario(**options: Any) -> set[FetchCompression | None]:
        async with running(make_app(node, **options)):
            await until(lambda: {"Ta", "Tb"} <= node.compressions.keys())
        return {node.compressions.pop(topic) for topic in ("Ta", "Tb")}

    assert asyncio.run(scenario()) == {None}
    assert asyncio.run(scenario(fetch_compression="zstd")) == {"zstd"}
    node.close()


def test_a_feed_that_does_not_start_leaves_its_group_and_is_tried_again(
    node: WatchedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, failures = Feed.start, [StreamError("as the test asked")]

    async def fail_once(feed: Feed) -> None:
        if feed.topic == "Ta" and failures:
            raise failures.pop()
        await start(feed)

    monkeypatch.setattr(Feed, "start", fail_once)

    async def scenario() -> None:
        app = make_app(node)
        opened = app.fetcher.open_missing
        told: list[tuple[str, dict[str, int]]] = []

        async def open_twice() -> None:
            with pytest.raises(StreamError) as caught:
                await opened()
            told.append((str(caught.value), node.member_counts()))
            await opened()

        monkeypatch.setattr(app.fetcher, "open_missing", open_twice)
        async with running(app):
            assert told == [("as the test asked", {"Ta": 0, "Tb": 1})]
            assert node.member_counts() == {"Ta": 1, "Tb": 1}

    asyncio.run(scenario())
    node.close()


@pytest.mark.parametrize("is_late", [False, True])
def test_a_member_that_nobody_waits_for_any_more_is_closed(
    is_late: bool,  # of the parameters
) -> None:
    begun, may_go, closed = (threading.Event() for _ in range(3))

    class Member:
        def close(self) -> None:
            closed.set()

    def make() -> Any:
        begun.set()
        may_go.wait(patience(30))
        return Member()

    async def scenario() -> None:
        joining = asyncio.create_task(join(make))
        await asyncio.to_thread(begun.wait, 30)
        if not is_late:
            may_go.set()
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        may_go.set()
        await asyncio.to_thread(closed.wait, 30)
        assert closed.is_set()

    asyncio.run(scenario())

"""Queues that are taken away: what handlers are inside of, and what is committed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.harness.patience import patience, until
from support.nodes.apps import committed, numbers, put
from support.nodes.feeds import feeding
from support.nodes.local_node import LocalNode

from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers import member as member_module
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.topology.delivery import feed as feed_module
from rocketray.topology.delivery.feed import Feed

ALL = Subscription.tags("*")
QUEUE = frozenset({("T", 0)})


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "_REVOKE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(member_module, "HEARTBEAT_INTERVAL_S", 0.05)


@pytest.fixture
def node(node: LocalNode) -> LocalNode:
    node.topics.ensure("T", 1)
    put(node, "T", numbers(5))
    return node


class Other:
    """Another member, to which the queue belongs as soon as it is there."""

    def __init__(self, member: GroupConsumer) -> None:
        self._member = member
        self._is_done = False
        self.got: list[bytes] = []
        self._polling = asyncio.create_task(asyncio.to_thread(self._poll))

    @classmethod
    async def join(cls, node: LocalNode) -> Other:
        return cls(await asyncio.to_thread(GroupConsumer, node, "g", "T", ALL, client_id="0"))

    def _poll(self) -> None:
        while not self._is_done:
            for batch in self._member.poll(0.01):
                self.got += batch.bodies()

    async def close(self) -> None:
        self._is_done = True
        await self._polling
        await asyncio.to_thread(self._member.close)


async def begin_first(queue: Any) -> Any:
    """Have a handler inside of the first message."""
    delivery = await queue.get()
    delivery.is_active = True
    return delivery


def revoke(feed: Feed) -> asyncio.Task[None]:
    """Take the queue away, as a poll does."""
    on_revoke = feed._member.on_revoke
    assert on_revoke is not None
    return asyncio.create_task(asyncio.to_thread(on_revoke, QUEUE))


@pytest.mark.proves("groups", "Ordered agents keep a queue until the handler has finished")
@pytest.mark.parametrize("is_ordered", [False, True])
def test_where_order_is_kept_nobody_gets_a_message_that_a_handler_has(
    node: LocalNode,
    is_ordered: bool,  # of the parameters
) -> None:
    async def scenario() -> None:
        async with feeding(node, is_ordered=is_ordered) as (_, queue, failed):
            delivery = await begin_first(queue)
            other = await Other.join(node)
            if is_ordered:
                await until(lambda: delivery.is_withdrawn)
                await asyncio.sleep(0.5)  # ten times what others wait, and ten heartbeats
                assert other.got == []
            else:
                await until(lambda: len(other.got) == 5)
                assert delivery.is_withdrawn
            delivery.cursor, delivery.is_active = 1, False
            await until(lambda: len(other.got) == (4 if is_ordered else 5))
            assert other.got == numbers(5)[-len(other.got) :]
            assert failed == []
            await other.close()

    asyncio.run(scenario())


def test_an_ordered_feed_that_is_closed_does_not_wait_for_its_handler(node: LocalNode) -> None:
    async def scenario() -> None:
        async with feeding(node, is_ordered=True) as (feed, queue, _):
            await begin_first(queue)
            revoking = revoke(feed)
            await feed.drain(0.1)
            assert not revoking.done()
            await asyncio.wait_for(feed.close(), patience(10))
            await revoking

    asyncio.run(scenario())


def test_a_queue_that_is_taken_away_while_the_app_stops_is_finished_and_committed_first(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "_REVOKE_TIMEOUT_S", 5.0)

    async def scenario() -> None:
        async with feeding(node) as (feed, queue, _):
            delivery = await begin_first(queue)
            draining = asyncio.create_task(feed.drain(5.0))
            await until(lambda: delivery.is_withdrawn)
            revoking = revoke(feed)
            await asyncio.sleep(0.1)
            assert not revoking.done()
            delivery.cursor, delivery.is_active = 1, False
            await asyncio.gather(draining, revoking)
            await until(lambda: committed(node, "g", "T") == 1)

    asyncio.run(scenario())


def test_what_is_finished_but_not_committed_yet_is_committed_with_the_queue(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        async with feeding(node) as (feed, queue, _):
            (await queue.get()).cursor = 3
            told = feed.finished()  # a commit that waits until sends are stored
            assert told == [(0, 3)]
            await revoke(feed)
            await until(lambda: committed(node, "g", "T") == 3)
            feed.commit([(0, 2)])  # one from before, for a queue that is gone
            await asyncio.sleep(0.2)
            assert committed(node, "g", "T") == 3

    asyncio.run(scenario())

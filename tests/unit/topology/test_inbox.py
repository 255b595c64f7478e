from __future__ import annotations

import asyncio

import pytest
from mode.utils.queues import FlowControlEvent, ThrowableQueue
from support.batches import list_batch

from rocketray.topology.delivery import Delivery, split
from rocketray.topology.inbox import LEASE_LOOK_S, Inbox


def one(*queue_offsets: int) -> Delivery:
    (delivery,) = split(list_batch(queue_offsets), 1)
    return delivery


def make() -> tuple[Inbox, ThrowableQueue]:
    queue = ThrowableQueue(maxsize=0, flow_control=FlowControlEvent())
    return Inbox(queue), queue


def test_an_unpassed_delivery_is_handed_out_again() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        first, second = one(1, 2), one(3)
        queue.force_put_nowait(first)
        queue.force_put_nowait(second)
        assert await inbox.next() is first
        first.cursor = 1
        assert await inbox.next() is first
        first.cursor = 2
        assert await inbox.next() is second

    asyncio.run(scenario())


def test_passed_and_withdrawn_deliveries_are_released() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        released: list[Delivery] = []
        passed, withdrawn, last = one(1), one(2), one(3)
        for delivery in (passed, withdrawn, last):
            delivery.on_released = released.append
            queue.force_put_nowait(delivery)
        assert await inbox.next() is passed
        passed.cursor = 1
        withdrawn.is_withdrawn = True
        assert await inbox.next() is last
        assert released == [passed, withdrawn]

    asyncio.run(scenario())


def test_what_is_thrown_into_the_channel_ends_the_wait() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        waiting = asyncio.create_task(inbox.next())
        await asyncio.sleep(0)
        queue._throw(LookupError("stop"))
        with pytest.raises(LookupError):
            await waiting

    asyncio.run(scenario())


def test_a_wait_with_a_limit_loses_nothing() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        assert not await inbox.take_next_within(0.001)
        delivery = one(1)
        queue.force_put_nowait(delivery)
        assert await inbox.take_next_within(0.001)
        assert inbox.unpassed() == [delivery]

    asyncio.run(scenario())


def test_failures_are_counted_per_place() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        delivery = one(1, 2)
        queue.force_put_nowait(delivery)
        assert [inbox.note_failure(), inbox.note_failure()] == [1, 2]  # before any message
        await inbox.next()
        assert [inbox.note_failure(), inbox.note_failure()] == [1, 2]
        delivery.cursor = 1
        assert [inbox.note_failure(), inbox.note_failure(), inbox.note_failure()] == [1, 2, 3]

    asyncio.run(scenario())


def test_nothing_is_handed_out_while_others_may_own_the_queue() -> None:
    async def scenario() -> None:
        inbox, queue = make()
        delivery, is_leased = one(1, 2), [False]
        delivery.is_leased = lambda: is_leased[0]
        queue.force_put_nowait(delivery)
        waiting = asyncio.create_task(inbox.next())
        await asyncio.sleep(2 * LEASE_LOOK_S)
        assert not waiting.done()
        is_leased[0] = True
        assert await waiting is delivery
        is_leased[0] = False
        delivery.is_withdrawn = True
        await inbox.until_leased()
        assert inbox.unpassed() == []

    asyncio.run(scenario())

"""A feed over a node in this process, whose handlers are the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Hashable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mode.utils.queues import FlowControlEvent, ThrowableQueue
from support.nodes.local_node import LocalNode

from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.runtime.clock import steady_clock_ms, system_clock_ms
from rocketray.topology.delivery.delivery import Delivery
from rocketray.topology.delivery.feed import Feed, FeedServices
from rocketray.topology.delivery.flow import FlowLimits
from rocketray.topology.delivery.returns import Returns
from rocketray.topology.values.failure_rules import FailureRules
from rocketray.topology.values.group import GroupMembership

ALL = Subscription.tags("*")


class FailingConsumer(GroupConsumer):
    """A real member whose polls raise what the test asks for first."""

    failures: Sequence[Exception] = ()

    def poll(
        self, timeout_s: float = 0.0, max_messages: int = 1000, skip: Container[int] = ()
    ) -> list[ConsumedBatch]:
        if self.failures:
            first, *self.failures = self.failures
            raise first
        return super().poll(timeout_s, max_messages, skip)


class WatchedTables:
    """Tables that say which queues they were told of, and may be slow or away for a moment."""

    def __init__(self) -> None:
        self.told: list[tuple[str, set[int]]] = []
        self.ready = asyncio.Event()
        self.ready.set()
        self.failures: list[Exception] = []
        self.changes_wait = False

    async def gain(self, holder: Hashable, queue_ids: Iterable[int]) -> None:
        self.told.append(("gain", set(queue_ids)))
        await self.ready.wait()
        if self.failures:
            raise self.failures.pop()

    async def lose(self, holder: Hashable, queue_ids: Iterable[int]) -> None:
        self.told.append(("lose", set(queue_ids)))


@asynccontextmanager
async def feeding(
    node: LocalNode,
    handlers: int = 1,
    failures: Sequence[Exception] = (),
    tables: WatchedTables | None = None,
    *,
    is_ordered: bool = False,
    flow: FlowLimits | None = None,
    clock_ms: Callable[[], int] = steady_clock_ms,
) -> AsyncIterator[tuple[Feed, Any, list[Exception]]]:
    """A feed of topic "T" for group "g", its handlers' queue, and what it failed of."""
    queue = ThrowableQueue(maxsize=0, flow_control=FlowControlEvent())
    failed: list[Exception] = []
    flushed: list[int] = []

    async def on_made() -> None:
        flushed.append(1)

    async def flush() -> bool:
        flushed.append(1)
        return tables is None or not tables.changes_wait

    async def connect() -> LocalNode:
        return node

    returns = Returns(connect, on_made)
    member = FailingConsumer(node, "g", "T", ALL, clock_ms=clock_ms)
    member.failures = failures
    feed = Feed(
        "T",
        GroupMembership("g", ALL, handlers),
        member,
        queue,
        rules=FailureRules("g", is_ordered=is_ordered),
        services=FeedServices(
            returns, flush, tables or WatchedTables(), flow or FlowLimits(), system_clock_ms
        ),
        on_failure=failed.append,
    )
    await feed.start()
    try:
        yield feed, queue, failed
    finally:
        await feed.drain(0.1)
        await feed.close()
        await returns.close()


def pass_over(delivery: Delivery) -> None:
    """Finish it, as a handler does."""
    delivery.cursor = delivery.stop
    delivery.release()

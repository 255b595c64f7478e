"""An app's way from a group's members to its handlers, one step at a time, in one thread's order.

It is made of the product's own parts: members, feeds, inboxes, failures, returns. What a process
does by itself, polling and calling handlers, is done here when the test says so, and a test plays
the handlers: it takes a message or a list, and finishes it, or raises. The loop's clock is the
broker's, so queues rest and leases end by it. What is on its way back to the node stays on its way
while ``road`` is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

from mode.utils.queues import FlowControlEvent, ThrowableQueue

from rocketray.broker.retries.retry_records import retry_topic
from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.errors import BatchError
from rocketray.filters.subscription import EVERYTHING, Subscription
from rocketray.testing import Broker, Member
from rocketray.topology.delivery import feed as feed_module
from rocketray.topology.delivery import returns as returns_module
from rocketray.topology.delivery.delivery import Delivery, position_text
from rocketray.topology.delivery.failure import fail
from rocketray.topology.delivery.feed import Feed, FeedServices
from rocketray.topology.delivery.flow import FlowLimits
from rocketray.topology.delivery.inbox import Hand, Inbox
from rocketray.topology.delivery.returns import Returns
from rocketray.topology.values.failure_rules import FailureRules
from rocketray.topology.values.group import GroupMembership

TOPIC = "T"
_LOOKS = 200


class SteppedLoop(asyncio.SelectorEventLoop):
    """A loop whose time is that of a broker: it stands still until the test moves it.

    What fails in a callback is kept, for the test to fail with: asyncio only logs it.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        super().__init__()
        self.errors: list[BaseException] = []
        self.set_exception_handler(self._keep)

    def _keep(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(error or RuntimeError(context["message"]))

    def time(self) -> float:
        return self._broker.clock() / 1000


@contextmanager
def without_waiting() -> Iterator[None]:
    """Let nothing wait for time to pass: a poll answers at once, and so ends every grace."""
    patched = [
        (feed_module, "POLL_TIMEOUT_S", 0.0),
        (feed_module, "_REVOKE_TIMEOUT_S", 0.0),
        (returns_module, "_RETRY_S", 0.0),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in patched]
    for module, name, value in patched:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


class Watcher(Protocol):
    """Who checks what an app does."""

    def began(self, feed: SteppedFeed, queue_id: int, start: int) -> None:
        """A feed reads a queue from an offset on."""

    def read(self, feed: SteppedFeed, batch: ConsumedBatch, start: int) -> None:
        """A feed got a batch, having read up to *start* before."""

    def gave_up(self, feed: SteppedFeed, queue_id: int, committed: int) -> None:
        """A feed reads a queue no more."""

    def handed(self, feed: SteppedFeed, delivery: Delivery, index: int) -> None:
        """A handler gets a message."""

    def finished(self, feed: SteppedFeed, delivery: Delivery, index: int) -> None:
        """A handler is through with a message."""

    def failed(self, feed: SteppedFeed, delivery: Delivery, index: int) -> None:
        """A handler is about to raise on a message."""

    def comes_again(self, feed: SteppedFeed, delivery: Delivery, index: int) -> None:
        """A list was not finished, and this message of it comes alone."""


class SteppedFeed(Feed):
    """A feed that polls when it is told to."""

    def __init__(
        self, app: SteppedApp, topic: str, member: Member, membership: GroupMembership
    ) -> None:
        super().__init__(
            topic,
            membership,
            member,
            app.channel,
            rules=app.rules,
            services=FeedServices(
                app.returns,
                _nothing_to_flush,
                None,
                FlowLimits(messages=40, span=30),
                app.broker.clock,
            ),
            on_failure=app.failures.append,
        )
        self.app = app
        self.member = member
        self.positions: dict[int, int] = {}
        self.committed: dict[int, int] = {}
        self.silent_since_ms = 0
        """When its heartbeats last began not to arrive: silences may follow each other."""
        self.beats = -1
        """How many it had sent then."""

    def step(self) -> None:
        """What the thread does once."""
        if self._window.wait_for_room(0.0) or self._member.needs_rebalance:
            self._poll()

    def note_new(self) -> None:
        """Tell the watcher of queues that are read from now on.

        A member that opens a queue after its lease has expired delivers nothing of it: another
        member may own the queue by then.
        """
        for _, queue_id in sorted(self.member.assignment()):
            if queue_id not in self.positions and self.member.is_leased:
                start = self.member._session.finished()[queue_id]
                self.positions[queue_id] = self.committed[queue_id] = start
                self.app.watcher.began(self, queue_id, start)

    def commit(self, offsets: Any) -> None:
        moved = dict(offsets)
        self.committed |= moved
        super().commit(moved.items())

    def forget(self, queue_ids: Sequence[int]) -> None:
        """These queues are read no more, and what was finished is committed."""
        for queue_id in queue_ids:
            if self.positions.pop(queue_id, None) is not None:
                self.app.watcher.gave_up(self, queue_id, self.committed.pop(queue_id))

    def _may_keep_queues(self) -> bool:
        """Handlers are as slow as can be: whoever waits for one has waited until its lease ended."""
        return False

    def _run(self) -> None:
        """The thread has nothing to do."""

    def _accept(self, batches: Sequence[ConsumedBatch]) -> None:
        self.note_new()
        for batch in batches:
            self.app.watcher.read(self, batch, self.positions[batch.queue_id])
            self.positions[batch.queue_id] = batch.next_queue_offset
        super()._accept(batches)

    async def _revoke(self, queue_ids: Sequence[int]) -> None:
        await super()._revoke(queue_ids)
        self.forget(queue_ids)


class Handler:
    """One handler of an agent, whose part the test plays."""

    def __init__(self, app: SteppedApp) -> None:
        self.inbox = Inbox(app.channel)
        self.hand: tuple[SteppedFeed, Delivery, int, int] | None = None
        """What it works on: messages of a delivery from an index up to another."""
        self._app = app

    async def begin(self, *, as_list: bool) -> bool:
        """Take the next message, or what is left of its batch; False when there is none now."""
        assert self.hand is None
        while all(one.is_suspended for one in self.inbox.unpassed()):
            if self._app.channel.empty():
                return False
            await self.inbox.take_next()
        delivery = await self.inbox.next()
        delivery.is_active = True
        start = delivery.cursor
        end = delivery.batch_end() if as_list else start + 1
        if as_list:
            self.inbox.give_list(Hand([(delivery, start, end)], is_list=True))
        feed = delivery.owner
        assert isinstance(feed, SteppedFeed), (
            f"nobody owns what comes from {position_text(delivery)}"
        )
        self.hand = feed, delivery, start, end
        for index in range(start, end):
            self._app.watcher.handed(feed, delivery, index)
        return True

    def finish(self) -> None:
        """Ask for the next message, so this one is finished."""
        feed, delivery, start, end = self._let_go()
        delivery.cursor = end
        for index in range(start, end):
            self._app.watcher.finished(feed, delivery, index)

    async def fail(self, number: int | None) -> None:
        """Raise; with *number* saying which message of a list it is."""
        hand, is_list = self.inbox.hand(), self.inbox._hand.is_list
        feed, delivery, start, end = self._let_go()
        error: Exception = ValueError("as the test wants it")
        watcher = self._app.watcher
        blamed = start if number is None else start + number
        if is_list and number is not None:
            error = BatchError(number)
            for index in range(start, blamed):
                watcher.finished(feed, delivery, index)
            for index in range(blamed + 1, end):
                watcher.comes_again(feed, delivery, index)
        if end - start == 1 or number is not None:
            watcher.failed(feed, delivery, blamed)
        else:
            for index in range(start, end):
                watcher.comes_again(feed, delivery, index)
        await fail(self.inbox, hand, error, "the handler")

    def _let_go(self) -> tuple[SteppedFeed, Delivery, int, int]:
        assert self.hand is not None
        hand, self.hand = self.hand, None
        self.inbox.deactivate()
        return hand


class SteppedApp:
    """One process of an app: members on the topic and on the retry topic, and handlers."""

    def __init__(
        self,
        broker: Broker,
        watcher: Watcher,
        name: str,
        subscription: Subscription,
        *,
        rules: FailureRules,
        handlers: int,
    ) -> None:
        """Made on its loop; reads nothing before the first step."""
        self.broker = broker
        self.watcher = watcher
        self.name = name
        self.is_excused = False
        """Something was done to it that lets others read its queues, or repeat what it did."""
        self.rules = rules
        self.membership = GroupMembership(rules.group, subscription, handlers)
        self.channel = ThrowableQueue(maxsize=0, flow_control=FlowControlEvent())
        self.road = asyncio.Event()
        self.road.set()
        self.returns = Returns(self._connect, _nothing)
        self.failures: list[Exception] = []
        self.feeds: dict[str, SteppedFeed] = {}
        self.handlers = [Handler(self) for _ in range(handlers)]
        self._thread = ThreadPoolExecutor(1)

    async def step(self) -> None:
        """Open what is to be read, and poll each feed once."""
        for topic in (TOPIC, retry_topic(self.rules.group)):
            if topic not in self.feeds and topic in self.broker.topics.all():
                chosen = self.membership.subscription if topic == TOPIC else EVERYTHING
                member = self.broker.consumer(self.rules.group, topic, chosen, client_id=self.name)
                self.feeds[topic] = SteppedFeed(self, topic, member, self.membership)
                await self.feeds[topic].start()
                self.feeds[topic].note_new()
        loop = asyncio.get_running_loop()
        for feed in self.feeds.values():
            await loop.run_in_executor(self._thread, feed.step)
            feed.note_new()
        if self.failures:
            raise self.failures.pop()

    def commit(self) -> None:
        """Commit what is finished, as an app does twice a second."""
        for feed in self.feeds.values():
            feed.commit(feed.finished())

    async def flush(self) -> None:
        """Let what failed arrive at the node, where the road is open."""
        loop, returns = asyncio.get_running_loop(), self.returns
        for _ in range(_LOOKS):
            if not self.road.is_set() or not returns._pending:
                return
            for thread in returns.threads.values():
                await loop.run_in_executor(thread, int)  # behind what is being stored
        raise AssertionError("what failed does not arrive at the node")

    async def leave(self) -> None:
        """Stop in order."""
        for feed in self.feeds.values():
            await feed.drain(0.0)
        await self.flush()
        self.commit()
        for feed in self.feeds.values():
            feed.forget(list(feed.positions))
            await feed.close()
        await self._end()

    async def crash(self) -> None:
        """End as a killed process does."""
        for feed in self.feeds.values():
            feed._closing.set()
            self.broker.faults.crash(feed.member)
        await self._end()

    async def _end(self) -> None:
        await self.returns.close()
        self._thread.shutdown()

    async def _connect(self) -> Any:
        await self.road.wait()
        return self.broker


async def _nothing() -> None:
    """Nobody to tell."""


async def _nothing_to_flush() -> bool:
    return True

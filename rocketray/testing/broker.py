"""The node for users' tests: stepped, with a clock that the test advances, and faults on request.

A call that changes something completes all consequences before it returns: a message that was sent
is stored, filtered and waiting at its member. Time passes only by :meth:`Clock.advance`. The only
threads are those of code that blocks: an app's feeds, and predicates.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack

from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.named_filters.joining import join_by_filter
from rocketray.errors import ConfigError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.groups.member_options import MemberOptions
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import lag_of
from rocketray.messaging.producers.async_producer import NodeAsyncProducer
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.producer_options import ProducerOptions
from rocketray.runtime.one_process import OfOneProcess
from rocketray.services.explaining.explanation import Explanation
from rocketray.services.explaining.inquiry import inquire
from rocketray.services.explaining.suggestions import like

from .clock import Clock
from .faults import Faults
from .member import Member
from .stepped_node import SteppedNode

SETTLE_ROUNDS = 10_000  # ten seconds or longer: a busy machine's rounds take longer, too
_ROUND_S = 0.001
_ALL_ROUNDS = 30  # times the limit: for an app that keeps sending itself messages


class Broker(OfOneProcess, what="broker"):
    """A node in this process. Give it to an app: ``App("shop", connection=broker)``."""

    def __init__(
        self,
        data: Path | None = None,
        *,
        clock: Clock | None = None,
        predicates: Sequence[str] = (),
    ) -> None:
        """Start on *data*, or on a temporary directory that is removed with the broker.

        *predicates* are the modules from which groups may name class filters.
        """
        self.settle_rounds = SETTLE_ROUNDS
        """For how many rounds without a finished message :meth:`settle` waits."""
        self._is_temporary = data is None
        self.data = data or Path(tempfile.mkdtemp(prefix="rocketray-"))
        self.clock = self.clock_ms = clock or Clock()
        """The broker's clock, which stands still until the test advances it."""
        self._stepped = SteppedNode(self.data, self.clock, FilterRules(allowed=tuple(predicates)))
        node = self.node = self._stepped.node
        """The node itself: its client, and its parts."""
        self.topics, self.groups, self.filters = node.topics, node.groups, node.filters
        self.named_filters = node.named_filters
        self.messages, self.delays = node.messages, node.delays
        self.transactions, self.sessions = node.transactions, node.sessions
        self.files, self.at = node.files, node.at
        self.faults = Faults(self._stepped)
        """What the test lets fail."""
        self._apps: list[Any] = []
        self._commits: dict[Any, asyncio.Task[Any]] = {}  # commits that outlasted one settling

    # The calls of producers, members and apps

    def producer(self, **options: Unpack[ProducerOptions]) -> NodeProducer:
        """Return a producer; the options are those of ``ProducerOptions``."""
        return NodeProducer(self.node, clock_ms=self.clock, **options)

    def async_producer(self, **options: Unpack[ProducerOptions]) -> NodeAsyncProducer:
        """Return a producer for tasks; the options are those of ``ProducerOptions``."""
        return NodeAsyncProducer(partial(self.producer, **options))

    def consumer(
        self,
        group: str,
        topic: str,
        subscription: Subscription | FilterName,
        **options: Unpack[MemberOptions],
    ) -> Member:
        """Return a new member of *group*; the options are those of ``MemberOptions``."""

        def join(found: Subscription) -> Member:
            timed = partial(Member, step=self._stepped.step, clock_ms=self.clock.steady)
            make = partial(timed, self.node, group, topic, found, **options)
            return self._stepped.join(make)

        return join_by_filter(self.named_filters, group, topic, subscription, join)

    def members(self, group: str | None = None) -> list[Member]:
        """Return the living members, of one group or of all, in the order in which they joined."""
        return self._stepped.members(group)

    # Apps

    @asynccontextmanager
    async def running(self, app: Any) -> AsyncIterator[Any]:
        """Start *app*, and stop it at the end of the block."""
        await app.start()
        self._apps.append(app)
        try:
            yield app
        finally:
            self._apps.remove(app)
            await app.stop()

    async def settle(self, rounds: int | None = None) -> None:
        """Wait until the apps have finished and committed all their messages.

        It counts rounds, not seconds, which on a busy machine may pass without the apps. In a round
        the handlers have the loop for a millisecond or longer, and the apps commit.

        Raises:
            TimeoutError: no message was finished in *rounds* consecutive rounds, by default the
                broker's ``settle_rounds``; or messages are finished and others come for 30 times
                as many. It names the first queue that is not finished, and what the apps' agents
                failed on last.
        """
        limit = self.settle_rounds if rounds is None else rounds
        count = idle = 0
        before = self._progress()
        while unfinished := await self._unfinished():
            now = self._progress()
            count, idle = count + 1, idle + 1 if now == before else 0
            before = now
            if idle >= limit or count >= limit * _ALL_ROUNDS:
                found = "; ".join([unfinished, *self._failures()])
                raise TimeoutError(
                    f"no message was finished in {idle:,} rounds: {found}"
                    if idle >= limit
                    else f"messages are finished and others come, after {count:,} rounds: {found}"
                )
            # Handlers run on this loop, so each turn has to leave it to them.
            await asyncio.sleep(_ROUND_S)

    # Results

    def stored(self, topic: str) -> list[StoredMessage]:
        """Return all stored messages of a topic, queue by queue, in order within each."""
        return self.node.stored(topic)

    def explain(
        self, message: str, group: str | None = None, topic: str | None = None
    ) -> Explanation:
        """Explain why the message with that id or key was, or was not, delivered to *group*."""
        return inquire(self.node, message, group, topic)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the group's next offset in each queue of *topic*; -1 if it has none."""
        self._stepped.beat()
        offsets = self.node.state.registry.offsets
        queues = range(self.topics.get(topic).queues)
        return {queue: offsets.get(group, topic, queue) for queue in queues}

    def lag_of(self, group: str) -> int:
        """Return how many messages that match its filters the group has not finished.

        Raises:
            ConfigError: there is no such group.
        """
        self._stepped.beat()
        groups = self.groups.all()
        found = [description for description in groups if description.group == group]
        if not found:
            near = like(group, {description.group for description in groups})
            raise ConfigError(f"no member of a group {group!r} has joined{near}")
        return sum(
            lag.count for description in found for lag in lag_of(self.node, description).values()
        )

    def close(self) -> None:
        """Close it, and remove its directory if that is a temporary one."""
        self._stepped.close()
        if self._is_temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _unfinished(self) -> str:
        """Return the position of the first app with unfinished work, in words."""
        for app in self._apps:
            if app.crash_reason is not None:
                raise app.crash_reason
            if not await self._commit(app):
                return "messages sent by an app are not stored"
        with self._stepped.lock:
            self._stepped.beat()
            self._stepped.step()
            return next(filter(None, map(self._unfinished_by, self._of_apps())), "")

    def _unfinished_by(self, member: Member) -> str:
        """Return the first queue that *member* has not finished to its end, in words."""
        if member.is_moving:
            return f"{member.topic}: queues are being reassigned"
        for queue_id, finished in member.finished().items():
            end = self._visible(member.topic, queue_id)
            if finished < end:
                return f"{member.topic}/{queue_id} at offset {finished} of {end}"
        return ""

    def _progress(self) -> list[dict[int, int]]:
        """Return how far the apps' members are finished, in each of their queues."""
        with self._stepped.lock:
            return [member.finished() for member in self._of_apps()]

    def _of_apps(self) -> list[Member]:
        # Only a feed sets it; a test's own members are polled by the test.
        return [member for member in self.members() if member.on_revoke is not None]

    def _failures(self) -> list[str]:
        """Return what each agent failed on last, a text each."""
        agents = [each for app in self._apps for each in app.agents.values()]
        noted = [(each.name, each.statistics().last_failure) for each in agents]
        return [f"agent {name} failed last: {each.reason}" for name, each in noted if each]

    async def _commit(self, app: Any) -> bool:
        """Have *app* commit; False if it still waits for sends after a round."""
        task = self._commits.get(app) or asyncio.create_task(app.consumer.force_commit())
        done, _ = await asyncio.wait({task}, timeout=_ROUND_S)
        if done:
            self._commits.pop(app, None)
        else:
            self._commits[app] = task  # not cancelled: its offsets to commit would be lost
        return bool(done)

    def _visible(self, topic: str, queue_id: int) -> int:
        return self.node.shard(topic, queue_id).writer.control.visible()

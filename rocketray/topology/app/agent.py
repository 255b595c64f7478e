"""Agents: an async function over a stream, in a consumer group of its own.

A handler that raises is restarted over the same stream, in the same task. First its current
messages are handled (failure.py): sent back, dead-lettered, or retried in place. A handler that
raises outside of a message is restarted after a pause that doubles with every consecutive failure.
No supervisor takes part, unless the agent names one: then the supervisor decides whether and when
the handler is restarted, and the messages are handled all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict
from operator import attrgetter
from typing import Any

import faust
from faust.agents.agent import _current_agent
from mode.utils.aiter import aiter as any_aiter

from rocketray.errors import ConfigError, NodeElsewhereError
from rocketray.filters.filter_name import FilterName
from rocketray.groups.failing import reason_of
from rocketray.runtime.clock import system_clock_ms
from rocketray.topology.connection import AppNode
from rocketray.topology.delivery.delivery import place_of
from rocketray.topology.delivery.failure import fail, note_failure
from rocketray.topology.delivery.feed import FeedStatistics
from rocketray.topology.delivery.isolation import Isolation
from rocketray.topology.delivery.noted_failure import NotedFailure
from rocketray.topology.values.group import GroupMembership
from rocketray.topology.values.topic import Topic

from .agent_statistics import AgentStatistics, HeldQueue
from .stream import Stream

logger = logging.getLogger(__name__)

_EVERYTHING = ("", "*")  # RocketMQ takes both for "no filter"
_NO_ITEMS = f"'{Stream.__name__}' object is not subscriptable"  # Python's text for ``stream[…]``


class Agent(faust.Agent):  # type: ignore[misc]  # Faust's types are not followed
    """A Faust agent that is a member of a consumer group."""

    def __init__(
        self, fun: Any, *, membership: GroupMembership | None = None, **options: Any
    ) -> None:
        self.membership = membership
        self._failures = 0
        self._last_failure: NotedFailure | None = None
        self._isolation: Isolation | None = None
        super().__init__(fun, **options)

    def info(self) -> dict[str, Any]:
        """Return the arguments that make a clone of this agent."""
        return {**super().info(), "membership": self.membership}

    def clone(self, *, cls: Any = None, **changes: Any) -> Any:
        """Return a copy; of another class, such as a test context, without the options of ours."""
        if cls is None or issubclass(cls, Agent):
            return super().clone(cls=cls, **changes)
        return cls(**{**super().info(), **changes})

    def stream(self, channel: Any = None, active_partitions: Any = None, **options: Any) -> Any:
        """Return the stream that a handler reads; one channel for all handlers of the agent."""
        if channel is None and isinstance(self.channel, Topic):
            channel = self.channel.clone(is_iterator=False, membership=self.membership)
        return super().stream(channel, active_partitions, **options)

    async def _on_start_supervisor(self) -> None:
        """Start the handlers; one of a single queue starts with the queue's first delivery."""
        if not (self.isolated_partitions and isinstance(self.channel, Topic)):
            await super()._on_start_supervisor()
            return
        channel = self.channel.clone(is_iterator=True, membership=self.membership)
        channel.isolation = self._isolation = Isolation(self, channel)
        self.app.topics.add(channel)
        await self.supervisor.start()

    async def start_isolated(self, channel: Topic) -> None:
        """Start the handler of the one queue of *channel*."""
        actor = await self._start_one(active_partitions=channel.active_partitions, channel=channel)
        self.supervisor.add(actor)
        await actor.maybe_start()

    async def end_isolated(self, channel: Topic) -> None:
        """Let the handler of *channel* finish its message, and end it."""
        for actor in [each for each in self._actors if each.stream.channel is channel]:
            self.supervisor.discard(actor)
            await actor.stop()

    async def ask_nowait(self, value: Any = None, *, reply_to: Any = None, **options: Any) -> Any:
        """Send a question; return the promise of its answer, which comes to topic *reply_to*."""
        if reply_to == self.app.conf.reply_to:
            await self.app._reply_consumer.declare(reply_to)  # noqa: SLF001  # contract-tested
        return await super().ask_nowait(value, reply_to=reply_to, **options)

    async def _barrier_send(self, barrier: Any, items: Any, reply_to: Any) -> AsyncIterator[str]:
        """Ask many questions; Faust buffers at most 1000 answers that were not read yet."""
        # A full queue of 1000 raises in the one task that reads the answers of the whole app.
        barrier._results = asyncio.Queue()  # noqa: SLF001  # contract-tested
        async for correlation_id in super()._barrier_send(barrier, items, reply_to):
            yield correlation_id

    def statistics(self) -> AgentStatistics:
        feeds = self.app.fetcher.feeds_of(self.membership)
        sums: Counter[str] = Counter(dict.fromkeys(FeedStatistics.__dataclass_fields__, 0))
        for feed in feeds:
            sums.update(asdict(feed.statistics()))
        held = (
            HeldQueue(feed.topic, queue_id, message)
            for feed in feeds
            for queue_id, message in sorted(feed.failing().items())
        )
        return AgentStatistics(
            name=self.name,
            group="" if self.membership is None else self.membership.group,
            finished=sums["received"] - sums.pop("unfinished"),
            failures=self._failures + sums.pop("unheard"),
            held=tuple(held),
            last_failure=max(
                filter(None, (self._last_failure, *(feed.last_unheard for feed in feeds))),
                key=attrgetter("time_ms"),
                default=None,
            ),
            **sums,
        )

    async def _execute_actor(self, coro: Any, aref: Any) -> None:
        """Run a handler until its agent stops, restarting it whenever it raises."""
        if self.supervisor_strategy is not None:
            await super()._execute_actor(self._settling(coro, aref), aref)
            return
        _current_agent.set(self)
        own_processors = list(aref.stream._processors)  # noqa: SLF001  # contract-tested
        while True:
            try:
                await coro
            except asyncio.CancelledError as error:
                if _is_cancelled():
                    raise
                await self._recover(aref, error)  # of something that the handler awaited
            except Exception as error:  # noqa: BLE001  # whatever a handler raises
                await self._recover(aref, error)
            else:
                self._note_return(aref)
                return
            feeds_another_topic = aref.stream.get_active_stream().channel is not aref.stream.channel
            if not feeds_another_topic:  # which the handler continues to read
                aref.stream._processors[:] = own_processors  # noqa: SLF001  # it adds its own again
            coro = self._call_again(aref)

    async def _recover(self, aref: Any, error: BaseException) -> None:
        delay = await self._settle(aref, error)
        if self._on_error is not None:
            await self._on_error(self, error)
        await asyncio.sleep(delay)

    async def _settle(self, aref: Any, error: BaseException) -> float:
        """Count a failure and handle the current messages; return the seconds until the next."""
        self._failures += 1
        who, active = f"agent {self.name}", aref.stream.get_active_stream()
        inbox = active.inbox if isinstance(active, Stream) else None
        hand = None if inbox is None else inbox.hand()
        if not hand:
            error = _hinted(error, aref.stream)
        runs = () if hand is None else hand.runs
        place = place_of(*runs[0]) if len(runs) == 1 else None
        self._last_failure = NotedFailure(system_clock_ms(), reason_of(error), place)
        if isinstance(active, Stream) and active.spans is not None:
            active.spans.failed(error)
        await _close_iterators(aref.stream)
        if inbox is None or not hand:
            return note_failure(who, error, inbox)
        inbox.deactivate()
        await fail(inbox, hand, error, who)
        return 0.0

    async def _settling(self, coro: Any, aref: Any) -> None:
        """Run a handler that a supervisor may restart."""
        try:
            await coro
        except Exception as error:
            await self._settle(aref, error)
            raise

    def _call_again(self, aref: Any) -> Any:
        aref.it = self.fun(aref.stream)
        return aref if hasattr(aref, "__await__") else self._slurp(aref, any_aiter(aref))

    def _note_return(self, aref: Any) -> None:
        if self._isolation is not None and not self._isolation.is_open(aref.stream.channel):
            return  # its queue was revoked
        if not self.app.should_stop and not self.should_stop and not self.app.agents.should_stop:
            logger.warning("agent %s returned, so it reads no more messages", self.name)


def _is_cancelled() -> bool:
    """Return whether the handler itself was cancelled."""
    task = asyncio.current_task()
    # A ``CancelledError`` may also come from a future that the handler awaited, and another task
    # cancelled; then the handler is restarted like after any other error.
    return task is not None and task.cancelling() > 0


def _hinted(error: BaseException, stream: Any) -> BaseException:
    """Return *error*, with a hint if a handler took its *stream* for one message."""
    is_attribute = isinstance(error, AttributeError) and error.obj is stream
    is_item = isinstance(error, TypeError) and str(error) == _NO_ITEMS
    if not is_attribute and not is_item:
        return error
    hinted = ConfigError(
        f"{error}; an agent's argument is the stream of its messages, not one message: write "
        "`async for message in stream:`"
    )
    hinted.__cause__ = error
    return hinted


async def _close_iterators(stream: Any) -> None:
    """End the loops that the handler had over its streams, before it is restarted."""
    root = stream.get_root_stream()
    streams: Iterable[Any] = root._iter_ll_forwards()  # noqa: SLF001  # contract-tested
    for one in streams:
        for iterator in list(one._active_agens):  # noqa: SLF001  # contract-tested
            try:
                await iterator.aclose()
            except RuntimeError:
                continue  # it runs in another task, as the feeder of a derived stream does


def agent_doubts(connection: AppNode, agents: Iterable[Any]) -> list[str]:
    """Return a line for each reason why an agent's filter may reject wanted messages.

    A filter with a typo looks like a topic without messages. The checks, which use a filter's text
    and the newest messages of its topics, are in broker/filtering/filter_advice.py.

    Reads files, so it may block.
    """
    lines: list[str] = []
    try:
        data = connection.files("comparing a filter with messages")
    except NodeElsewhereError:
        # The messages are on another machine: there is nothing to compare with.
        return lines
    for agent in agents:
        membership, channel = agent.membership, agent.channel
        if membership is None or not isinstance(channel, Topic):
            continue
        subscription = agent.app.fetcher.filter_of(membership)
        if isinstance(subscription, FilterName):  # it runs in another process, or not yet
            [topic] = channel.topics
            subscription = connection.named_filters.get(topic, subscription).subscription
        if subscription.expression_type == "CLASS" or subscription.expression in _EVERYTHING:
            continue  # a predicate cannot be checked, and "*" rejects nothing
        from rocketray.broker.filtering.filter_advice import doubts  # noqa: PLC0415 - for the check

        topics = channel.matching(connection.topics.all() if channel.pattern else {})
        reasons = doubts(data, topics, subscription)
        lines.extend(f"agent {agent.name}: {line}" for line in reasons)
    return lines

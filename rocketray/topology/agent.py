"""Agents: an async function over a stream, in a consumer group of its own.

A handler that raises is called again over the same stream, in the same task, after a pause that
doubles with every failure in a row. Its stream still has the message that was in hand, so the
message comes again and none is skipped. No supervisor takes part, unless the agent names one: then
that one decides, as in Faust, and a restarted handler still gets its message again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import faust
from faust.agents.agent import _current_agent
from mode.utils.aiter import aiter as any_aiter

from .group import Membership
from .retry import note_failure
from .stream import Stream
from .topic import Topic

__all__ = ["Agent", "AgentStatistics"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentStatistics:
    """Counters of one agent since its app started; messages unless said otherwise.

    ``failures`` counts exceptions of the handler, each of which brings its message again.
    """

    name: str
    group: str
    batches: int
    received: int
    finished: int
    failures: int


class Agent(faust.Agent):  # type: ignore[misc]  # Faust's types are not followed
    """A Faust agent that is a member of a consumer group."""

    def __init__(self, fun: Any, *, membership: Membership | None = None, **options: Any) -> None:
        self.membership = membership
        self._failures = 0
        super().__init__(fun, **options)

    def info(self) -> dict[str, Any]:
        """The arguments that make a clone of this agent."""
        return {**super().info(), "membership": self.membership}

    def clone(self, *, cls: Any = None, **changes: Any) -> Any:
        """A copy; of another class, as a test context is, without what only ours knows."""
        if cls is None or issubclass(cls, Agent):
            return super().clone(cls=cls, **changes)
        return cls(**{**super().info(), **changes})

    def stream(self, channel: Any = None, active_partitions: Any = None, **options: Any) -> Any:
        """The stream that a handler of this agent reads; one channel for all its handlers."""
        if channel is None and isinstance(self.channel, Topic):
            channel = self.channel.clone(is_iterator=False, membership=self.membership)
        return super().stream(channel, active_partitions, **options)

    def statistics(self) -> AgentStatistics:
        """Counters of this agent."""
        feeds = [feed.statistics() for feed in self.app.feeds_of(self.membership)]
        received = sum(feed.received for feed in feeds)
        return AgentStatistics(
            name=self.name,
            group="" if self.membership is None else self.membership.group,
            batches=sum(feed.batches for feed in feeds),
            received=received,
            finished=received - sum(feed.unfinished for feed in feeds),
            failures=self._failures,
        )

    async def _execute_actor(self, coro: Any, aref: Any) -> None:
        """Run a handler until its agent stops, calling it again whenever it raises."""
        if self.supervisor_strategy is not None:
            await super()._execute_actor(coro, aref)
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
                self._note_return()
                return
            if not _feeds_another_topic(aref.stream):
                aref.stream._processors[:] = own_processors  # noqa: SLF001  # it adds its own again
            coro = self._call_again(aref)

    async def _recover(self, aref: Any, error: BaseException) -> None:
        """Count and say what failed, tell Faust's hook, and wait until it is time to try again."""
        await _close_iterators(aref.stream)
        self._failures += 1
        active = aref.stream.get_active_stream()
        inbox = active.inbox if isinstance(active, Stream) else None
        delay = note_failure(f"agent {self.name}", error, inbox)
        if self._on_error is not None:
            await self._on_error(self, error)
        await asyncio.sleep(delay)

    def _call_again(self, aref: Any) -> Any:
        """A new call of the handler over the stream that it had."""
        aref.it = self.fun(aref.stream)
        return aref if hasattr(aref, "__await__") else self._slurp(aref, any_aiter(aref))

    def _note_return(self) -> None:
        if not self.app.should_stop and not self.should_stop and not self.app.agents.should_stop:
            logger.warning("agent %s returned, so it reads no further message", self.name)


def _is_cancelled() -> bool:
    """Somebody cancelled the handler itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _feeds_another_topic(stream: Any) -> bool:
    """The handler reads what this stream sends through another topic, and goes on doing so."""
    return stream.get_active_stream().channel is not stream.channel


async def _close_iterators(stream: Any) -> None:
    """Let the loops that the handler had over its streams end before it starts again."""
    root = stream.get_root_stream()
    streams: Iterable[Any] = root._iter_ll_forwards()  # noqa: SLF001  # contract-tested
    for one in streams:
        for iterator in list(one._active_agens):  # noqa: SLF001  # contract-tested
            try:
                await iterator.aclose()
            except RuntimeError:
                continue  # it runs in another task, as the feeder of a derived stream does

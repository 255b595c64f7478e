"""The tail of a topic whose queues are on several disks: mapped on this machine, else fetched.

Each disk has a tail of its own for its queues: ``TopicTail`` reads the files of a disk on this
machine, ``FetchedTail`` asks the fetch service of another one. A queue that is moved, or added, is
followed as soon as :meth:`DisksTail.look_for_queues` sees it in the catalog.

A disk that does not answer, or fails, holds up no other one: :attr:`DisksTail.unread` names it, and
what is not read there. A tail belongs to one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import merge
from pathlib import Path
from typing import Protocol, TypeVar

from rocketray.broker.fetching.flight_link import FlightLink
from rocketray.broker.fetching.read_plan import DiskPlace
from rocketray.broker.filtering.seen_messages import SeenMessage
from rocketray.broker.filtering.tail import NO_COUNTS, TailCounts, TopicTail
from rocketray.errors import (
    ActorError,
    ConfigError,
    NodeElsewhereError,
    ShardUnavailableError,
    TopicNotFoundError,
)
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.calls.endpoint import client_of

from .fetched_tail import FetchedTail
from .tail_api import TAILS, TailQuery

_T = TypeVar("_T")


class AskNode(Protocol):
    """Asks a node a question: over another connection if the last one broke off; any thread may."""

    def __call__(self, question: Callable[[NodeClient], _T], /) -> _T:
        """Return the answer; raise what the question raises."""


@dataclass(frozen=True, slots=True)
class UnreadQueues:
    """Queues of a topic on one disk from which nothing comes, and the reason."""

    disk: str
    where: str
    queues: tuple[int, ...]
    reason: str

    def named(self) -> str:
        """Return which queues, and where they are."""
        numbers = ", ".join(map(str, self.queues))
        return f"queue{'s' * (len(self.queues) > 1)} {numbers} on {self.where}"

    def __str__(self) -> str:
        return f"{self.named()}: {self.reason}"


@dataclass(frozen=True, slots=True)
class _Part:
    """The queues of a topic on one disk; ``data`` is None on another machine."""

    disk: str
    where: str
    queues: tuple[int, ...]
    data: Path | None
    answers: bool


class DisksTail:
    """Reads what is new in the queues of a topic on all disks of a cluster."""

    def __init__(self, ask: AskNode, query: TailQuery) -> None:
        """Open the queues on this machine, and begin to fetch from the others.

        A disk that does not answer begins where *query* says when it does.

        Raises:
            TopicNotFoundError: there is no such topic.
            FilterError: the filter cannot be used.
            ConfigError: it is a predicate, and queues are on other machines.
            ActorError: the coordinator does not answer.
        """
        self._ask = ask
        self._query = query
        self._past = NO_COUNTS  # of tails that were closed
        self._begun: dict[int, int] = dict(query.start.positions)
        self._stored: dict[int, int] = dict(query.start.stored)
        self._parts: dict[str, _Part] = {}
        self._tails: dict[str, TopicTail | FetchedTail] = {}
        self._is_moving = True
        try:
            self._take_up(ask(self._look))
        except BaseException:
            self.close()
            raise

    @property
    def positions(self) -> dict[int, int | None]:
        """The next offset of each queue; None for one that has not begun."""
        known: dict[int, int | None] = {}
        for part in self._parts.values():
            known |= {queue: self._begun.get(queue) for queue in part.queues}
        for tail in self._tails.values():
            known |= tail.positions
        return known

    @property
    def counts(self) -> TailCounts:
        return sum((tail.counts for tail in self._tails.values()), self._past)

    @property
    def has_more(self) -> bool:
        """Whether the last :meth:`read` did not see the end of all queues that can be read."""
        fetched = (tail for tail in self._tails.values() if isinstance(tail, FetchedTail))
        return self._is_moving or any(tail.has_more for tail in fetched)

    @property
    def unread(self) -> list[UnreadQueues]:
        """The queues from which nothing comes, as of the last step; none if all is well."""
        return [*self._unread()]

    def look_for_queues(self) -> None:
        """Follow queues that were added or moved; to be called every few seconds.

        Raises:
            TopicNotFoundError: the topic was deleted.
        """
        try:
            self._take_up(self._ask(self._look))
        except TopicNotFoundError:
            raise
        except ActorError:
            pass  # the coordinator does not answer: queues are read on meanwhile
        for tail in self._tails.values():
            if isinstance(tail, TopicTail):
                tail.look_for_queues()

    def read(self, room: int | None = None) -> Iterator[SeenMessage]:
        """Yield what is new, a bounded part of each queue, by store time within a disk's step.

        *room* is the number of messages that the reader can take, None for all. What is on other
        machines comes with a later call. The iterator has to be exhausted before the next call.

        Raises:
            StreamError: files of this machine are damaged.
        """
        before = self._local_counts()
        share = None if room is None else -(-room // len(self._tails))
        parts = [tail.read(share) for tail in self._tails.values()]
        yield from merge(*parts, key=lambda seen: seen.message.store_timestamp_ms)
        self._is_moving = self._local_counts() != before

    def close(self) -> None:
        """Unmap the files, and fetch no more."""
        for tail in self._tails.values():
            tail.close()
        self._tails.clear()

    def _look(self, node: NodeClient) -> list[_Part]:
        by_disk = node.topics.get(self._query.topic).by_disk()
        if by_disk.keys() == {node.disk}:  # of most clusters: no further call
            with suppress(NodeElsewhereError):
                data = node.files("a tail")
                queues = tuple(by_disk[node.disk])
                return [_Part(node.disk, str(data), queues, data, answers=True)]
        homes, answering = node.disks.homes(), node.disks.reports()
        parts = []
        for disk, queues_of_disk in by_disk.items():
            home, here = homes.get(disk), None
            where = f"disk {disk}" if disk else str(node.data)
            if home is not None:
                where = f"disk {home.uuid}, {home.data} on {home.machine}"
            with suppress(NodeElsewhereError, ShardUnavailableError):  # there may be no such disk
                here = node.at(disk).files("a tail")
            answers = home is None or disk in answering
            parts.append(_Part(disk, where, tuple(queues_of_disk), here, answers))
        return parts

    def _take_up(self, parts: list[_Part]) -> None:
        """Have a tail for the queues of each disk, beginning where they were left."""
        if self._parts:
            known = {queue for part in self._parts.values() for queue in part.queues}
            added = {queue for part in parts for queue in part.queues} - known
            self._begun |= dict.fromkeys(added, 0)
        for disk in [*self._tails]:
            before = self._parts[disk]
            now = next((part for part in parts if part.disk == disk), None)
            if now is None or (now.queues, now.data) != (before.queues, before.data):
                self._drop(disk)
        self._parts = {part.disk: part for part in parts}
        for part in parts:
            if part.disk not in self._tails:
                self._tails[part.disk] = self._open(part)

    def _drop(self, disk: str) -> None:
        tail = self._tails.pop(disk)
        self._past += tail.counts
        self._begun |= tail.positions
        self._stored |= tail.stored
        tail.close()

    def _open(self, part: _Part) -> TopicTail | FetchedTail:
        query = self._query
        begun = {queue: self._begun[queue] for queue in part.queues if queue in self._begun}
        stored = {queue: self._stored[queue] for queue in begun if queue in self._stored}
        start = replace(query.start, positions=begun, stored=stored)
        if part.data is not None:
            return TopicTail(
                part.data,
                *(query.topic, query.subscription, start),
                with_rejected=query.with_rejected,
                only=part.queues,
            )
        if query.subscription.expression_type == "CLASS":
            named = UnreadQueues(part.disk, part.where, part.queues, "")
            raise ConfigError(
                f"a predicate runs only beside the files, and topic {query.topic!r} has {named.named()}; "
                "filter by tags or SQL92"
            )
        service = client_of(FlightLink(_Finder(self._ask, part.disk)), TAILS)
        return FetchedTail(service, replace(query, start=start), part.queues)

    def _unread(self) -> Iterator[UnreadQueues]:
        for disk, part in self._parts.items():
            tail = self._tails[disk]
            named = part.disk, part.where
            if isinstance(tail, FetchedTail) and tail.unavailable:
                yield UnreadQueues(*named, part.queues, f"not read, because {tail.unavailable}")
                continue
            if isinstance(tail, TopicTail) and not part.answers:
                reason = "what was stored is read, but the disk does not answer; start its node"
                yield UnreadQueues(*named, part.queues, reason)
            if isinstance(tail, FetchedTail) and not tail.has_answered:
                reason = "not read yet, because its fetch service has not answered so far"
                yield UnreadQueues(*named, part.queues, reason)
                continue
            closed = tuple(queue for queue in part.queues if queue not in tail.queue_ids)
            if closed:
                yield UnreadQueues(*named, closed, "not read, because they are not open there yet")

    def _local_counts(self) -> TailCounts:
        local = [tail.counts for tail in self._tails.values() if isinstance(tail, TopicTail)]
        return sum(local, NO_COUNTS)


class _Finder:
    """Finds the fetch service of a disk; see ``ServiceFinder``."""

    def __init__(self, ask: AskNode, disk: str) -> None:
        self._ask = ask
        self._disk = disk

    def place(self) -> DiskPlace:
        return self._ask(lambda node: node.at(self._disk).service.place())

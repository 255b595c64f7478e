"""Tables in a simulated node: members that keep the numbers of the messages of each key.

A member's app runs no code of Faust here. What decides about a table's content is the product's:
the buffer of changes, the changelog with its fence and its compaction, and the recovery of a part.
An instance may be stopped between its look at the lease and the store. RocksDB is
modelled by what it keeps: the content and the position of each part, which a killed process leaves
as they are, and a power failure as they were at an earlier write.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from rocketray.broker.topics.queue_tail import QueueTail
from rocketray.errors import OwnerFencedError, StreamError
from rocketray.message import SHARDING_KEY, Message, StoredMessage
from rocketray.messaging.api.queue_owners import fence_queue
from rocketray.topology.tables.changelog import ChangelogBuffer
from rocketray.topology.tables.key_form import changed_key
from rocketray.topology.tables.part_reader import PartReader

from .history import Sent, WrongError
from .parts import SimNode

CHANGELOG = "counts-changelog"
ON_DISK = "disk"
INSTANCES = (ON_DISK, "memory")
"""The instances of the app, by where they keep their parts."""
_KEPT_WRITES = 8

Content = dict[str, frozenset[int]]
"""The numbers of a key's messages."""


@dataclass(slots=True)
class Copy:
    """What an instance has of one queue's part."""

    content: Content = field(default_factory=dict)
    persisted: int | None = None
    """The offset of the last change of the changelog that is in it."""
    before: list[tuple[Content, int | None]] = field(default_factory=list)
    """What it was, one entry a write."""

    def write(self, content: Content, persisted: int | None) -> None:
        """Replace the content."""
        self.before = [*self.before, (self.content, self.persisted)][-_KEPT_WRITES:]
        self.content, self.persisted = content, persisted

    def lose_power(self, chance: random.Random) -> None:
        """Go back by some writes."""
        known = [*self.before, (self.content, self.persisted)]
        kept = chance.randint(1, len(known))
        self.before, (self.content, self.persisted) = known[: kept - 1], known[kept - 1]


class Table:
    """The parts of a table that one member holds."""

    def __init__(
        self,
        node: SimNode,
        copies: dict[int, Copy],
        send: Callable[[Message, int, int], int],
        give_up: Callable[[int, int], None],
    ) -> None:
        """Keep parts in *copies*.

        *send* stores a change on disk with its ownership epoch, and returns its offset. *give_up*
        is called with a queue that has another owner, and the newest epoch if that is known.
        """
        self._node = node
        self._copies = copies
        self._send = send
        self._give_up = give_up
        self._changes = ChangelogBuffer()
        self._held: dict[int, int] = {}
        """The queues, with their ownership epochs."""
        self._taken: list[tuple[Message, int, int]] = []
        """Changes that are on their way to the changelog."""

    def hold(self, queue_id: int, epoch: int) -> Content | None:
        """Recover a queue's part, unless it is here; return its content; None if it is given up."""
        if queue_id not in self._held:
            topic = self._node.topics.all().get(CHANGELOG)
            newest = 0 if topic is None else fence_queue(self._node, topic, queue_id, epoch)
            if newest > epoch:
                self._give_up(queue_id, newest)
                return None
            copy = self._copies.setdefault(queue_id, Copy())
            recover(self._node, queue_id, copy)
            self._held[queue_id] = epoch
        return self._copies[queue_id].content

    def add(self, queue_id: int, sent: Sent) -> None:
        """Add a message to its key."""
        copy = self._copies[queue_id]
        value = copy.content.get(sent.key, frozenset()) | {sent.number}
        copy.write({**copy.content, sent.key: value}, copy.persisted)
        body = json.dumps(sorted(value)).encode()
        epoch = self._held[queue_id]
        self._changes.put(_Topic, queue_id, sent.key.encode(), body, epoch=epoch)

    def flush(self) -> None:
        """Store all changes, before an offset is committed."""
        self.take()
        self.store()

    def take(self) -> None:
        """Take all changes out of the buffer."""
        _at_once(self._changes.flush(self._take))

    def store(self) -> None:
        """Store what was taken out of the buffer, but for changes of a former owner."""
        while self._taken:
            message, queue_id, epoch = self._taken[0]
            try:
                offset = self._send(message, queue_id, epoch)
            except OwnerFencedError:
                self._taken = [one for one in self._taken if one[1:] != (queue_id, epoch)]
                if self._held.get(queue_id) == epoch:
                    self._forget(queue_id)
                    self._give_up(queue_id, 0)
                continue
            del self._taken[0]
            copy = self._copies[queue_id]
            copy.write(copy.content, offset)

    def _forget(self, queue_id: int) -> None:
        """Drop a part that differs from its changelog."""
        del self._held[queue_id]
        self._changes.forget_queues({queue_id})
        self._copies[queue_id].write({}, None)

    def release(self, queue_ids: set[int], *, is_leased: bool) -> None:
        """Give parts up; their changes are stored, or their messages come again elsewhere."""
        if self._held.keys() & queue_ids and is_leased:
            try:
                self.flush()
            except (StreamError, OSError):
                self._changes, self._taken = ChangelogBuffer(), []
        if not is_leased:
            self._changes.forget_queues(queue_ids)
        for queue_id in queue_ids & self._held.keys():
            del self._held[queue_id]

    async def _take(self, message: Message, queue_id: int, epoch: int) -> None:
        self._taken.append((message, queue_id, epoch))


def recover(node: SimNode, queue_id: int, copy: Copy) -> None:
    """Bring a copy to the end of its changelog."""

    async def apply(changes: list[StoredMessage]) -> None:
        content = dict(copy.content)
        for change in changes:
            numbers = _numbers(change)
            if numbers is None:
                content.pop(changed_key(change).decode(), None)
            else:
                content[changed_key(change).decode()] = numbers
        copy.write(content, changes[-1].queue_offset if changes else copy.persisted)

    def drop() -> None:
        copy.write({}, None)

    async def here(function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)

    tail = QueueTail(node.data, CHANGELOG, queue_id)
    try:
        with mock.patch("asyncio.to_thread", here):
            part = PartReader(f"{CHANGELOG}/{queue_id}", tail, apply, drop)
            asyncio.run(part.recover(copy.persisted))
    finally:
        tail.close()


def _numbers(change: StoredMessage) -> frozenset[int] | None:
    if not change.body:
        return None
    try:
        return frozenset(json.loads(change.body))
    except ValueError:
        raise WrongError(f"{CHANGELOG} has {bytes(change.body)[:40]!r}") from None


class _Topic:
    """The changelog, as the buffer of changes uses it."""

    @staticmethod
    def get_topic_name() -> str:
        return CHANGELOG

    @staticmethod
    def message(body: bytes, tags: str | None, *, key: str, properties: dict[str, str]) -> Message:
        return Message(CHANGELOG, body, tags, [], {SHARDING_KEY: key, **properties})


def _at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for another thread")

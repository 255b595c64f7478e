"""Which parts of tables are here, when queues come and go while parts are being read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.harness.patience import patience
from support.nodes.local_node import LocalNode
from support.nodes.part_holders import PartHolder

from rocketray.broker.topics.queue_tail import QueueTail
from rocketray.errors import ShardUnavailableError
from rocketray.message import StoredMessage
from rocketray.topology.app.app import App
from rocketray.topology.tables.changelog import change_message
from rocketray.topology.tables.part_reader import PartReader

ONE, TWO = PartHolder(), PartHolder()


class Instance:
    """An app's tables with a feed that has finished a message, over changelogs of an earlier instance."""

    def __init__(self, node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self._node = node
        self.app = App("app", connection=node)
        self.table = self.app.Table("counts", default=int, partitions=3)
        node.topics.ensure(self.table.changelog_topic_name, 3)
        self.gain, self.lose = self.app.tables.gain, self.app.tables.lose
        self.before_reading: Callable[[str], Awaitable[None]] | None = None
        recover = PartReader.recover

        async def watched(reader: PartReader, persisted: int | None = None) -> int:
            if self.before_reading is not None:
                await self.before_reading(reader.name)
            return await recover(reader, persisted)

        monkeypatch.setattr(PartReader, "recover", watched)
        self.committed: list[Any] = []
        feed: Any = SimpleNamespace(
            topic="T", finished=lambda: [(1, 8)], commit=self.committed.append
        )
        feeds: Any = self.app.fetcher._feeds
        monkeypatch.setitem(feeds, ("T", "app"), feed)

    def store(self, queue_id: int, key: str, value: int) -> None:
        """Another instance changes a key."""
        message = change_message(self.table.changelog_topic, f'"{key}"'.encode(), b"%d" % value)
        with self._node.producer() as producer:
            producer.send_many(message.topic, [message], queue_id=queue_id)

    def parts(self) -> tuple[list[int], dict[str, int]]:
        """The queues whose parts are here, and what is in the table."""
        return self.app.tables.owned_queues(), dict(self.table.items())


@pytest.fixture
def instance(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> Instance:
    instance = Instance(node, monkeypatch)
    for queue_id in range(3):
        instance.store(queue_id, f"k{queue_id}", 7)
    return instance


def hold_up(instance: Instance, queue_id: int) -> asyncio.Event:
    """Have the reading of a part wait for the event that this returns."""
    may_read = asyncio.Event()

    async def wait(name: str) -> None:
        if name.endswith(f"queue {queue_id}"):
            await may_read.wait()

    instance.before_reading = wait
    return may_read


def test_a_part_that_is_lost_while_another_is_read_is_read_again(instance: Instance) -> None:
    async def scenario() -> None:
        await instance.gain(ONE, {1})
        await instance.gain(TWO, {1})
        may_read = hold_up(instance, 2)
        gaining = asyncio.create_task(instance.gain(ONE, {2}))
        await asyncio.sleep(0.02)
        await instance.lose(ONE, {1})
        await instance.lose(TWO, {1})
        may_read.set()
        await gaining
        assert instance.parts() == ([2], {"k2": 7})
        instance.store(1, "k1", 100)
        await instance.gain(ONE, {1})
        assert instance.parts() == ([1, 2], {"k1": 100, "k2": 7})

    asyncio.run(scenario())


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_part_that_is_lost_while_it_is_read_is_not_there(
    instance: Instance,
    comes_back: bool,  # of the parameters
) -> None:
    async def scenario() -> None:
        may_read = hold_up(instance, 1)
        gaining = asyncio.create_task(instance.gain(ONE, {0, 1}))
        await asyncio.sleep(0.02)
        await instance.lose(ONE, {0})  # which is read already
        instance.store(0, "k0", 100)
        again = asyncio.create_task(instance.gain(TWO, {0} if comes_back else ()))
        await asyncio.sleep(0.02)
        may_read.set()
        await asyncio.gather(gaining, again)
        expected: Any = ([0, 1], {"k0": 100, "k1": 7}) if comes_back else ([1], {"k1": 7})
        assert instance.parts() == expected

    asyncio.run(scenario())


def test_who_could_not_gain_a_queue_does_not_hold_it(instance: Instance) -> None:
    async def fail(name: str) -> None:
        if name.endswith("queue 2"):
            raise ShardUnavailableError(name, "away, as the test asked")

    async def scenario() -> None:
        await instance.gain(TWO, {0})
        instance.before_reading = fail
        with pytest.raises(ShardUnavailableError):
            await instance.gain(ONE, {0, 1, 2})
        assert instance.parts() == ([0], {"k0": 7})
        instance.before_reading = None
        await instance.gain(TWO, {2})
        await instance.lose(TWO, {0, 2})  # nobody else has them
        assert instance.parts() == ([], {})

    asyncio.run(scenario())


def test_a_reading_that_is_cancelled_ends_before_its_log_is_unmapped(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end, ended = (threading.Event() for _ in range(3))
    read, close = QueueTail.read, QueueTail.close

    def slow_read(tail: QueueTail, start: int, max_count: int) -> list[StoredMessage]:
        begun.set()
        may_end.wait(patience(30))
        found = read(tail, start, max_count)
        ended.set()
        return found

    def watched_close(tail: QueueTail) -> None:
        assert ended.is_set()
        close(tail)

    monkeypatch.setattr(QueueTail, "read", slow_read)
    monkeypatch.setattr(QueueTail, "close", watched_close)

    async def scenario() -> None:
        gaining = asyncio.create_task(instance.gain(ONE, {1}))
        await asyncio.to_thread(begun.wait, 30)
        gaining.cancel()
        await asyncio.sleep(0.02)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await gaining
        assert instance.parts() == ([], {})

    asyncio.run(scenario())


async def changed_but_not_stored(instance: Instance, value: bytes) -> PartHolder:
    """Change a key of queue 1, and let the lease lapse; return who reads the queue."""
    owner = PartHolder()
    await instance.gain(owner, {1})
    instance.app.tables.changes.put(instance.table.changelog_topic, 1, b'"k1"', value)
    owner.is_leased = False
    return owner


def test_an_instance_that_was_stopped_overwrites_no_change_of_the_next_owner(
    instance: Instance,
) -> None:
    """Another one read the message again, and a later one; here it had been changed, not stored."""

    async def scenario() -> None:
        app, owner = instance.app, await changed_but_not_stored(instance, b"8")
        instance.store(1, "k1", 9)
        await app.tables.flush()
        assert not await app.consumer.force_commit()
        assert instance.committed == [], "its message is not done"
        await instance.lose(owner, {1})
        owner.is_leased = True
        await app.tables.flush()
        await instance.gain(owner, {1})
        assert instance.parts() == ([1], {"k1": 9})

    asyncio.run(scenario())


@pytest.mark.parametrize("lapses", [False, True])
def test_nothing_is_committed_when_the_lease_lapses_before_the_flush(
    instance: Instance,
    monkeypatch: pytest.MonkeyPatch,
    lapses: bool,  # of the parameters
) -> None:
    async def scenario() -> None:
        app, owner = instance.app, await changed_but_not_stored(instance, b"8")
        owner.is_leased = True
        flush = app.tables.flush

        async def flush_later() -> bool:
            owner.is_leased = not lapses
            return bool(await flush())

        monkeypatch.setattr(app.tables, "flush", flush_later)
        assert await app.consumer.force_commit() == (not lapses)
        assert instance.committed == ([] if lapses else [[(1, 8)]])
        assert len(app.tables.changes) == lapses

    asyncio.run(scenario())


def test_changes_wait_for_a_lease_that_comes_back_without_another_owner(
    instance: Instance,
) -> None:
    async def scenario() -> None:
        app, owner = instance.app, await changed_but_not_stored(instance, b"8")
        await app.tables.flush()
        assert len(app.tables.changes) == 1
        owner.is_leased = True
        await app.flush_sends()
        assert len(app.tables.changes) == 0
        await instance.lose(owner, {1})
        await instance.gain(owner, {1})
        assert instance.parts() == ([1], {"k1": 8})

    asyncio.run(scenario())


@pytest.mark.proves(
    "groups",
    "A first change decides how many queues a changelog has, whatever a look for it finds at the "
    "same time",
)
def test_a_first_change_decides_the_queues_of_a_changelog_that_was_just_looked_for(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A global table is looked for five times a second: the look came back after the change."""
    node.topics.ensure("Sent", 1)
    app = App("app", connection=node)
    table = app.GlobalTable("sums", default=int)
    all_topics = node.topics.all

    def found_before_a_change() -> Any:
        found = all_topics()
        app.tables.settle_queues(table, "Sent")
        return found

    async def scenario() -> None:
        await app.declarations.declare("Sent", 1)
        monkeypatch.setattr(node.topics, "all", found_before_a_change)
        await app.tables._find_changelog(table)

    asyncio.run(scenario())
    assert table.changelog_queues == 1

"""An instance that was stopped too long changes no table of the present owner of its queues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.harness.patience import until
from support.nodes.apps import committed, running
from support.nodes.local_node import LocalNode
from support.nodes.part_holders import PartHolder

from rocketray.broker.topics.ownership_record import epoch_of
from rocketray.broker.topics.queue_tail import QueueTail
from rocketray.errors import ShardUnavailableError
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.topology.app.app import App

from .test_handover import QUEUES, Instance, all_of

pytestmark = pytest.mark.proves(
    "groups",
    "What a former owner of a queue changes in a table is refused, wherever its process "
    "was stopped, also after the shard restarts or compacts; the app continues, and each "
    "message counts once",
)


class Stop:
    """Stops an app between its look at the lease and the store of the first change."""

    def __init__(self, app: App) -> None:
        self.has_looked, self.goes_on = asyncio.Event(), asyncio.Event()
        self._send: Callable[..., Awaitable[None]] = app.tables._send
        app.tables._send = self._stopped

    async def _stopped(self, *given: Any) -> None:
        self.has_looked.set()
        await self.goes_on.wait()
        await self._send(*given)


class Tables:
    """The tables of one instance without its feeds."""

    def __init__(self, node: LocalNode, kind: str = "Table", **options: Any) -> None:
        self.app = App("app", connection=node)
        self.table = getattr(self.app, kind)("counts", default=int, partitions=3, **options)
        node.topics.ensure(self.table.changelog_topic_name, 3)
        self.gain, self.lose = self.app.tables.gain, self.app.tables.lose

    def change(self, queue_id: int, key: str, value: int) -> None:
        """Do as a handler of a message of that queue does."""
        self.app.tables.note_change(self.table, queue_id, f'"{key}"'.encode(), b"%d" % value)
        self.table.data[key] = value
        self.table.data.queue_of[key] = queue_id

    def parts(self) -> tuple[list[int], dict[str, int]]:
        """The queues whose parts are here, and what is in the table."""
        return self.app.tables.owned_queues(), dict(self.table.items())


def changelog(node: LocalNode, queue_id: int) -> list[bytes | int]:
    """What a changelog has: the values of changes, and the epochs of owners."""
    tail = QueueTail(node.data, "app-counts-changelog", queue_id)
    try:
        found = tail.read(0, 1000)
    finally:
        tail.close()
    epochs = [epoch_of(one) for one in found]
    return [
        bytes(one.body) if epoch is None else epoch
        for one, epoch in zip(found, epochs, strict=True)
    ]


def test_who_is_stopped_between_the_look_at_the_lease_and_the_store_overwrites_nothing(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        one, two = Tables(node), Tables(node)
        old, new = PartHolder({0: 4, 1: 5}), PartHolder({1: 6})
        await one.gain(old, {0, 1})
        one.change(1, "k1", 8)
        stop = Stop(one.app)
        flushing = asyncio.create_task(one.app.flush_sends())
        await stop.has_looked.wait()

        await two.gain(new, {1})
        two.change(1, "k1", 9)
        await two.app.flush_sends()

        stop.goes_on.set()
        await flushing
        assert changelog(node, 1) == [5, 6, b"9"]
        assert old.given_up == [(1, 0)]
        one.change(1, "k2", 1)
        one.change(0, "k0", 7)
        await one.app.flush_sends()
        assert changelog(node, 0) == [4, b"7"], "the other queues go on"
        await one.lose(old, {1})
        assert one.parts() == ([0], {"k0": 7})
        await one.gain(PartHolder({1: 7}), {1})
        assert one.parts() == ([0, 1], {"k0": 7, "k1": 9})
        await two.app.flush_sends()
        assert two.parts() == ([1], {"k1": 9})

    asyncio.run(scenario())


def test_who_gains_a_queue_that_has_a_newer_owner_gives_it_up_and_says_who_it_is(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        one, two = Tables(node), Tables(node)
        await two.gain(PartHolder({1: 6}), {1})
        two.change(1, "k1", 9)
        await two.app.flush_sends()
        late = PartHolder({0: 4, 1: 5})
        await one.gain(late, {0, 1})
        assert late.given_up == [(1, 6)]
        assert one.parts() == ([0], {})
        one.change(1, "k1", 8)
        await one.app.flush_sends()
        assert changelog(node, 1) == [6, b"9"]
        await one.lose(late, {1})
        await one.gain(PartHolder({1: 7}), {1})
        assert one.parts() == ([0, 1], {"k1": 9})

    asyncio.run(scenario())


def test_a_fenced_part_that_one_agent_gains_again_is_read_again_for_it(node: LocalNode) -> None:
    """Another agent of the instance has not released the queue number yet."""

    async def scenario() -> None:
        one, two = Tables(node), Tables(node)
        slow, quick = PartHolder({1: 4}), PartHolder({1: 5})
        await one.gain(slow, {1})
        await one.gain(quick, {1})
        await two.gain(PartHolder({1: 6}), {1})
        two.change(1, "k1", 9)
        await two.app.flush_sends()
        one.change(1, "k1", 8)
        await one.app.flush_sends()
        assert slow.given_up == quick.given_up == [(1, 0)]
        assert one.parts()[0] == [], "whose windows are closed elsewhere, too"
        await one.lose(quick, {1})
        quick = PartHolder({1: 7})
        await one.gain(quick, {1})
        assert one.parts() == ([1], {"k1": 9})
        one.change(1, "k1", 10)
        await one.app.flush_sends()
        assert changelog(node, 1) == [4, 6, b"9", 7, b"10"]
        await one.lose(slow, {1})
        assert one.parts() == ([1], {"k1": 10})

    asyncio.run(scenario())


def test_the_fence_is_there_before_the_part_is_read(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a change of the former owner could come behind what was read."""

    async def scenario() -> None:
        one, two = Tables(node), Tables(node)
        await one.gain(PartHolder({1: 5}), {1})
        one.change(1, "k1", 8)
        stop = Stop(one.app)
        flushing = asyncio.create_task(one.app.flush_sends())
        await stop.has_looked.wait()
        end = QueueTail.end

        def watched(tail: QueueTail) -> int:
            found = end(tail)
            if not stop.goes_on.is_set():
                loop.call_soon_threadsafe(stop.goes_on.set)
                asyncio.run_coroutine_threadsafe(asyncio.wait({flushing}), loop).result()
            return found

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(QueueTail, "end", watched)
        await two.gain(PartHolder({1: 6}), {1})
        assert changelog(node, 1) == [5, 6]
        assert two.parts() == ([1], {})

    asyncio.run(scenario())


def test_a_part_whose_changelog_cannot_be_fenced_is_not_read(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        one, holder = Tables(node), PartHolder({1: 5})

        def away(*_: object) -> int:
            raise ShardUnavailableError("shard C/1", "away, as the test asked", 1)

        with monkeypatch.context() as patched:
            patched.setattr("rocketray.topology.faust.table_manager.fence_queue", away)
            with pytest.raises(ShardUnavailableError):
                await one.gain(holder, {1})
        assert one.parts() == ([], {})
        await one.gain(holder, {1})
        assert one.parts() == ([1], {})

    asyncio.run(scenario())


def test_parts_that_any_instance_changes_have_no_owner(node: LocalNode) -> None:
    async def scenario() -> None:
        one, two = Tables(node, use_partitioner=True), Tables(node, use_partitioner=True)
        await two.gain(PartHolder({1: 6}), {1})
        two.change(1, "k1", 9)
        await two.app.flush_sends()
        await one.gain(PartHolder({0: 5}), {0})
        one.change(1, "k1", 8)
        await one.app.flush_sends()
        assert changelog(node, 1) == [b"9", b"8"]

    asyncio.run(scenario())


def test_a_global_table_has_what_others_changed_while_its_lease_was_over(node: LocalNode) -> None:
    """Nothing was left to store, so no changelog refused anything."""

    async def scenario() -> None:
        one, two = Tables(node, "GlobalTable"), Tables(node, "GlobalTable")
        old = PartHolder({1: 5})
        await one.gain(old, {1})
        one.change(1, "k1", 8)
        await one.app.flush_sends()
        old.is_leased = False

        await two.gain(PartHolder({1: 6}), {1})
        two.change(1, "k1", 9)
        await two.app.flush_sends()

        await one.lose(old, {1})
        await one.app.tables.follow_global_tables()
        assert one.parts() == ([], {"k1": 9})

    asyncio.run(scenario())


def test_a_part_of_a_global_table_is_not_read_again_while_it_is_changed_here(
    node: LocalNode,
) -> None:
    """What its changelog has may be older than what handlers made of it."""

    async def scenario() -> None:
        one, owner = Tables(node, "GlobalTable"), PartHolder({0: 4, 1: 5})
        await one.gain(owner, {1})
        one.change(1, "k1", 8)
        await one.app.flush_sends()
        one.change(1, "k1", 9)
        await one.gain(owner, {0})
        assert one.parts() == ([0, 1], {"k1": 9})

    asyncio.run(scenario())


def silence(instance: Instance) -> None:
    """Let the instance send no heartbeats, and the coordinator take it for dead."""
    for feed in instance.app.fetcher.feeds:
        vars(feed._member)["beat"] = lambda: None


def speak(instance: Instance) -> None:
    """Let it send heartbeats again."""
    for feed in instance.app.fetcher.feeds:
        del vars(feed._member)["beat"]


def test_an_app_whose_changes_are_refused_goes_on_and_every_message_counts_once(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        one, two = Instance(node), Instance(node)
        async with running(one.app):
            sent = await one.send(0, 40)
            await until(lambda: committed(node, "app-reader", "T") == 40)
            stop = Stop(one.app)
            sent += await one.send(40, 40)
            await stop.has_looked.wait()
            silence(one)
            roster = node.state.registry.memberships.get("app-reader", "T").roster
            for member in roster.every.values():
                member.seen_ms -= SESSION_TIMEOUT_MS + 1
            async with running(two.app):
                sent += await two.send(80, 40)
                await until(lambda: committed(node, "app-reader", "T") == 120)
                assert all_of(two) == sent
                stop.goes_on.set()
                await until(lambda: not one.owned())
                assert all_of(two) == sent
                speak(one)
                await until(lambda: len(one.owned()) == len(two.owned()) == QUEUES // 2)
                assert all_of(one, two) == sent
                sent += await one.send(120, 40)
                await until(lambda: all_of(one, two) == sent)
            assert not one.app.crashed

    asyncio.run(scenario())

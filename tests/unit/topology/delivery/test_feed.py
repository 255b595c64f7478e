from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from support.harness.patience import patience, until
from support.nodes.apps import committed, numbers, put
from support.nodes.feeds import WatchedTables, feeding, pass_over
from support.nodes.local_node import LocalNode

from rocketray.errors import ShardUnavailableError
from rocketray.filters.subscription import Subscription
from rocketray.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.groups.lease import LEASE_MS, SESSION_TIMEOUT_MS
from rocketray.message import Message
from rocketray.messaging.consumers import member as member_module
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.runtime.clock import system_clock_ms
from rocketray.topology.delivery import feed as feed_module
from rocketray.topology.delivery.delivery import Delivery
from rocketray.topology.delivery.flow import FlowLimits

ALL = Subscription.tags("*")


def test_a_slow_handler_stops_the_polling(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "POLL_MAX_MESSAGES", 10)
    node.topics.ensure("T", 1)
    put(node, "T", numbers(200))

    async def scenario() -> None:
        async with feeding(node, flow=FlowLimits(messages=30)) as (feed, queue, _):
            await until(lambda: feed.statistics().received >= 30)
            await asyncio.sleep(0.1)
            assert feed.statistics().received == 30
            received: list[bytes] = []
            while len(received) < 200:
                delivery = await queue.get()
                received += delivery.shared.bodies
                pass_over(delivery)
            assert received == numbers(200)
            feed.commit(feed.finished())
        assert committed(node, "g", "T") == 200

    asyncio.run(scenario())


def test_a_full_window_does_not_keep_queues_from_changing_hands(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "POLL_MAX_MESSAGES", 5)
    monkeypatch.setattr(member_module, "HEARTBEAT_INTERVAL_S", 0.05)
    node.topics.ensure("T", 2)
    put(node, "T", numbers(200))

    async def scenario() -> None:
        async with feeding(node, flow=FlowLimits(messages=10)) as (feed, _, failed):
            await until(lambda: feed.statistics().received >= 10)
            other = GroupConsumer(node, "g", "T", ALL)
            await until(lambda: len(feed.assignment()) == 1)
            await until(lambda: other.poll(0) is None or other.assignment())
            assert feed.statistics().received <= 30, "little more than the window"
            assert failed == []
            await asyncio.to_thread(other.close)

    asyncio.run(scenario())


def test_a_member_whose_window_is_full_gets_over_the_loss_of_its_lease(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "POLL_MAX_MESSAGES", 10)
    monkeypatch.setattr(member_module, "HEARTBEAT_INTERVAL_S", 0.05)
    node.topics.ensure("T", 1)
    put(node, "T", numbers(40))
    now_ms = 1000

    def cut_off(_: Heartbeat) -> HeartbeatReply:
        raise ShardUnavailableError("the coordinator", "cut off by the test")

    async def scenario() -> None:
        nonlocal now_ms
        flow = FlowLimits(messages=10)
        async with feeding(node, flow=flow, clock_ms=lambda: now_ms) as (_, queue, failed):
            lost = await queue.get()
            with monkeypatch.context() as patch:
                patch.setattr(node.sessions, "heartbeat", cut_off)
                now_ms += LEASE_MS
                assert lost.is_suspended
                other = Heartbeat("g", "T", ALL, "other", "life", frozenset())
                later_ms = system_clock_ms() + SESSION_TIMEOUT_MS + 1
                assert node.state.registry.heartbeat(other, 1, later_ms).granted.keys() == {0}
                node.state.leave(replace(other, held=frozenset({0}), commits={0: 5}))
            await until(lambda: lost.is_withdrawn)
            pass_over(lost)
            again = await queue.get()
            assert again.shared.bodies[0] == numbers(1, first=5)[0]
            assert not again.is_suspended
            assert failed == []

    asyncio.run(scenario())


def test_what_was_not_handled_is_not_committed(node: LocalNode) -> None:
    node.topics.ensure("T", 1)
    put(node, "T", numbers(20))

    async def scenario() -> None:
        async with feeding(node, handlers=2) as (feed, queue, _):
            deliveries = [await queue.get() for _ in range(8)]
            pass_over(deliveries[0])
            pass_over(deliveries[3])
            assert feed.statistics().unfinished > 0
            feed.commit(feed.finished())
        assert committed(node, "g", "T") == len(deliveries[0])

    asyncio.run(scenario())


def test_a_drain_withdraws_what_no_handler_has_begun(node: LocalNode) -> None:
    node.topics.ensure("T", 1)
    put(node, "T", numbers(4))

    async def scenario() -> None:
        async with feeding(node, handlers=2) as (feed, queue, _):
            first = await queue.get()
            first.is_active = True
            draining = asyncio.create_task(feed.drain(5))
            await asyncio.sleep(0.05)
            assert not draining.done()
            assert first.is_withdrawn
            pass_over(first)
            first.is_active = False
            await draining
            assert all(queue.get_nowait().is_withdrawn for _ in range(queue.qsize()))
            feed.commit(feed.finished())
        assert committed(node, "g", "T") == 1

    asyncio.run(scenario())


def test_what_was_overtaken_is_finished_first_or_what_overtook_it_would_come_again(
    node: LocalNode,
) -> None:
    node.topics.ensure("T", 1)
    put(node, "T", numbers(20))

    async def scenario() -> None:
        async with feeding(node, handlers=2) as (feed, queue, _):
            deliveries = [await queue.get() for _ in range(8)]
            pass_over(deliveries[3])
            draining = asyncio.create_task(feed.drain(5))
            await asyncio.sleep(0.05)
            assert [one.is_withdrawn for one in deliveries] == 3 * [False] + 5 * [True]
            for delivery in deliveries[:3]:
                pass_over(delivery)
            await draining
            feed.commit(feed.finished())
        assert committed(node, "g", "T") == sum(map(len, deliveries[:4]))

    asyncio.run(scenario())


def test_a_drain_gives_up_waiting_after_its_grace(node: LocalNode) -> None:
    node.topics.ensure("T", 1)
    put(node, "T", numbers(1))

    async def scenario() -> None:
        async with feeding(node) as (feed, queue, _):
            (await queue.get()).is_active = True
            async with asyncio.timeout(patience(30)):
                await feed.drain(0.05)

    asyncio.run(scenario())


@pytest.mark.proves("faust", "A revoked queue is committed first")
@pytest.mark.parametrize("changes_wait", [False, True])
def test_a_queue_that_is_taken_away_is_committed_first(
    node: LocalNode,
    changes_wait: bool,  # of the parameters
) -> None:
    """Committed without their changes, messages would be done, and the tables without them."""
    node.topics.ensure("T", 2)
    tables = WatchedTables()
    tables.changes_wait = changes_wait

    async def scenario() -> None:
        async with feeding(node, tables=tables) as (feed, queue, _):
            await until(lambda: len(feed.assignment()) == 2)
            producer = node.producer()
            for queue_id in (0, 1):
                batch = [Message("T", body) for body in numbers(5)]
                producer.send_many("T", batch, queue_id=queue_id)
            producer.close()
            taken: dict[int, Delivery] = {}
            while len(taken) < 2:
                delivery = await queue.get()
                taken[delivery.queue_id] = delivery
            for delivery in taken.values():
                delivery.cursor = 3
            other = GroupConsumer(node, "g", "T", ALL)
            await until(lambda: len(feed.assignment()) == 1)
            ((_, kept),) = feed.assignment()
            lost = 1 - kept
            assert taken[lost].is_withdrawn
            assert not taken[kept].is_withdrawn
            await until(lambda: tables.told[-1] == ("lose", {lost}))
            await asyncio.to_thread(other.close)
            await until(lambda: len(feed.assignment()) == 2)  # so its heartbeats have arrived
            committed_there = node.state.registry.offsets.get("g", "T", lost)
            assert committed_there < 3 if changes_wait else committed_there == 3

    asyncio.run(scenario())


def test_a_queue_is_read_once_the_tables_have_what_belongs_to_it(node: LocalNode) -> None:
    node.topics.ensure("T", 2)
    producer = node.producer()
    for queue_id in (0, 1):
        producer.send_many("T", [Message("T", b"1")], queue_id=queue_id)
    producer.close()

    async def scenario() -> None:
        tables = WatchedTables()
        other = GroupConsumer(node, "g", "T", ALL)
        async with feeding(node, tables=tables) as (feed, queue, failed):
            await until(lambda: other.poll(0) is None or feed.assignment())
            first = (await queue.get()).queue_id
            tables.ready.clear()
            tables.failures = [ShardUnavailableError("shard T/0", "restarting", 1)]
            await asyncio.to_thread(other.close)
            await until(lambda: len(feed.assignment()) == 2)
            await until(lambda: tables.told[-1] == ("gain", {1 - first}))
            assert queue.empty()
            tables.ready.set()
            assert (await queue.get()).queue_id == 1 - first
            assert failed == []
        assert tables.told[-1] == ("lose", {0, 1})

    asyncio.run(scenario())


def test_a_shard_that_is_away_is_waited_for(node: LocalNode) -> None:
    node.topics.ensure("T", 1)
    put(node, "T", numbers(1))
    away = [ShardUnavailableError("shard T/0", "restarting", 1)] * 2

    async def scenario() -> None:
        async with feeding(node, failures=away) as (_, queue, failed):
            assert (await queue.get()).shared.bodies == numbers(1)
            assert failed == []

    asyncio.run(scenario())


def test_a_member_that_fails_is_told_about(node: LocalNode) -> None:
    node.topics.ensure("T", 1)
    error = LookupError("on purpose")

    async def scenario() -> None:
        async with feeding(node, failures=[error]) as (_, _, failed):
            await until(lambda: failed)
            assert failed == [error]

    asyncio.run(scenario())


def test_large_messages_stop_the_polling_and_are_decoded_in_pieces(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "POLL_MAX_MESSAGES", 10)
    monkeypatch.setattr(feed_module, "PIECE_BYTES", 5000)
    node.topics.ensure("T", 1)
    bodies = [bytes([number]) * 2000 for number in range(100)]
    put(node, "T", bodies)

    async def scenario() -> None:
        async with feeding(node, flow=FlowLimits(size_bytes=40_000)) as (feed, queue, _):
            await until(lambda: feed.statistics().received >= 20)
            await asyncio.sleep(0.1)
            assert feed.statistics().received == 20
            received: list[bytes] = []
            while len(received) < 100:
                delivery = await queue.get()
                assert len(delivery.shared) <= 2
                received += delivery.shared.bodies
                pass_over(delivery)
            assert received == bodies
            feed.commit(feed.finished())
        assert committed(node, "g", "T") == 100

    asyncio.run(scenario())


def test_what_stands_behind_an_unfinished_message_is_bounded(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "POLL_MAX_MESSAGES", 10)
    node.topics.ensure("T", 1)
    put(node, "T", numbers(200))

    async def scenario() -> None:
        async with feeding(node, flow=FlowLimits(messages=20, span=50)) as (feed, queue, _):
            stuck = await queue.get()
            received = list(stuck.shared.bodies)
            while feed.statistics().received <= 50:
                delivery = await queue.get()
                received += delivery.shared.bodies
                pass_over(delivery)
            while not queue.empty():
                delivery = queue.get_nowait()
                received += delivery.shared.bodies
                pass_over(delivery)
                await asyncio.sleep(0.1)
            assert 50 < len(received) <= 80
            assert feed.finished() == [(0, 0)]
            pass_over(stuck)
            while len(received) < 200:
                delivery = await queue.get()
                received += delivery.shared.bodies
                pass_over(delivery)
            assert received == numbers(200)
            feed.commit(feed.finished())
        assert committed(node, "g", "T") == 200

    asyncio.run(scenario())


def test_a_queue_that_fails_in_its_order_holds_up_no_other(node: LocalNode) -> None:
    node.topics.ensure("T", 2)
    with node.producer() as producer:
        for queue_id in range(2):
            bodies = [Message("T", body) for body in numbers(30, first=100 * queue_id)]
            producer.send_many("T", bodies, queue_id=queue_id)

    async def scenario() -> None:
        flow = FlowLimits(messages=100, span=20)
        async with feeding(node, is_ordered=True, flow=flow) as (feed, queue, _):
            await until(lambda: feed.statistics().received == 60)
            while not queue.empty():
                delivery = queue.get_nowait()
                if delivery.queue_id == 1:  # the one of the other queue fails and fails
                    pass_over(delivery)
            feed.finished()
            with node.producer() as producer:
                producer.send("T", b"last", queue_id=1)
            assert (await queue.get()).shared.bodies == [b"last"]

    asyncio.run(scenario())


def test_a_queue_that_is_given_up_is_not_committed_and_comes_again(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_module, "HEARTBEAT_INTERVAL_S", 0.05)
    node.topics.ensure("T", 1)
    put(node, "T", numbers(3))

    async def scenario() -> None:
        tables = WatchedTables()
        async with feeding(node, tables=tables) as (feed, queue, failed):
            first = feed.epoch(0)
            delivery = await queue.get()
            pass_over(delivery)
            feed.give_up(0, 70)
            feed.commit(feed.finished())
            put(node, "T", numbers(1, 3))
            await until(lambda: tables.told == [("gain", {0}), ("lose", {0}), ("gain", {0})])
            assert committed(node, "g", "T") == 0
            assert first < 70 < feed.epoch(0)
            received: list[bytes] = []
            while len(received) < 4:
                delivery = await queue.get()
                received += delivery.shared.bodies
                pass_over(delivery)
            assert received == numbers(4)
            feed.commit(feed.finished())
        assert committed(node, "g", "T") == 4
        assert failed == []

    asyncio.run(scenario())

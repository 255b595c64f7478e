from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import faust
import pytest
from support.harness.patience import until
from support.nodes.apps import collecting, committed, consume, numbers, running
from support.nodes.local_node import LocalNode

from rocketray.errors import ConfigError
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.topology.app.app import App
from rocketray.topology.app.sensing import HandlerSensing
from rocketray.topology.app.stream import SLICE_S
from rocketray.topology.delivery.inbox import LEASE_LOOK_S, Run


class Order(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    order_id: str
    amount: float


@pytest.mark.proves("faust", "`stream.filter()`: works")
def test_filter_leaves_values_out_and_the_offset_goes_on(node: LocalNode) -> None:
    seen: list[int] = []

    async def handler(stream: Any) -> None:
        async for value in stream.filter(lambda value: value % 3 == 0):
            seen.append(value)  # noqa: PERF401

    consume(node, handler, lambda: len(seen) == 34, bodies=numbers(100), value_serializer="json")
    assert seen == list(range(0, 100, 3))
    assert committed(node, "app-reader", "T") == 100


def test_a_filter_that_raises_sends_the_message_back_and_is_not_added_twice(
    node: LocalNode,
) -> None:
    seen: list[int] = []
    calls: list[int] = []

    def keep(value: int) -> bool:
        calls.append(value)
        if value == 4:
            raise ValueError("on purpose")
        return True

    async def handler(stream: Any) -> None:
        async for value in stream.filter(keep):
            seen.append(value)  # noqa: PERF401

    consume(node, handler, lambda: len(seen) == 7, bodies=numbers(8), value_serializer="json")
    assert seen == [0, 1, 2, 3, 5, 6, 7]
    assert calls == list(range(8))
    assert committed(node, "app-reader", "T") == 8


@pytest.mark.proves("faust", "`stream.enumerate()`, `faust.current_event()`: works")
def test_enumerate_items_and_current_event(node: LocalNode) -> None:
    seen: list[Any] = []

    async def handler(stream: Any) -> None:
        async for index, value in stream.enumerate():
            event = faust.current_event()
            assert event is stream.current_event
            seen.append((index, value, event.value, event.message.offset))

    consume(node, handler, lambda: len(seen) == 5, bodies=numbers(5, 10), value_serializer="json")
    assert seen == [(index, index + 10, index + 10, index) for index in range(5)]


@pytest.mark.proves("faust", "`stream.items()`: works")
def test_items_pair_keys_and_values(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", key_type=str, value_type=Order, queues=1)
        seen: list[Any] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for key, order in stream.items():
                seen.append((key, order.order_id, order.amount))

        async with running(app):
            await topic.send(key="customer-1", value=Order(order_id="o-1", amount=1.5))
            await until(lambda: seen)
        assert seen == [("customer-1", "o-1", 1.5)]

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`stream.events()`: works")
def test_events_stay_what_they_were(node: LocalNode) -> None:
    events: list[Any] = []

    async def handler(stream: Any) -> None:
        async for event in stream.events():
            events.append(event)  # noqa: PERF401

    consume(node, handler, lambda: len(events) == 20, bodies=numbers(20))
    assert [event.value for event in events] == numbers(20)
    assert [event.message.offset for event in events] == list(range(20))


@pytest.mark.proves("faust", "`stream.noack()`, `event.ack()`: differs")
def test_manual_acknowledgement_commits_only_what_was_acknowledged(node: LocalNode) -> None:
    events: list[Any] = []

    async def handler(stream: Any) -> None:
        async for event in stream.noack().events():
            events.append(event)
            if event.message.offset < 5:
                assert event.ack()
                assert not event.ack()

    consume(node, handler, lambda: len(events) == 20, bodies=numbers(20))
    assert committed(node, "app-reader", "T") == 5


@pytest.mark.proves("faust", "`async with event:`: works")
def test_an_event_used_as_a_context_is_acknowledged(node: LocalNode) -> None:
    seen: list[bytes] = []

    async def handler(stream: Any) -> None:
        async for event in stream.noack().events():
            async with event:
                seen.append(event.value)

    consume(node, handler, lambda: len(seen) == 20, bodies=numbers(20))
    assert committed(node, "app-reader", "T") == 20


def test_in_manual_mode_only_what_was_not_acknowledged_comes_again(node: LocalNode) -> None:
    seen: list[int] = []

    async def handler(stream: Any) -> None:
        async for event in stream.noack().events():
            seen.append(event.message.offset)
            event.ack()
            if len(seen) == 3:
                raise ValueError("after the acknowledgement")

    consume(node, handler, lambda: len(seen) == 6, bodies=numbers(6))
    assert seen == [0, 1, 2, 3, 4, 5]


@pytest.mark.proves("faust", "`join`, `left_join`, `inner_join`, `outer_join`: refused")
@pytest.mark.parametrize("name", ["join", "left_join", "right_join", "inner_join", "outer_join"])
def test_joins_are_refused(name: str) -> None:
    stream = App("app").topic("T").stream()
    with pytest.raises(ConfigError, match=r"Faust declares joins, but does not implement"):
        getattr(stream, name)("field")


def test_a_busy_handler_lets_the_loop_run(node: LocalNode) -> None:
    """In seconds of the loop's thread: what else runs on the machine does not count."""
    ticks: list[float] = []
    seen: list[bytes] = []

    async def handler(stream: Any) -> None:
        asyncio.create_task(tick())  # noqa: RUF006  # it ends with the loop
        async for value in stream:
            end_s = time.thread_time() + 0.0002
            while time.thread_time() < end_s:
                pass
            seen.append(value)

    async def tick() -> None:
        while len(seen) < 1000:
            ticks.append(time.thread_time())
            await asyncio.sleep(0)

    consume(node, handler, lambda: len(seen) == 1000, bodies=numbers(1000))
    gaps = sorted(later - earlier for earlier, later in pairwise(ticks))
    assert len(ticks) > 0.2 / SLICE_S / 4
    assert gaps[len(gaps) // 2] < 4 * SLICE_S


def test_records_and_json(node: LocalNode) -> None:
    orders: list[Any] = []

    consume(
        node,
        collecting(orders),
        lambda: len(orders) == 2,
        bodies=[b'{"order_id": "a", "amount": 1}', b'{"order_id": "b", "amount": 2.5}'],
        value_serializer="json",
        value_type=Order,
    )
    assert orders == [Order(order_id="a", amount=1), Order(order_id="b", amount=2.5)]


def test_a_stream_without_an_agent_has_a_group_of_its_own(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_serializer="raw", queues=1)
        seen: list[bytes] = []

        @app.task
        async def read() -> None:
            async for value in topic.stream():
                seen.append(value)  # noqa: PERF401

        async with running(app):
            await topic.send(value=b"1")
            await until(lambda: seen == [b"1"])
        assert committed(node, "app-T", "T") == 1

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`stream.through()`: works")
def test_through_another_topic(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_serializer="raw", queues=1)
        other = app.topic("U", value_serializer="raw", queues=1)
        seen: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream.through(other):
                seen.append(value)  # noqa: PERF401

        async with running(app):
            for body in numbers(20):
                await topic.send(value=body, tags="pay")
            await until(lambda: len(seen) == 20)
        assert seen == numbers(20)
        assert node.shard("U", 0).writer.control.visible() == 20

    asyncio.run(scenario())


def test_streams_over_other_things_are_fausts_own() -> None:
    async def scenario() -> None:
        app = App("app")
        assert [value async for value in app.stream([1, 2, 3])] == [1, 2, 3]
        channel = app.channel()
        stream = channel.stream()
        app.flow_control.resume()
        await channel.send(value=7)
        async for value in stream:
            assert value == 7
            assert stream.current_event.value == 7
            break

    asyncio.run(scenario())


def test_an_agent_in_a_test_context() -> None:
    async def scenario() -> None:
        app = App("app")

        @app.agent(app.topic("T"))
        async def double(stream: Any) -> Any:
            async for value in stream:
                yield value * 2

        async with double.test_context() as agent:
            await agent.put(21)
            assert agent.results[0] == 42

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`stream.group_by()`: differs")
def test_group_by_a_field_brings_what_belongs_together_to_one_queue(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_type=Order, queues=2)
        places: dict[str, set[int]] = {}
        count = 0

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            nonlocal count
            async for event in stream.group_by(Order.order_id).events():
                assert event.key == event.value.order_id.encode()
                places.setdefault(event.value.order_id, set()).add(event.message.partition)
                count += 1

        async with running(app):
            for number in range(40):
                await topic.send(value=Order(order_id=f"o-{number % 7}", amount=1.0))
            await until(lambda: count == 40)
        assert len(places) == 7
        assert all(len(queues) == 1 for queues in places.values())

    asyncio.run(scenario())


@pytest.mark.proves("faust", "Several names: works")
def test_a_topic_of_several_names_is_read_as_one(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        seen: list[bytes] = []
        app.agent(app.topic("A", "B", value_type=bytes), name="reader")(collecting(seen))
        one, two = (app.topic(name, value_type=bytes) for name in "AB")
        async with running(app):
            await one.send(value=b"1")
            await two.send(value=b"2")
            await until(lambda: len(seen) == 2)
        assert sorted(seen) == [b"1", b"2"]
        assert committed(node, "app-reader", "A") == committed(node, "app-reader", "B") == 1

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`stream.echo()`: works")
def test_echo_to_other_topics(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic, copy = (app.topic(name, value_type=bytes, queues=1) for name in ("T", "Copy"))
        seen: list[bytes] = []
        copied: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream.echo(copy):
                seen.append(value)  # noqa: PERF401

        app.agent(copy, name="copies")(collecting(copied))
        async with running(app):
            await topic.send(value=b"1")
            await until(lambda: seen and copied)
        assert seen == copied == [b"1"]

    asyncio.run(scenario())


@pytest.mark.parametrize("way", ["values", "lists", "arrow"])
def test_a_handler_that_was_stopped_for_long_gets_nothing_more_before_it_is_known_whose_it_is(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """As after SIGSTOP: the process stands still within a message, and its lease runs out."""
    is_leased, seen, waited = [True], [0], [False]
    monkeypatch.setattr(GroupConsumer, "is_leased", property(lambda _: is_leased[0]))

    async def answer() -> None:
        await asyncio.sleep(3 * LEASE_LOOK_S)
        waited[0] = seen[0] == 1
        is_leased[0] = True

    async def handler(stream: Any) -> None:
        ways = {"values": stream, "lists": stream.take(1, within=1)}
        async for _ in stream.batches() if way == "arrow" else ways[way]:
            seen[0] += 1
            if seen[0] == 1:
                is_leased[0] = False
                time.sleep(2 * SLICE_S)  # noqa: ASYNC251  # the process stands still
                answers.append(asyncio.create_task(answer()))

    answers: list[asyncio.Task[None]] = []
    node.topics.ensure("T", 2)
    for queue_id in (0, 0, 1, 1):
        with node.producer() as producer:
            producer.send("T", b"", queue_id=queue_id)
    consume(node, handler, lambda: seen[0] >= 2 and waited[0], bodies=[])


def test_a_process_that_stood_still_before_a_delivery_hands_out_none_of_it_until_it_is_leased(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after SIGSTOP between the look at the lease and the first message."""
    is_leased, seen, early = [True], [0], [-1]
    monkeypatch.setattr(GroupConsumer, "is_leased", property(lambda _: is_leased[0]))
    begin = HandlerSensing.begin
    answers: list[asyncio.Task[None]] = []

    async def answer() -> None:
        await asyncio.sleep(3 * LEASE_LOOK_S)
        early[0], is_leased[0] = seen[0], True

    def stand_still(sensing: HandlerSensing, runs: Sequence[Run]) -> None:
        if not answers:
            is_leased[0] = False
            answers.append(asyncio.get_running_loop().create_task(answer()))
        begin(sensing, runs)

    async def handler(stream: Any) -> None:
        async for _ in stream:
            seen[0] += 1

    monkeypatch.setattr(HandlerSensing, "begin", stand_still)
    consume(node, handler, lambda: seen[0] == 3, bodies=[b"1", b"2", b"3"])
    assert early == [0]

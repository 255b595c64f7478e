from __future__ import annotations

import asyncio
import logging
import time
from itertools import pairwise
from typing import Any

import pytest
from support.apps import collecting, committed, numbers, put, running, until
from support.local_node import LocalNode

from rocketray.message import Message
from rocketray.topology.app import App


def make(node: LocalNode, topic: str = "T", queues: int = 1, **options: Any) -> tuple[App, Any]:
    app = App("app", connection=node)
    options.setdefault("value_serializer", "raw")
    return app, app.topic(topic, queues=queues, **options)


def test_an_agent_gets_every_message_and_its_group_is_committed(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node, queues=3)
        seen: list[bytes] = []

        reader = app.agent(topic, name="reader")(collecting(seen))

        async with running(app):
            for body in numbers(300):
                await topic.send(value=body)
            await until(lambda: len(seen) == 300)
        assert sorted(seen, key=int) == numbers(300)
        assert committed(node, "app-reader", "T") == 300
        statistics = reader.statistics()
        assert (statistics.received, statistics.finished, statistics.failures) == (300, 300, 0)
        assert statistics.group == "app-reader"

    asyncio.run(scenario())


def test_a_restarted_app_goes_on_where_its_group_stands(node: LocalNode) -> None:
    async def life(expected: int) -> list[bytes]:
        app, topic = make(node, queues=2)
        seen: list[bytes] = []

        app.agent(topic, name="reader")(collecting(seen))

        async with running(app):
            await until(lambda: len(seen) >= expected)
            await asyncio.sleep(0.05)
        return seen

    node.create_topic("T", 2)
    put(node, "T", numbers(40))
    assert sorted(asyncio.run(life(40)), key=int) == numbers(40)
    put(node, "T", numbers(10, first=40))
    assert sorted(asyncio.run(life(10)), key=int) == numbers(10, first=40)


def test_only_messages_with_the_tag_arrive_even_where_hashes_collide(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node, value_serializer="raw")
        seen: list[bytes] = []

        reader = app.agent(topic, tags="Aa || pay", name="reader")(collecting(seen))

        node.create_topic("T", 1)
        for tag in ("Aa", "BB", "pay", "order", None):  # Aa and BB have one hash
            put(node, "T", [str(tag).encode()] * 3, tags=tag)
        async with running(app):
            await until(lambda: len(seen) == 6)
            await until(lambda: reader.statistics().batches)
        assert seen == [b"Aa"] * 3 + [b"pay"] * 3
        assert committed(node, "app-reader", "T") == 15  # behind what was filtered out, too

    asyncio.run(scenario())


def test_sql_and_class_filters(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node)
        large: list[bytes] = []
        short: list[bytes] = []

        app.agent(topic, sql="TAGS = 'pay' AND amount BETWEEN 100 AND 500", name="large_payments")(
            collecting(large)
        )

        app.agent(topic, where="support.predicates:body_is_short", name="short_ones")(
            collecting(short)
        )

        async with running(app):
            for amount in (50, 100, 500, 501):
                await topic.send(
                    value=b"a body of %d" % amount, tags="pay", properties={"amount": amount}
                )
            await topic.send(value=b"a body of 200", tags="order", properties={"amount": 200})
            await topic.send(value=b"short", tags="pay")
            await until(lambda: len(large) == 2 and len(short) == 1)
        assert large == [b"a body of 100", b"a body of 500"]
        assert short == [b"short"]
        assert committed(node, "app-large_payments", "T") == 6

    asyncio.run(scenario())


def test_a_message_whose_handler_raised_comes_again_in_its_place(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        app, topic = make(node)
        seen: list[bytes] = []
        raised: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if value == b"7" and len(raised) < 3:
                    raised.append(value)
                    raise ValueError("on purpose")
                seen.append(value)

        node.create_topic("T", 1)
        put(node, "T", numbers(25))
        async with running(app):
            await until(lambda: len(seen) == 25)
        assert seen == numbers(25)
        assert len(raised) == 3
        assert reader.statistics().failures == 3
        assert committed(node, "app-reader", "T") == 25

    with caplog.at_level(logging.ERROR, "rocketray.topology.agent"):
        asyncio.run(scenario())
    lines = [record.message for record in caplog.records]
    assert [line for line in lines if "topic T queue 0 offset 7, attempt 2" in line]
    assert len(lines) == 3


def test_when_every_message_fails_once_nothing_stalls(node: LocalNode) -> None:
    """Mode's supervisor needs 5 s for each failure that follows another."""

    async def scenario() -> None:
        app, topic = make(node)
        seen: list[bytes] = []
        failed: set[bytes] = set()

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if value not in failed:
                    failed.add(value)
                    raise ValueError("on purpose")
                seen.append(value)

        node.create_topic("T", 1)
        put(node, "T", numbers(30))
        async with running(app):
            started = time.perf_counter()
            await until(lambda: len(seen) == 30)
            assert time.perf_counter() - started < 5
        assert seen == numbers(30)

    asyncio.run(scenario())


def test_a_message_that_always_fails_is_never_skipped_and_does_not_hold_up_the_stop(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        app, topic = make(node)
        attempts: list[float] = []
        seen: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if value == b"3":
                    attempts.append(time.perf_counter())
                    raise ValueError("on purpose")
                seen.append(value)

        node.create_topic("T", 1)
        put(node, "T", numbers(6))
        async with running(app):
            await until(lambda: len(attempts) == 6)
        pauses = [later - earlier for earlier, later in pairwise(attempts)]
        assert pauses[-1] > 4 * pauses[0]
        assert seen == numbers(3)
        assert committed(node, "app-reader", "T") == 3

    asyncio.run(scenario())


def test_something_that_the_handler_awaited_and_that_was_cancelled_is_a_failure(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        app, topic = make(node)
        seen: list[bytes] = []
        cancelled: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if not cancelled:
                    cancelled.append(value)
                    other = asyncio.create_task(asyncio.sleep(10))
                    other.cancel()
                    await other
                seen.append(value)

        async with running(app):
            await topic.send(value=b"1")
            await until(lambda: seen == [b"1"])

    asyncio.run(scenario())


def test_a_handler_that_raises_before_its_loop_is_called_again(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node)
        calls: list[int] = []
        seen: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            calls.append(1)
            if len(calls) < 4:
                raise LookupError("the database is not there yet")
            async for value in stream:
                seen.append(value)  # noqa: PERF401

        async with running(app):
            await topic.send(value=b"1")
            await until(lambda: seen == [b"1"])
        assert len(calls) == 4

    asyncio.run(scenario())


def test_a_body_that_does_not_decode_is_kept_and_not_skipped(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node, value_serializer="json")
        seen: list[Any] = []

        reader = app.agent(topic, name="reader")(collecting(seen))

        node.create_topic("T", 1)
        put(node, "T", [b"1", b"{broken", b"2"])
        async with running(app):
            await until(lambda: reader.statistics().failures >= 3)
        assert seen == [1]
        assert committed(node, "app-reader", "T") == 1

    asyncio.run(scenario())


def test_each_agent_is_a_group_and_gets_everything(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node, queues=2)
        counts = {"one": 0, "two": 0}

        def declare(name: str) -> None:
            @app.agent(topic, name=name)
            async def reader(stream: Any) -> None:
                async for _ in stream:
                    counts[name] += 1

        declare("one")
        declare("two")
        async with running(app):
            for body in numbers(50):
                await topic.send(value=body)
            await until(lambda: counts == {"one": 50, "two": 50})

    asyncio.run(scenario())


def test_agents_that_name_one_group_share_its_messages(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node, queues=2)
        seen: dict[str, list[bytes]] = {"one": [], "two": []}

        def declare(name: str) -> None:
            app.agent(topic, name=name, group="shared")(collecting(seen[name]))

        declare("one")
        declare("two")
        async with running(app):
            feeds = list(app.fetcher.feeds)
            await until(lambda: [len(feed.assignment()) for feed in feeds] == [1, 1])
            for number, body in enumerate(numbers(100)):
                await topic.send(value=body, partition=number % 2)
            await until(lambda: len(seen["one"]) + len(seen["two"]) >= 100)
        assert sorted(seen["one"] + seen["two"], key=int) == numbers(100)
        assert len(seen["one"]) == len(seen["two"]) == 50

    asyncio.run(scenario())


def test_handlers_of_one_agent_work_side_by_side(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node)
        seen: list[bytes] = []

        @app.agent(topic, concurrency=4)
        async def reader(stream: Any) -> None:
            async for value in stream:
                await asyncio.sleep(0.02)
                seen.append(value)

        node.create_topic("T", 1)
        put(node, "T", numbers(40))
        async with running(app):
            started = time.perf_counter()
            await until(lambda: len(seen) == 40)
            assert time.perf_counter() - started < 0.6  # one after the other: 0.8 s
        assert sorted(seen, key=int) == numbers(40)
        assert committed(node, "app-reader", "T") == 40

    asyncio.run(scenario())


def test_what_an_agent_yields_goes_to_its_sinks(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node, value_serializer="json")
        doubled = app.topic("Doubled")
        called: list[int] = []
        arrived: list[int] = []

        @app.agent(topic, sink=[called.append, doubled])
        async def double(stream: Any) -> Any:
            async for value in stream:
                yield value * 2

        app.agent(doubled, name="collect")(collecting(arrived))

        async with running(app):
            for value in range(5):
                await topic.send(value=value)
            await until(lambda: len(arrived) == 5)
        assert called == sorted(arrived) == [0, 2, 4, 6, 8]

    asyncio.run(scenario())


def test_an_agent_that_yields_gets_a_failed_message_again(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node, value_serializer="json")
        called: list[int] = []
        failed: list[int] = []

        @app.agent(topic, sink=[called.append])
        async def double(stream: Any) -> Any:
            async for value in stream:
                if value == 2 and not failed:
                    failed.append(value)
                    raise ValueError("on purpose")
                yield value * 2

        async with running(app):
            for value in range(5):
                await topic.send(value=value)
            await until(lambda: len(called) >= 5)
        assert called == [0, 2, 4, 6, 8]

    asyncio.run(scenario())


def test_a_stop_lets_the_message_in_hand_finish_and_hands_out_no_other(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node)
        begun: list[bytes] = []
        done: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream:
                begun.append(value)
                await asyncio.sleep(0.2)
                done.append(value)

        node.create_topic("T", 1)
        put(node, "T", numbers(10))
        await app.start()
        await until(lambda: begun)
        await app.stop()
        assert begun == done == [b"0"]
        assert committed(node, "app-reader", "T") == 1

    asyncio.run(scenario())


def test_a_handler_that_ends_is_told_about(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        app, topic = make(node)

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for _ in stream:
                break

        async with running(app):
            await topic.send(value=b"1")
            await until(lambda: caplog.records)

    with caplog.at_level(logging.WARNING, "rocketray.topology.agent"):
        asyncio.run(scenario())
    assert "agent reader returned" in caplog.text
    assert committed(node, "app-reader", "T") == 0


def test_what_a_handler_sends_is_stored_before_its_message_is_committed(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node)
        out = app.topic("Out", value_serializer="raw", queues=1)

        @app.agent(topic)
        async def forward(stream: Any) -> None:
            async for value in stream:
                await out.send(value=value)

        node.create_topic("T", 1)
        put(node, "T", numbers(500))
        async with running(app):
            await until(lambda: forward.statistics().finished == 500)
        assert committed(node, "app-forward", "T") == 500
        assert node.shards["Out", 0].writer.control.visible() == 500

    asyncio.run(scenario())


def test_a_user_may_name_a_supervisor_that_gives_up(node: LocalNode) -> None:
    from mode.supervisors import ForfeitOneForOneSupervisor  # noqa: PLC0415

    async def scenario() -> None:
        app, topic = make(node)
        attempts: list[bytes] = []

        @app.agent(topic, supervisor_strategy=ForfeitOneForOneSupervisor)
        async def reader(stream: Any) -> None:
            async for value in stream:
                attempts.append(value)
                raise ValueError("on purpose")

        async with running(app):
            await topic.send(value=b"1")
            await until(lambda: attempts)
            await asyncio.sleep(0.3)
        assert attempts == [b"1"]
        assert committed(node, "app-reader", "T") == 0

    asyncio.run(scenario())


def test_messages_of_other_producers_arrive_with_their_own_keys(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make(node)
        events: list[Any] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                events.append(event)  # noqa: PERF401

        node.create_topic("T", 1)
        producer = node.producer()
        producer.send_messages(
            "T", [Message("T", b"x", tags="pay", keys=["k1", "k2"], properties={"region": "eu"})]
        )
        producer.close()
        async with running(app):
            await until(lambda: events)
        (event,) = events
        assert event.key == b"k1"
        assert event.headers["TAGS"] == b"pay"
        assert event.headers["region"] == b"eu"
        assert (event.message.topic, event.message.partition, event.message.offset) == ("T", 0, 0)

    asyncio.run(scenario())

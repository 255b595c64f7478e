"""What becomes of messages that fail: the rules, and above all messages that do not decode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.harness.patience import until
from support.nodes.apps import collecting, committed, make_app, put, running
from support.nodes.ladder import Ladder, stored_in
from support.nodes.local_node import LocalNode

from rocketray.base.marks import FAILURE_REASON, ORIGIN_MESSAGE_ID
from rocketray.broker.retries.retry_records import MAX_ATTEMPTS
from rocketray.errors import ConfigError
from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers import member as member_module
from rocketray.services.explaining.cause import Cause
from rocketray.services.explaining.inquiry import inquire
from rocketray.topology.app.app import App
from rocketray.topology.delivery.failure import FIRST_DELAY_S, MAX_DELAY_S, backoff_s
from rocketray.topology.delivery.flow import FlowLimits
from rocketray.topology.values import failure_rules
from rocketray.topology.values.failure_rules import FailureOptions
from rocketray.topology.values.group import GroupMembership

BROKEN = b"{broken"
LETTERS = "%DLQ%app-reader"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats come often."""
    monkeypatch.setattr(member_module, "HEARTBEAT_INTERVAL_S", 0.02)


@pytest.mark.parametrize(
    ("options", "attempts", "decode_attempts", "stops"),
    [
        (FailureOptions(), None, MAX_ATTEMPTS, False),
        (FailureOptions(max_attempts=3), 3, 3, False),
        (FailureOptions(on_decode_error="dead_letter"), None, MAX_ATTEMPTS, False),
        (FailureOptions(on_decode_error="stop"), None, None, True),
        (FailureOptions(max_attempts=3, on_decode_error="stop"), 3, None, True),
        (FailureOptions(dead_letter=False), None, None, False),
        (FailureOptions(dead_letter="Letters"), None, MAX_ATTEMPTS, False),
    ],
)
def test_how_often_an_ordered_agent_tries_a_message(
    options: FailureOptions, attempts: int | None, decode_attempts: int | None, stops: bool
) -> None:
    options.check(lambda _: False)
    rules = options.rules("g", is_ordered=True)
    assert (rules.max_attempts, rules.decode_attempts) == (attempts, decode_attempts)
    assert rules.stops_at_undecodable is stops


@pytest.mark.proves("delivery", "The pauses for a message that cannot be decoded double")
def test_pauses_double_while_a_message_does_not_decode() -> None:
    rules = FailureOptions().rules("g", is_ordered=True)
    pauses = [rules.pause_s(attempt, is_decoding=True) for attempt in range(1, 17)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 30]
    assert sum(pauses) == 361, "the docs say six minutes"
    assert rules.pause_s(2**31, is_decoding=True) == 30
    assert {rules.pause_s(attempt, is_decoding=False) for attempt in range(1, 17)} == {1}


@pytest.mark.proves("delivery", "A broadcast agent skips a message that cannot be decoded")
def test_a_broadcast_agent_passes_what_does_not_decode(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, value_serializer="json")
        seen: list[Any] = []
        reader = app.agent(topic, name="reader", broadcast=True)(collecting(seen))
        node.topics.ensure("T", 1)
        async with running(app):
            put(node, "T", [b"1", BROKEN, b"2"])
            await until(lambda: seen == [1, 2])
            assert reader.statistics().decode_failures == 1

    asyncio.run(scenario())
    assert [name for name in node.topics.all() if name.startswith("%")] == []
    stop = FailureOptions(on_decode_error="stop")
    with pytest.raises(ConfigError, match=r"leave out .*on_decode_error"):
        GroupMembership("g", Subscription.tags("*"), failures=stop, is_broadcast=True)


@pytest.mark.proves(
    "delivery",
    "An ordered queue is held at a message that cannot be decoded, which is then dead-lettered",
)
@pytest.mark.parametrize("lists", [False, True])
def test_an_ordered_queue_is_held_at_what_does_not_decode_and_then_gives_it_up(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lists: bool
) -> None:
    monkeypatch.setattr(failure_rules, "_PAUSE_MAX_S", 0.01)

    async def scenario() -> None:
        app, topic = make_app(node, value_serializer="json")
        seen: list[Any] = []

        @app.agent(topic, ordered=True)
        async def reader(stream: Any) -> None:
            if not lists:
                async for value in stream:
                    seen.append(value)  # noqa: PERF401  # one by one, as users write it
                return
            async for values in stream.take(5, within=0.02):
                seen.extend(values)

        node.topics.ensure("T", 1)
        put(node, "T", [b"1", BROKEN, b"2"])
        async with running(app):
            await until(lambda: seen == [1, 2])
            await until(lambda: reader.statistics().dead_lettered)
            statistics = reader.statistics()
        assert statistics.decode_failures == statistics.failures == MAX_ATTEMPTS + 1
        assert not statistics.held
        [letter] = stored_in(node, LETTERS)
        assert (letter.body, letter.reconsume_times) == (BROKEN, MAX_ATTEMPTS + 1)
        assert letter.properties[FAILURE_REASON].startswith("JSONDecodeError: ")
        assert committed(node, "app-reader", "T") == 3

    asyncio.run(scenario())
    lines = [record for record in caplog.records if "offset 1, attempt" in record.getMessage()]
    assert len(lines) == MAX_ATTEMPTS + 1, "each attempt has a line"
    assert [bool(record.exc_info) for record in lines] == [True] + [False] * MAX_ATTEMPTS


@pytest.mark.proves(
    "delivery",
    "The message at which a queue is held is visible until it is finished",
)
@pytest.mark.usefixtures("soon")
def test_the_message_at_which_a_queue_is_held_is_known_until_it_is_through(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []
        is_fixed = asyncio.Event()

        @app.agent(topic, ordered=True, suspend=0.05)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if value == b"bad" and not is_fixed.is_set():
                    raise ValueError("no such account")
                seen.append(value)

        node.topics.ensure("T", 1)
        put(node, "T", [b"good", b"bad", b"behind"], keys=["k"])
        ids = [message.offset_message_id for message in node.stored("T")]
        async with running(app):
            await until(lambda: node.groups.all()[0].failing)
            [held] = reader.statistics().held
            assert (held.topic, held.queue_id) == ("T", 0)
            assert held.message.queue_offset == 1
            assert held.message.last_attempt is None
            assert held.message.reason == "ValueError: no such account"
            explained = [await asyncio.to_thread(inquire, node, one, "app-reader") for one in ids]
            assert [one.cause for one in explained] == [
                Cause.DELIVERED,
                Cause.FAILING,
                Cause.ON_ITS_WAY,
            ]
            assert "no such account" in explained[2].steps[-1].detail
            is_fixed.set()
            await until(lambda: len(seen) == 3)
            assert not reader.statistics().held
            await until(lambda: not node.groups.all()[0].failing)

    asyncio.run(scenario())


@pytest.mark.proves("delivery", '`on_decode_error="stop"` holds one queue and no other')
@pytest.mark.parametrize("ordered", [False, True])
def test_an_agent_that_stops_holds_the_queue_and_no_other(node: LocalNode, ordered: bool) -> None:
    async def scenario() -> None:
        app = App("app", connection=node, flow=FlowLimits(messages=20))
        topic = app.topic("T", queues=2, value_serializer="json")
        seen: dict[int, list[Any]] = {0: [], 1: []}

        @app.agent(topic, ordered=ordered, max_attempts=1, on_decode_error="stop")
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                seen[event.message.partition].append(event.value)

        node.topics.ensure("T", 2)
        with node.producer() as producer:
            for body in (b"0", BROKEN, *[b"1"] * 50):
                producer.send_async("T", body, queue_id=0)
            for number in range(100):
                producer.send_async("T", b"%d" % number, queue_id=1)
        async with running(app):
            await until(lambda: reader.statistics().decode_failures >= 3)
            await until(lambda: len(seen[1]) == 100)
            [held] = reader.statistics().held
            assert held.message.last_attempt is None
            assert seen[0] == [0]
        assert committed(node, "app-reader", "T") == 101
        assert not stored_in(node, LETTERS)
        assert not Ladder(node).waiting()

    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(failure_rules, "_PAUSE_MAX_S", 0.02)
        asyncio.run(scenario())


def test_a_key_that_does_not_decode_counts_as_a_message_that_does_not(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, key_type=int, key_serializer="json")
        seen: list[Any] = []

        @app.agent(topic, ordered=True, suspend=0.01, max_attempts=2)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                seen.append((event.key, event.value))  # noqa: PERF401  # as above

        node.topics.ensure("T", 1)
        put(node, "T", [b"1"], keys=["{"])
        put(node, "T", [b"2"], keys=["7"])
        async with running(app):
            await until(lambda: seen)
            statistics = reader.statistics()
        assert seen == [(7, b"2")]
        assert statistics.decode_failures == statistics.failures == 3
        [letter] = stored_in(node, LETTERS)
        assert letter.properties[FAILURE_REASON].startswith("KeyDecodeError: ")

    asyncio.run(scenario())


@pytest.mark.proves("delivery", "A dead letter has the reason of its failure")
def test_a_dead_letter_of_a_handler_says_what_it_failed_of(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)

        @app.agent(topic, max_attempts=0, dead_letter="Letters")
        async def reader(stream: Any) -> None:
            async for _ in stream:
                raise LookupError("no account 7\nin the books")

        node.topics.ensure("T", 1)
        put(node, "T", [b"1"])
        async with running(app):
            await until(lambda: reader.statistics().dead_lettered)
        [letter] = stored_in(node, "Letters")
        assert letter.properties[FAILURE_REASON] == "LookupError: no account 7 in the books"
        assert ORIGIN_MESSAGE_ID in letter.properties

    asyncio.run(scenario())


def test_a_message_that_fails_for_ever_is_logged_ever_more_seldom(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        calls: list[int] = []

        @app.agent(topic, ordered=True, suspend=0.01)
        async def reader(stream: Any) -> None:
            async for _ in stream:
                calls.append(1)
                raise ValueError("on purpose")

        node.topics.ensure("T", 1)
        put(node, "T", [b"1"])
        async with running(app):
            await until(lambda: len(calls) >= 70)

    asyncio.run(scenario())
    lines = [record for record in caplog.records if "attempt" in record.getMessage()]
    assert len(lines) == MAX_ATTEMPTS + 2, "of attempts 32 and 64, too"
    assert sum(bool(record.exc_info) for record in lines) == 1


def test_the_pause_doubles_up_to_a_limit() -> None:
    pauses = [backoff_s(attempts) for attempts in range(1, 20)]
    assert pauses[:3] == pytest.approx([FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S])
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_DELAY_S


def test_any_number_of_attempts_has_a_pause() -> None:
    assert backoff_s(0) == FIRST_DELAY_S
    assert backoff_s(10**9) == MAX_DELAY_S

"""A message that fails comes again later, up the ladder, and then is a dead letter; none is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from support.harness.patience import until
from support.nodes.apps import collecting, committed, make_app, numbers, put, running
from support.nodes.ladder import Ladder, stored_in
from support.nodes.local_node import LocalNode

from rocketray.broker.retries.retry_records import MAX_ATTEMPTS, retry_topic
from rocketray.errors import ConfigError, ShardUnavailableError, StoreFullError
from rocketray.filters.subscription import EVERYTHING, Subscription
from rocketray.message import ForwardedMessage
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.services.delays.delay_service import DelayService
from rocketray.topology.app.app import App
from rocketray.topology.faust import fetcher
from rocketray.topology.faust.fetcher import FeedFetcher

RETRIES = retry_topic("app-reader")


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is delivered by the test, and retry topics are found soon."""
    monkeypatch.setattr(fetcher, "RETRY_LOOK_S", 0.05)
    monkeypatch.setattr(DelayService, "step", lambda _, now_ms: now_ms + 60_000)


@pytest.mark.proves("delivery", "A failed message is redelivered until it is a dead letter")
def test_a_message_that_fails_comes_again_until_it_is_a_dead_letter(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []
        events: list[Any] = []
        ladder = Ladder(node)

        @app.agent(topic, tags="pay")
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                if event.value == b"7":
                    events.append(event)
                    raise ValueError("on purpose")
                seen.append(event.value)

        node.topics.ensure("T", 1)
        put(node, "T", numbers(10), tags="pay", keys=["k"])
        async with running(app):
            await until(lambda: len(seen) == 9)
            for times in range(MAX_ATTEMPTS):
                await until(partial(_came, events, times + 1, ladder))
                assert ladder.deliver() == 1
            await until(lambda: reader.statistics().dead_lettered)
            statistics = reader.statistics()
        assert seen == [body for body in numbers(10) if body != b"7"]
        assert [event.reconsume_times for event in events] == list(range(MAX_ATTEMPTS + 1))
        assert {event.message.topic for event in events} == {"T"}
        assert {event.key for event in events} == {b"k"}
        [letter] = stored_in(node, "%DLQ%app-reader")
        assert (letter.body, letter.tags, letter.keys) == (b"7", "pay", ["k"])
        assert letter.reconsume_times == MAX_ATTEMPTS + 1
        assert not ladder.waiting()
        assert committed(node, "app-reader", "T") == 10
        assert committed(node, "app-reader", RETRIES) == MAX_ATTEMPTS
        told = (statistics.sent_back, statistics.dead_lettered, statistics.failures)
        assert told == (MAX_ATTEMPTS, 1, MAX_ATTEMPTS + 1)
        counted = [one.counters for one in node.groups.all() if one.group == "app-reader"]
        assert sum(one.sent_back for one in counted) == MAX_ATTEMPTS
        assert sum(one.dead_lettered for one in counted) == 1

    asyncio.run(scenario())


def test_when_every_message_fails_all_are_sent_back_at_once(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, queues=2)
        seen: Counter[bytes] = Counter()
        ladder = Ladder(node)

        @app.agent(topic, concurrency=3)
        async def reader(stream: Any) -> None:
            async for value in stream:
                seen[value] += 1
                if seen[value] == 1:
                    raise ValueError("on purpose")

        node.topics.ensure("T", 2)
        put(node, "T", numbers(300))
        async with running(app):
            await until(lambda: len(ladder.waiting()) == 300)
            ladder.deliver()
            await until(lambda: seen.total() == 600)
        assert set(seen.values()) == {2}
        assert committed(node, "app-reader", "T") == committed(node, "app-reader", RETRIES) == 300

    asyncio.run(scenario())


@pytest.mark.proves(
    "delivery",
    "A message that cannot be decoded, or that a filter of the stream raises on, is retried",
)
def test_what_does_not_decode_or_is_refused_by_a_filter_is_sent_back(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, value_serializer="json")
        seen: list[Any] = []
        calls: list[int] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            calls.append(1)
            async for value in stream.filter(lambda value: 10 // value):
                seen.append(value)  # noqa: PERF401

        node.topics.ensure("T", 1)
        put(node, "T", [b"1", b"{broken", b"0", b"2"])
        async with running(app):
            await until(lambda: len(seen) == 2 and reader.statistics().sent_back == 2)
        assert seen == [1, 2]
        assert len(calls) == 1  # the handler heard nothing of it
        assert [one.body for one in Ladder(node).waiting()] == [b"{broken", b"0"]
        assert committed(node, "app-reader", "T") == 4

    asyncio.run(scenario())


@pytest.mark.proves(
    "delivery",
    "A failed message is redelivered whatever filter its group has by then",
)
@pytest.mark.parametrize(
    "later",
    [
        {"tags": "order"},
        {"sql": "RETRY_TOPIC IS NULL AND DELAY IS NULL"},
        {"where": "support.predicates:fails_always"},
        {"sql": "KEYS = 'k'", "dialect": "rocketmq"},
    ],
)
def test_what_failed_comes_again_whatever_its_group_filters_by_then(
    node: LocalNode, later: dict[str, Any]
) -> None:
    async def scenario() -> None:
        seen: list[bytes] = []
        ladder = Ladder(node)

        def make_reader(**chosen: Any) -> App:
            app, topic = make_app(node)

            @app.agent(topic, **chosen)
            async def reader(stream: Any) -> None:
                async for value in stream:
                    seen.append(value)
                    if len(seen) < 3:
                        raise ValueError("on purpose")

            return app

        async with running(make_reader(sql="RETRY_TOPIC IS NULL")):
            put(node, "T", [b"1"], tags="pay")
            await until(partial(_came, seen, 1, ladder))
            ladder.deliver()
            await until(partial(_came, seen, 2, ladder))
        ladder.deliver()
        async with running(make_reader(**later)):
            await until(lambda: len(seen) == 3 and committed(node, "app-reader", RETRIES) == 2)
        assert seen == [b"1"] * 3
        [subscription] = [one.subscription for one in node.groups.all() if one.topic == RETRIES]
        assert subscription == EVERYTHING

    node.topics.ensure("T", 1)
    asyncio.run(scenario())


@pytest.mark.proves("groups", "A filter on the group's retry topic is refused")
def test_a_group_reads_its_retry_topic_without_a_filter(node: LocalNode) -> None:
    node.topics.ensure(RETRIES, 1, internal=True)
    with pytest.raises(ConfigError, match=r"on which group 'app-reader' failed.*leave out tags"):
        node.consumer("app-reader", RETRIES, Subscription.tags("pay"))
    with node.consumer("app-reader", RETRIES, EVERYTHING):
        with pytest.raises(ConfigError, match="leave out sql 'a = 1'"):
            node.groups.prepare_change("app-reader", RETRIES, Subscription.sql("a = 1"))
        with node.consumer("audit", RETRIES, Subscription.tags("pay")):
            pass  # to another group it is a topic like any other


@pytest.mark.proves("delivery", "A retry shows its original topic")
def test_what_comes_again_shows_the_topic_that_it_was_sent_to(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        topics: list[list[str]] = []
        ladder = Ladder(node)

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for batch in stream.batches(["body", "topic"]):
                topics.append(batch["topic"].to_pylist())
                if len(topics) < 3:
                    raise ValueError("on purpose")

        async with running(app):
            await topic.send(value=b"1")
            for count in (1, 2):
                await until(partial(_came, topics, count, ladder))
                ladder.deliver()
            await until(lambda: len(topics) == 3)
        assert topics == [["T"]] * 3

    asyncio.run(scenario())


def test_in_manual_mode_what_raised_without_an_acknowledgement_is_sent_back(
    node: LocalNode,
) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[int] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for event in stream.noack().events():
                seen.append(event.message.offset)
                if event.message.offset != 2:
                    event.ack()
                if event.message.offset in {2, 3}:
                    raise ValueError("on purpose")

        node.topics.ensure("T", 1)
        put(node, "T", numbers(5))
        async with running(app):
            await until(lambda: len(seen) == 5 and reader.statistics().finished == 5)
        assert seen == [0, 1, 2, 3, 4]
        assert [one.body for one in Ladder(node).waiting()] == [b"2"]
        assert committed(node, "app-reader", "T") == 5

    asyncio.run(scenario())


@pytest.mark.proves("delivery", "An agent chooses its attempts and the topic of its dead letters")
def test_attempts_and_the_topic_of_dead_letters_are_the_agents_choice(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)

        @app.agent(topic, max_attempts=0, dead_letter="Broken")
        async def reader(stream: Any) -> None:
            async for _ in stream:
                raise ValueError("on purpose")

        async with running(app):
            await topic.send(value=b"1", key="k")
            await until(lambda: reader.statistics().dead_lettered)
        [letter] = stored_in(node, "Broken")
        assert (letter.body, letter.keys) == (b"1", ["k"])
        assert RETRIES not in node.topics.all()
        assert node.topics.get("Broken").internal

    asyncio.run(scenario())


@pytest.mark.proves("delivery", "With `dead_letter=False` no message is dead-lettered")
def test_without_dead_letters_no_message_is_given_up(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        attempts: list[int] = []
        ladder = Ladder(node)

        @app.agent(topic, dead_letter=False)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                attempts.append(event.reconsume_times)
                raise ValueError("on purpose")

        async with running(app):
            await topic.send(value=b"1")
            for times in range(MAX_ATTEMPTS + 3):
                await until(partial(_came, attempts, times + 1, ladder))
                ladder.deliver()
        assert "%DLQ%app-reader" not in node.topics.all()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_attempts": -1}, "from 0 to"),
        ({"max_attempts": True}, "from 0 to"),
        ({"dead_letter": True}, "is not needed"),
        ({"dead_letter": False, "max_attempts": 3}, "needs a dead-letter topic"),
        ({"dead_letter": "T"}, "loop for ever"),
        ({"dead_letter": "%RETRY%app-x"}, "a retry topic or system topic"),
        ({"dead_letter": "a.b"}, "not allowed"),
        ({"dead_letter": "D", "ordered": True, "on_decode_error": "stop"}, "give max_attempts="),
        ({"on_decode_error": "skip"}, "give 'dead_letter'.* or 'stop'"),
        ({"on_decode_error": "dead_letter", "dead_letter": False}, "needs a dead-letter topic"),
        ({"suspend": 2}, "ordered=True"),
        ({"suspend": 0.001, "ordered": True}, "from 0.01 to 30 seconds"),
        ({"suspend": 31, "ordered": True}, "from 0.01 to 30 seconds"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], reason: str) -> None:
    app = App("app")
    with pytest.raises(ConfigError, match=reason):
        app.agent(app.topic("T"), name="reader", **options)(collecting([]))


class Interrupted(NodeProducer):
    """Fails to store what is sent back, as often as the test wants."""

    failures: Sequence[Exception] = ()
    asked = 0

    def forward(
        self, topic: str, queue_id: int, messages: Sequence[ForwardedMessage], **options: Any
    ) -> Any:
        type(self).asked += 1
        if self.failures:
            first, *left = self.failures
            type(self).failures = left
            raise first
        return super().forward(topic, queue_id, messages, **options)


@pytest.fixture
def interrupted(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> type[Interrupted]:
    class Mine(Interrupted):
        pass

    monkeypatch.setattr(node, "producer", lambda **options: Mine(node, **options))
    return Mine


def test_what_cannot_be_sent_back_yet_is_kept_and_tried_again(
    node: LocalNode, interrupted: type[Interrupted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketray.topology.delivery.returns._RETRY_S", 0.3)
    monkeypatch.setattr("rocketray.topology.delivery.returns._REFUSED_RETRY_S", 0.3)
    interrupted.failures = [ShardUnavailableError("the host", "away", 1), StoreFullError("full")]

    async def scenario() -> None:
        app, topic = make_app(node)
        seen: list[bytes] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for value in stream:
                if value == b"3":
                    raise ValueError("on purpose")
                seen.append(value)

        node.topics.ensure("T", 1)
        put(node, "T", numbers(6))
        async with running(app):
            await until(lambda: len(seen) == 5)
            await app.consumer.commit()
            assert reader.statistics().finished == 3  # the queue stands before the message
            await until(lambda: reader.statistics().sent_back)
        assert [one.body for one in Ladder(node).waiting()] == [b"3"]
        assert committed(node, "app-reader", "T") == 6

    asyncio.run(scenario())


def crash(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the app end without a word to the node: nothing is flushed, nothing is committed."""

    async def nothing(*_arguments: Any, **_options: Any) -> bool:
        return False

    monkeypatch.setattr(app.consumer, "force_commit", nothing)
    monkeypatch.setattr(app.consumer, "commit", nothing)
    for feed in app.fetcher.feeds:
        monkeypatch.setattr(feed, "commit", lambda _: None)


@pytest.mark.proves("delivery", "A process that ends while it sends a message back loses nothing")
@pytest.mark.parametrize("is_stored", [False, True], ids=["before it is stored", "after"])
def test_an_app_that_dies_around_a_send_back_loses_nothing(
    node: LocalNode,
    interrupted: type[Interrupted],
    monkeypatch: pytest.MonkeyPatch,
    is_stored: bool,
) -> None:
    monkeypatch.setattr(fetcher, "DRAIN_GRACE_S", 0.1)

    async def life(handler: Any, is_over: Any, *, dies: bool) -> None:
        app, topic = make_app(node)
        app.agent(topic, name="reader")(handler)
        async with running(app):
            if dies:
                crash(app, monkeypatch)
            await until(is_over)

    async def failing(stream: Any) -> None:
        async for _ in stream:
            raise ValueError("on purpose")

    node.topics.ensure("T", 1)
    put(node, "T", numbers(4))
    ladder = Ladder(node)
    if is_stored:
        asyncio.run(life(failing, lambda: len(ladder.waiting()) == 4, dies=True))
    else:
        interrupted.failures = [ShardUnavailableError("the host", "away", 1)] * 1000
        asyncio.run(life(failing, lambda: interrupted.asked, dies=True))
        interrupted.failures = []
    assert committed(node, "app-reader", "T") == 0
    seen: list[bytes] = []
    count = 8 if is_stored else 4
    ladder.deliver()
    asyncio.run(life(collecting(seen), lambda: len(seen) >= count, dies=False))
    assert Counter(seen) == dict.fromkeys(numbers(4), 2 if is_stored else 1)
    assert committed(node, "app-reader", "T") == 4


def test_a_member_that_sent_nothing_back_reads_what_others_did(node: LocalNode) -> None:
    async def scenario() -> None:
        first, topic = make_app(node)
        second = App("app", connection=node)
        other = second.topic("T", queues=1, value_serializer="raw")
        seen: list[bytes] = []

        @first.agent(topic, name="reader")
        async def failing(stream: Any) -> None:
            async for _ in stream:
                raise ValueError("on purpose")

        second.agent(other, name="reader")(collecting(seen))
        ladder = Ladder(node)
        async with running(second):
            async with running(first):
                await until(lambda: _owners(second, "T") + _owners(first, "T") == 1)
                await topic.send(value=b"1")
                await until(lambda: seen or ladder.waiting())
            if not seen:
                ladder.deliver()
            await until(lambda: seen)
        assert seen == [b"1"]

    asyncio.run(scenario())


def _came(deliveries: Sequence[Any], count: int, ladder: Ladder) -> bool:
    """The message was delivered *count* times, and waits to come again."""
    return len(deliveries) == count and bool(ladder.waiting())


def _owners(app: App, topic: str) -> int:
    fetching: FeedFetcher = app.fetcher
    return sum(queue[0] == topic for feed in fetching.feeds for queue in feed.assignment())

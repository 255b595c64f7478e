"""A target that does not answer, or is gone, and what else the node has to deliver meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.nodes.schedules import Waiting
from support.nodes.transactions import begin

from rocketray.broker.retries.retry_records import topic_of
from rocketray.errors import ShardUnavailableError, TopicNotFoundError
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.services.admin.dead_letters import letter_boxes, letters, redrive
from rocketray.testing import Broker, Clock
from rocketray.testing.fixtures import broker, clock

__all__ = ["broker", "clock"]

ALL = Subscription.tags("*")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def test_a_target_that_does_not_answer_holds_up_its_own_messages_only(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    waiting, answers = Waiting(tmp_path, pool.submit), threading.Event()

    def block(what: str) -> None:
        if what == "forward silent/0":
            answers.wait()

    waiting.before = block
    silent = [waiting.send_level(1, "silent") for _ in range(3)]
    first = waiting.send_level(1)
    waiting.clock.now_ms += 1_000
    waiting.step()  # comes back although nobody answers
    assert (waiting.keys("silent"), waiting.keys()) == ([], [first.key])
    later = [waiting.send_level(1, topic) for topic in ("silent", "trade")]
    waiting.clock.now_ms += 1_000
    for _ in range(3):
        waiting.step()
    assert (waiting.keys("silent"), waiting.keys()) == ([], [first.key, later[1].key])
    assert len(waiting.schedule) == 4
    with pytest.raises(ShardUnavailableError, match="is being delivered"):
        waiting.schedule.recall(silent[0].place, silent[0].offset, silent[0].key)
    assert waiting.schedule.recall(later[0].place, later[0].offset, later[0].key)
    answers.set()
    while len(waiting.schedule):
        assert waiting.step() <= waiting.clock.now_ms + 60_000
    assert waiting.keys("silent") == [one.key for one in silent], "in order, each once"
    waiting.close()


def test_a_schedule_that_ends_waits_for_what_is_under_way_and_repeats_nothing(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    waiting, answers = Waiting(tmp_path, pool.submit), threading.Event()

    def block(what: str) -> None:
        if what == "forward slow/0":
            answers.wait()

    waiting.before = block
    sent = waiting.send_level(1, "slow")
    waiting.clock.now_ms += 1_000
    waiting.step()
    threading.Timer(0.05, answers.set).start()
    waiting.schedule.close()
    assert waiting.keys("slow") == [sent.key]
    waiting.start()
    waiting.step()
    assert waiting.keys("slow") == [sent.key]
    assert len(waiting.schedule) == 0
    waiting.close()


def test_a_shard_that_is_down_gets_what_was_due_when_it_is_back(
    broker: Broker, clock: Clock
) -> None:
    for topic in ("up", "down"):
        broker.topics.ensure(topic, 1)
    with broker.producer() as producer:
        for number in range(5):
            for topic in ("down", "up"):
                producer.send(topic, b"%d" % number, delay=1 + number)
        with broker.faults.shard_down("down"):
            clock.advance(seconds=30)
            assert [one.body for one in broker.stored("up")] == [b"0", b"1", b"2", b"3", b"4"]
            assert broker.stored("down") == []
        clock.advance(minutes=1)
    assert [one.body for one in broker.stored("down")] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_delayed_message_whose_topic_was_deleted_is_a_dead_letter_that_can_be_redriven(
    broker: Broker, clock: Clock
) -> None:
    broker.topics.ensure("gone", 2)
    with broker.producer() as producer:
        for number in range(3):
            producer.send("gone", b"%d" % number, tags="pay", queue_id=1, delay_level=1)
        broker.topics.delete("gone")
        clock.advance(seconds=2)
        [box] = letter_boxes(broker.node)
        assert (box.group, box.letters, box.redriven) == ("CID_RMQ_SYS_SCHEDULE", 3, 0)
        assert {topic_of(one) for one, _ in letters(broker.node, box.group, ALL)} == {"gone"}
        with pytest.raises(TopicNotFoundError, match="gone"):
            redrive(broker.node, producer, box.group, ALL)
        broker.topics.ensure("gone", 2)
        assert redrive(broker.node, producer, box.group, ALL) == 3
        assert redrive(broker.node, producer, box.group, ALL) == 0
    found = [(one.body, one.tags, one.queue_id) for one in broker.stored("gone")]
    assert found == [(b"0", "pay", 1), (b"1", "pay", 1), (b"2", "pay", 1)]


def test_a_retry_whose_topic_was_deleted_is_its_groups_dead_letter(
    broker: Broker, clock: Clock
) -> None:
    broker.topics.ensure("%RETRY%shop", 1)
    with broker.producer() as producer:
        producer.send("%RETRY%shop", b"again", delay_level=1)
    broker.topics.delete("%RETRY%shop")
    clock.advance(seconds=2)
    assert [(one.group, one.letters) for one in letter_boxes(broker.node)] == [("shop", 1)]


def test_a_commit_whose_topic_was_deleted_is_a_dead_letter_and_one_for_a_dead_shard_waits(
    broker: Broker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_message: StoredMessage) -> str:
        return "unknown"

    for topic in ("gone", "down", "up"):
        broker.topics.ensure(topic, 1)
    with NodeProducer(broker.node, group="payments", check=unknown) as producer:  # type: ignore[arg-type]
        begun = {topic: begin(producer, topic, topic.encode()) for topic in ("gone", "down", "up")}
        broker.topics.delete("gone")
        # As if it was deleted when the commit had looked for it: else the commit is refused.
        monkeypatch.setattr(begun["gone"].transactions, "check_target", lambda *_: None)
        with broker.faults.shard_down("down"):
            for transaction in begun.values():
                transaction.commit()
            clock.advance(seconds=5)
            assert bodies(broker.stored("up")) == [b"up"]
            assert broker.stored("down") == []
        clock.advance(minutes=1)
        assert bodies(broker.stored("down")) == [b"down"]
    [box] = letter_boxes(broker.node)
    assert (box.group, box.letters) == ("CID_RMQ_SYS_TRANS", 1)
    broker.topics.ensure("gone", 1)
    with broker.producer() as sender:
        assert redrive(broker.node, sender, box.group, ALL) == 1
    [delivered] = broker.stored("gone")
    assert (delivered.body, delivered.unique_key) == (b"gone", begun["gone"].message_id)
    assert delivered.sys_flag & 0xC == 0x8


def bodies(found: Sequence[StoredMessage]) -> list[bytes]:
    return [one.body for one in found]

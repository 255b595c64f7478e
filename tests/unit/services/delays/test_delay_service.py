"""Delayed messages through a whole node in this process, by the machine's clock."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode

from rocketray.base.delay import DelayOptions
from rocketray.base.recall import RecallHandle
from rocketray.base.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.message import ForwardedMessage, StoredMessage
from rocketray.messaging.api.system_api import WaitingByMinute
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.paths import shard_directory
from rocketray.services.system import node_link


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as made:
        made.topics.ensure("trade", 2)
        yield made


def wait_for(node: LocalNode, queue_id: int, count: int) -> list[StoredMessage]:
    wait_until(lambda: node.shard_statistics("trade")[queue_id].max_queue_offset >= count)
    found = [node.messages.at("trade", queue_id, offset) for offset in range(count)]
    return [message for message in found if message is not None]


@pytest.mark.proves("producers", "A delayed message is not delivered early")
def test_delayed_messages_arrive_after_their_delay_and_not_before(node: LocalNode) -> None:
    with node.producer() as producer:
        now = system_clock_ms()
        producer.send("trade", b"level", tags="pay", keys="k1", queue_id=1, delay_level=1)
        producer.send_async("trade", b"delay", queue_id=1, delay=timedelta(seconds=0.7))
        at = datetime.fromtimestamp(now / 1000 + 0.4, UTC)
        producer.send("trade", b"time", queue_id=1, deliver_at=at)
    arrived = {message.body: message for message in wait_for(node, 1, 3)}
    for body, delay in ((b"time", 400), (b"delay", 700), (b"level", 1000)):
        assert arrived[body].store_timestamp_ms >= now + delay
        assert now <= arrived[body].born_timestamp_ms <= arrived[body].store_timestamp_ms
    assert (arrived[b"level"].tags, arrived[b"level"].keys) == ("pay", ["k1"])
    assert arrived[b"level"].properties["DELAY"] == "1"


def test_waiting_messages_are_counted_by_the_minute_in_which_they_are_due(
    node: LocalNode,
) -> None:
    """The model counts what was sent; a recalled message waits no more, and a held one does."""
    chance, now = random.Random(7), system_clock_ms()
    due = [now + 60_000 + chance.randrange(20 * 60_000) for _ in range(300)]
    with node.producer() as producer:
        sent = [
            producer.send_async("trade", b"", deliver_at=datetime.fromtimestamp(ms / 1000, UTC))
            for ms in due
        ]
        handles = [str(one.result().recall_handle) for one in sent]
    for number in range(0, 300, 7):
        assert node.delays.recall(handles[number])
    left = [ms for number, ms in enumerate(due) if number % 7]
    model = sorted(Counter(ms // 60_000 * 60_000 for ms in left).items())

    def all_known() -> WaitingByMinute | None:
        found = node.delays.by_minute("", 5)
        known = found.later + sum(count for _, count in found.minutes)
        return found if known >= len(left) else None

    found = wait_until(all_known)
    assert found == WaitingByMinute((*model[:5],), sum(count for _, count in model[5:]))
    assert node.delays.by_minute("", 100) == WaitingByMinute((*model,), 0)
    assert node.delays.waiting("") == len(left)
    for handle in handles[1:7]:
        assert node.delays.recall(handle)
    assert node.delays.waiting("") == len(left) - 6
    assert node.delays.by_minute("another", 100) == WaitingByMinute()


@pytest.mark.proves("producers", "A delayed message is delivered to the queue of its key")
def test_a_delayed_message_goes_to_the_queue_of_its_key(node: LocalNode) -> None:
    with node.producer() as producer:
        queue_id = producer.send("trade", b"", sharding_key="order-7").queue_id
        producer.send("trade", b"", sharding_key="order-7", delay=0.01)
    assert len(wait_for(node, queue_id, 2)) == 2


@pytest.mark.proves("producers", "The result of a delayed send says where the message waits")
def test_a_delayed_send_tells_where_the_message_waits(node: LocalNode) -> None:
    with node.producer() as producer:
        waits = producer.send("trade", b"x", delay_level=18)
        assert waits.queue_id == 17
        stored = node.messages.at(SCHEDULE_TOPIC, 17, waits.queue_offset)
        assert stored is not None
        assert stored.unique_key == waits.message_id
        at_once = producer.send("trade", b"x", deliver_at=1)
        assert at_once.recall_handle is None
        assert node.messages.at("trade", at_once.queue_id, at_once.queue_offset) is not None


@pytest.mark.proves("producers", "A recalled message is never delivered")
def test_a_recalled_message_is_never_delivered(node: LocalNode) -> None:
    with node.producer() as producer:
        recalled = producer.send("trade", b"no", queue_id=0, delay=0.5)
        kept = producer.send("trade", b"yes", queue_id=0, delay=0.6)
        assert recalled.recall_handle is not None
        assert kept.recall_handle is not None
        assert producer.recall(recalled.recall_handle)
        assert [message.body for message in wait_for(node, 0, 1)] == [b"yes"]
        assert not producer.recall(recalled.recall_handle)
        assert not producer.recall(kept.recall_handle)
        with pytest.raises(InvalidMessageError, match="is not a recall handle"):
            producer.recall("what")
        other = RecallHandle.parse(kept.recall_handle)._replace(unique_key="another")
        with pytest.raises(InvalidMessageError, match="no delayed message 'another'"):
            producer.recall(str(other))


@pytest.mark.proves("producers", "An invalid delay is refused before anything is sent")
@pytest.mark.parametrize("options", [{"delay_level": 0}, {"delay": 41 * 86_400}])
def test_a_delay_that_cannot_be_is_refused_before_anything_is_sent(
    node: LocalNode, options: DelayOptions
) -> None:
    with node.producer() as producer, pytest.raises(ConfigError):
        producer.send("trade", b"x", **options)
    assert set(node.topics.all()) == {"trade"}


def test_a_node_that_starts_again_delivers_what_waited(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node:
        node.topics.ensure("trade", 1)
        with node.producer() as producer:
            producer.send("trade", b"x", delay=0.03)
            producer.send("trade", b"x", delay=1.5)
        wait_for(node, 0, 1)
    with LocalNode(tmp_path) as node:
        wait_for(node, 0, 2)
        time.sleep(0.1)
        assert node.shard_statistics("trade")[0].max_queue_offset == 2


def test_what_was_on_its_way_is_looked_up_before_it_goes_again(tmp_path: Path) -> None:
    note = deliver_and_forget(tmp_path)
    assert json.loads(note.read_bytes())["underWay"] == {"rmq_sys_wheel_timer/0": [0]}
    with LocalNode(tmp_path) as node:
        assert [message.body for message in wait_for(node, 0, 2)] == [b"1", b"2"]


def test_a_note_that_was_torn_costs_a_repetition_and_no_message(tmp_path: Path) -> None:
    deliver_and_forget(tmp_path).write_text("{torn")
    with LocalNode(tmp_path) as node:

        def both_came() -> list[bytes] | None:
            bodies = [message.body for message in wait_for(node, 0, arrived(node))]
            return bodies if b"2" in bodies else None

        bodies = wait_until(both_came)
    assert set(bodies) == {b"1", b"2"}
    assert len(bodies) <= 3


def deliver_and_forget(data: Path) -> Path:
    """Deliver one of two messages, as if the process had died before it said so; the note of it."""
    with LocalNode(data) as node:
        node.topics.ensure("trade", 1)
        with node.producer() as producer:
            producer.send("trade", b"1", delay=0.01)
            producer.send("trade", b"2", delay=2)
        wait_for(node, 0, 1)
    shutil.rmtree(shard_directory(data, TIMER_TOPIC, 0) / "done")
    return data / "config" / "deliveriesUnderWay.json"


@pytest.mark.proves("delays", "`delayOffset.json` has RocketMQ's form")
def test_levels_leave_their_offsets_in_rocketmqs_form(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node:
        node.topics.ensure("trade", 1)
        with node.producer() as producer:
            for level in (1, 1, 18):
                producer.send("trade", b"x", delay_level=level)
        wait_for(node, 0, 2)
    path = tmp_path / "config" / "delayOffset.json"
    offsets = json.loads(path.read_bytes())["offsetTable"]
    assert offsets == {str(level): 2 if level == 1 else 0 for level in range(1, 19)}
    assert not path.with_name("delayOffset.json.bak").exists()  # nobody would read it


def test_files_of_messages_that_wait_stay_and_others_go(node: LocalNode) -> None:
    body = bytes(300_000)  # three a file
    with node.producer() as producer:
        waits = producer.send("trade", body, delay=3_600)
        for _ in range(12):
            producer.send("trade", body, delay=0.001)
        assert waits.recall_handle is not None
        wait_until(lambda: arrived(node) >= 12 and len(node.services.schedule._schedule) <= 1)
        shard = node.shard(TIMER_TOPIC, 0).writer.store
        tidy_ms = count(node.clock_ms() + 60_000, 60_000)  # later than the interval
        node.services.schedule.step(next(tidy_ms))
        assert shard.reads.min_queue_offset(TIMER_TOPIC, 0) == 0
        assert producer.recall(waits.recall_handle)
        node.services.schedule.step(next(tidy_ms))
        assert shard.reads.min_queue_offset(TIMER_TOPIC, 0) > 6


def arrived(node: LocalNode) -> int:
    return sum(one.max_queue_offset for one in node.shard_statistics("trade"))


def test_a_delayed_message_comes_once_though_its_shard_stalls_for_longer_than_is_waited(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketray.services.system.node_link._TIMEOUT_S", 0.2)
    with node.producer() as producer:
        producer.send("trade", b"warm", queue_id=0)
        node.stall("trade", 0)
        producer.send("trade", b"later", queue_id=0, delay=0.05)
    wait_for(node, 0, 2)  # the schedule asks for it, and that stores it
    wait_until(lambda: not len(node.services.schedule._schedule))
    node.shard("trade", 0).drain()
    assert [message.body for message in node.stored("trade")] == [b"warm", b"later"]


@pytest.mark.proves("delays", "A target that stalls gets each message once")
def test_a_target_that_stalls_gets_each_message_once(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_link, "_TIMEOUT_S", 0.1)
    writer = node.shard("trade", 0).writer
    tries: list[int] = []
    forward = node_link.NodeLinks.forward

    def watched(
        links: node_link.NodeLinks, topic: str, queue_id: int, messages: list[ForwardedMessage]
    ) -> None:
        tries.append(len(messages))
        forward(links, topic, queue_id, messages)

    monkeypatch.setattr(node_link.NodeLinks, "forward", watched)
    with node.producer() as producer:
        producer.send("trade", b"0", queue_id=0)
        with monkeypatch.context() as patch:
            patch.setattr(writer.rings, "drain", lambda: 0)
            producer.send("trade", b"1", queue_id=0, delay=0.01)
            wait_until(lambda: tries)
            producer.send("trade", b"2", queue_id=0, delay=0.01)
            wait_until(lambda: len(tries) >= 2)
        found = wait_for(node, 0, 3)
    assert [message.body for message in found] == [b"0", b"1", b"2"]
    time.sleep(0.2)
    assert node.shard_statistics("trade")[0].max_queue_offset == 3

"""Delayed messages through a whole node in this process, by the machine's clock."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.local_node import LocalNode

from rocketray.actors.clock import system_clock_ms
from rocketray.delay import SCHEDULE_TOPIC, TIMER_TOPIC, after, at_level
from rocketray.message import Message, StoredMessage

PATIENCE_S = 60


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as made:
        made.create_topic("trade", 2)
        made.create_topic(SCHEDULE_TOPIC, 18)
        made.create_topic(TIMER_TOPIC, 1)
        yield made


def wait_for(node: LocalNode, queue_id: int, count: int) -> list[StoredMessage]:
    deadline = time.monotonic() + PATIENCE_S
    while node.shard_statistics("trade")[queue_id].max_queue_offset < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    found = [node.message_at("trade", queue_id, offset) for offset in range(count)]
    return [message for message in found if message is not None]


def test_delayed_messages_arrive_after_their_delay_and_not_before(node: LocalNode) -> None:
    now = system_clock_ms()
    with node.producer() as producer:
        for message, queue_id in (
            at_level(Message("trade", b"0", "pay"), 1, 1),
            after(Message("trade", b"1", "pay"), 700, 1, now),
            after(Message("trade", b"2", "pay"), 50, 1, now),
        ):
            producer.send_message_async(message, queue_id)
    arrived = wait_for(node, 1, 3)
    assert [message.body for message in arrived] == [b"2", b"1", b"0"]
    for found, delay in zip(arrived, (50, 700, 1000), strict=True):
        assert found.store_timestamp_ms >= now + delay
        assert found.born_timestamp_ms < found.store_timestamp_ms
        assert found.properties["REAL_TOPIC"] == "trade"


def test_a_node_that_starts_again_delivers_what_waited(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node:
        node.create_topic("trade", 1)
        node.create_topic(TIMER_TOPIC, 1)
        with node.producer() as producer:
            for delay in (30, 1_500):
                message, _ = after(Message("trade", b"x"), delay, 0, system_clock_ms())
                producer.send_message_async(message, 0).result()
        wait_for(node, 0, 1)
    with LocalNode(tmp_path) as node:
        wait_for(node, 0, 2)
        time.sleep(0.1)
        assert node.shard_statistics("trade")[0].max_queue_offset == 2


def test_levels_leave_their_offsets_in_rocketmqs_form(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node:
        node.create_topic("trade", 1)
        node.create_topic(SCHEDULE_TOPIC, 18)
        with node.producer() as producer:
            for level in (1, 1, 18):
                message, queue_id = at_level(Message("trade", b"x"), level, 0)
                producer.send_message_async(message, queue_id).result()
        wait_for(node, 0, 2)
    offsets = json.loads((tmp_path / "config" / "delayOffset.json").read_bytes())["offsetTable"]
    assert offsets == {str(level): 2 if level == 1 else 0 for level in range(1, 19)}

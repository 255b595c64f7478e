"""Filter bitmaps in a whole node: from a topic's mode to what groups get, and what is said of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import wait_until
from support.nodes.local_node import LocalNode

from rocketray.broker.filtering.lag import LagCounter
from rocketray.filters.consumer_filter_data import read_filters
from rocketray.filters.subscription import Subscription
from rocketray.message import Message
from rocketray.messaging.api.node_client import lag_of
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.runtime.files.paths import filters_file, shard_directory
from rocketray.services.explaining.cause import Cause
from rocketray.services.explaining.explanation import Explanation
from rocketray.services.explaining.inquiry import inquire
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns

COUNT = 400
SMALL, LARGE = Subscription.sql("a < 10"), Subscription.sql("a >= 390")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("T", 1)
        yield node


def send(node: LocalNode) -> None:
    with node.producer() as producer:
        for first in range(0, COUNT, 40):
            numbers = range(first, first + 40)
            messages = [
                Message("T", str(n).encode(), keys=(f"k{n}",), properties={"a": str(n)})
                for n in numbers
            ]
            producer.send_many("T", messages)


def take(member: GroupConsumer, end: int) -> list[int]:
    """The bodies that a member gets of the messages below offset *end*."""
    found: list[int] = []
    at = 0

    def is_there() -> bool:
        nonlocal at
        for batch in member.poll(0.2):
            found.extend(map(int, batch.bodies()))
            at = batch.next_queue_offset
            member.commit("T", 0, at)
        return at >= end

    wait_until(is_there, lambda: f"at {at} of {end}")
    assert at == end
    return found


def ask(node: LocalNode, key: str, group: str) -> Explanation:
    return inquire(node, key, group)


def bloom(found: Explanation) -> list[str]:
    return [step.result for step in found.steps if step.stage == "bloom"]


def test_groups_get_the_same_with_bitmaps_and_read_fewer_records(node: LocalNode) -> None:
    node.topics.set_bitmaps("T", "on")
    with (
        node.consumer("small", "T", SMALL) as small,
        node.consumer("large", "T", LARGE) as large,
        node.consumer("all", "T", Subscription.tags("*")) as everything,
    ):
        for member in (small, large, everything):
            member.poll(0)
        node.topic_service.order_bitmaps()
        assert node.shard_statistics("T")[0].keeps_bitmaps
        time.sleep(0.002)  # what is stored in the millisecond of a birth passes
        send(node)
        assert take(small, COUNT) == list(range(10))
        assert take(large, COUNT) == list(range(390, COUNT))
        assert take(everything, COUNT) == list(range(COUNT))
        assert small.counters().bloom_rejected > 300
        assert small.counters().scanned == COUNT
        assert bloom(ask(node, "k5", "small")) == ["may match"]
        assert bloom(ask(node, "k200", "small")) == ["rejected"]
        assert ask(node, "k200", "small").cause is Cause.SQL_FALSE
        filters = read_filters(filters_file(node.data))["T"]
        of_shard = read_filters(filters_file(shard_directory(node.data, "T", 0)))["T"]
        assert filters.keys() == of_shard.keys() == {"small", "large"}
        for group, data in filters.items():
            assert data.born_time_ms >= of_shard[group].born_time_ms


def test_messages_from_before_a_group_are_read(node: LocalNode) -> None:
    node.topics.set_bitmaps("T", "on")
    with node.consumer("early", "T", Subscription.sql("b = 1")) as early:
        early.poll(0)
        node.topic_service.order_bitmaps()
        send(node)
    with node.consumer("small", "T", SMALL) as small:
        assert take(small, COUNT) == list(range(10))
        node.topic_service.order_bitmaps()
        assert small.counters().bloom_rejected == 0
        assert bloom(ask(node, "k200", "small")) == ["too early"]


def test_a_topic_keeps_none_before_it_is_told_and_none_after(node: LocalNode) -> None:
    with node.consumer("small", "T", SMALL) as small:
        small.poll(0)
        node.topic_service.order_bitmaps()
        assert not node.shard_statistics("T")[0].keeps_bitmaps
        assert bloom(ask(node, "k5", "small")) == []
        for mode, kept in (("on", True), ("off", False), ("auto", False)):
            node.topics.set_bitmaps("T", mode)
            assert node.shard_statistics("T")[0].keeps_bitmaps == kept
        send(node)
        assert take(small, COUNT) == list(range(10))
        assert bloom(ask(node, "k5", "small")) == ["no bitmap"]


def test_a_damaged_bitmap_is_named_as_the_cause(node: LocalNode) -> None:
    node.topics.set_bitmaps("T", "on")
    with node.consumer("small", "T", SMALL) as small:
        small.poll(0)
        node.topic_service.order_bitmaps()
        time.sleep(0.002)
        send(node)
        take(small, COUNT)
        path = next((shard_directory(node.data, "T", 0) / "consumequeue_ext" / "T" / "0").iterdir())
        with path.open("r+b") as file:
            file.seek(5 * 34 + 20)
            file.write(bytes(14))
        assert ask(node, "k5", "small").cause is Cause.BLOOM_WRONG
        assert bloom(ask(node, "k5", "small")) == ["rejected", "wrong"]
        assert bloom(ask(node, "k6", "small")) == ["may match"]


def test_the_mode_is_kept_with_the_topic(node: LocalNode) -> None:
    node.topics.set_bitmaps("T", "on")
    kept = json.loads((node.data / "config" / "topics.json").read_text())
    assert kept["topicConfigTable"]["T"]["attributes"]["filter.bitmaps"] == "on"


def test_the_lag_is_the_same_with_bitmaps_and_reads_fewer_records(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.set_bitmaps("T", "on")
    judged: dict[str, int] = {}
    with (
        node.consumer("small", "T", SMALL) as small,
        node.consumer("large", "T", LARGE) as large,
    ):
        for member in (small, large):
            member.poll(0)
        node.topic_service.order_bitmaps()
        time.sleep(0.002)
        send(node)
        groups = node.groups.all()
    judge = QueueReader.judge

    def counted(reader: QueueReader, entries: EntryColumns, conditions: Any) -> Any:
        judged[name] = judged.get(name, 0) + len(entries)
        return judge(reader, entries, conditions)

    monkeypatch.setattr(QueueReader, "judge", counted)
    for group in groups:
        name = group.group
        assert lag_of(node, group)[0].count == 10
        name = f"{group.group}, without its bits"
        assert LagCounter(node.data).of(replace(group, group="another"))[0].count == 10
    assert judged["small, without its bits"] == judged["large, without its bits"] == COUNT
    assert max(judged["small"], judged["large"]) < 100

"""The queues of delayed messages, transactions and retries: each disk has its own."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rocketray.base.names import QUEUE_COUNT_MAX
from rocketray.base.system_topics import GIVEN_UP_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.placement import DiskSpace, Placement, spread_over
from rocketray.broker.topics.process_names import SHARED_PROCESS
from rocketray.broker.topics.topic_registry import TopicRegistry
from rocketray.runtime.calls.endpoint import on_disk
from rocketray.runtime.files.file_documents import FileDocuments

pytestmark = pytest.mark.proves(
    "durability",
    "Delayed messages, transactions and retries are on the disk of their queue, also "
    "while the machine of the first disk is down, and on another disk while that of the "
    "queue is",
)

FAR, FURTHER = (f"00000000-0000-0000-0000-00000000000{n}" for n in (2, 3))
LEVELS = 18


def on(*disks: str) -> Placement:
    """The placement of a cluster with these disks."""
    spaces = [DiskSpace(disk, "", 1) for disk in disks]
    return Placement(
        spread=lambda present, queues: spread_over(spaces, present, queues), disks=lambda: disks
    )


def test_each_disk_has_the_queues_of_a_service_and_one_that_joins_gets_them_behind() -> None:
    catalog = TopicCatalog()
    for name, size in ((SCHEDULE_TOPIC, LEVELS), (TIMER_TOPIC, 1), (HALF_TOPIC, 1)):
        catalog = catalog.with_topic(name, size, on("", FAR))
        before = catalog.get(name)
        assert before.by_disk() == {"": [*range(size)], FAR: [*range(size, 2 * size)]}
        assert [*before.by_process()] == [SHARED_PROCESS, on_disk(SHARED_PROCESS, FAR)]
        assert catalog.with_topic(name, size, on("", FAR)) == catalog
        after = catalog.with_topic(name, 2 * size, on("", FAR, FURTHER)).get(name)
        assert after.by_disk() == {**before.by_disk(), FURTHER: [*range(2 * size, 3 * size)]}
        assert after.store_hosts[: before.queues] == before.store_hosts
        assert after.queue_on(FURTHER, size - 1) == 3 * size - 1
        assert after.queue_on(FURTHER, size) is after.queue_on("nowhere", 0) is None


def test_a_disk_that_is_away_when_a_topic_is_made_gets_its_queues_later() -> None:
    catalog = TopicCatalog().with_topic(GIVEN_UP_TOPIC, 1, on(FAR))
    assert catalog.get(GIVEN_UP_TOPIC).disks == (FAR,)
    later = catalog.with_topic(GIVEN_UP_TOPIC, 1, on("", FAR))
    assert later.get(GIVEN_UP_TOPIC).disks == (FAR, "")


def test_the_levels_that_an_earlier_version_made_are_completed_before_others_follow() -> None:
    five = replace(TopicCatalog().with_topic("Five", 5).get("Five"), name=SCHEDULE_TOPIC)
    catalog = TopicCatalog({SCHEDULE_TOPIC: five}, next_shard_number=6)
    grown = catalog.with_topic(SCHEDULE_TOPIC, 5, on("", FAR)).get(SCHEDULE_TOPIC)
    assert grown.disks == ("",) * LEVELS + (FAR,) * LEVELS
    assert grown.store_hosts[:5] == five.store_hosts


def test_disks_for_whose_levels_there_is_no_room_use_those_of_others() -> None:
    disks = [f"{n:04}" for n in range(QUEUE_COUNT_MAX)]
    topic = TopicCatalog().with_topic(SCHEDULE_TOPIC, 1, on(*disks)).get(SCHEDULE_TOPIC)
    assert topic.queues == QUEUE_COUNT_MAX // LEVELS * LEVELS
    assert [*topic.by_disk()] == disks[: QUEUE_COUNT_MAX // LEVELS]


def test_retries_have_a_queue_on_each_disk_and_as_many_as_were_asked_for() -> None:
    catalog = TopicCatalog().with_topic("%RETRY%g", 1, on("", FAR))
    assert catalog.get("%RETRY%g").disks == ("", FAR)
    catalog = catalog.with_topic("%RETRY%g", 4, on("", FAR, FURTHER))
    assert catalog.get("%RETRY%g").disks[:3] == ("", FAR, FURTHER)
    assert catalog.get("%RETRY%g").queues == 4
    assert catalog.with_topic("%RETRY%g", 1, on("", FAR, FURTHER)) == catalog, "none is removed"
    assert TopicCatalog().with_topic("%DLQ%g", 1, on("", FAR)).get("%DLQ%g").disks == ()


def test_the_registry_saves_the_queues_of_disks_that_joined_once(tmp_path: Path) -> None:
    disks = [""]
    placement = Placement(disks=lambda: disks)
    documents = FileDocuments(tmp_path)
    registry = TopicRegistry(tmp_path, documents, placement, threading.Lock())
    for name in ("Trade", HALF_TOPIC, "%RETRY%g"):
        registry.create(name, 1)
    assert registry.extend() == []
    disks.append(FAR)
    assert registry.extend() == [HALF_TOPIC, "%RETRY%g"]
    assert registry.extend() == []
    again = TopicRegistry(tmp_path, documents, placement, threading.Lock()).catalog
    assert {name: topic.disks for name, topic in again.topics.items()} == {
        "Trade": (),
        HALF_TOPIC: ("", FAR),
        "%RETRY%g": ("", FAR),
    }

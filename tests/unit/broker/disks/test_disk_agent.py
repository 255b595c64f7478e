"""The agent of a disk: its report, the catalog that it keeps, and the files that it removes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from rocketray.broker.disks.disk_agent import DiskAgent
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.placement import Placement
from rocketray.errors import StoreError, StreamError
from rocketray.runtime.files.paths import shard_directory

DISK = "00000000-0000-0000-0000-000000000002"


def catalog() -> TopicCatalog:
    """A catalog with a topic on both disks, one there, and one on the coordinator's."""
    both = Placement(
        1, spread=lambda present, queues: (*present, *("", DISK)[: queues - len(present)])
    )
    there = Placement(1, spread=lambda _, queues: (DISK,) * queues)
    return (
        TopicCatalog()
        .with_topic("Both", 2, both)
        .with_topic("There", 1, there)
        .with_topic("Here", 1)
        .with_topic("%DLQ%g", 1, there)
    )


def test_the_catalog_of_a_disk_has_its_topics_and_a_process_there_opens_its_queues_alone(
    tmp_path: Path,
) -> None:
    every = catalog()
    assert every.get("%DLQ%g").disks == (), "internal topics stay with the coordinator"
    DiskAgent(tmp_path).keep_catalog(every.of_disk(DISK))
    assert {*TopicCatalog.load(tmp_path).topics} == {"Both", "There"}
    name = every.get("Both").process_of(1)
    assert name == f"Both:1@{DISK}"
    process = ShardProcess(tmp_path, name, {}, clock_ms=lambda: 0)
    try:
        assert process.find("Both", 1) is not None
        with pytest.raises(StreamError, match="another process has it"):
            process.shard("Both", 0)
        assert not shard_directory(tmp_path, "Both", 0).exists()
    finally:
        process.close()


def test_calls_that_overlap_keep_a_whole_catalog(tmp_path: Path) -> None:
    agent, part = DiskAgent(tmp_path), catalog().of_disk(DISK)
    with ThreadPoolExecutor(8) as threads:
        for kept in [threads.submit(agent.keep_catalog, part) for _ in range(200)]:
            kept.result()
    assert TopicCatalog.load(tmp_path).topics.keys() == part.topics.keys()


def test_a_catalog_that_cannot_be_written_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"")  # where a directory has to be
    with pytest.raises(StoreError, match=f"the catalog of disk {tmp_path} cannot be written: "):
        DiskAgent(tmp_path).keep_catalog(catalog().of_disk(DISK))


def test_what_the_catalog_says_of_disks_is_kept_on_disk(tmp_path: Path) -> None:
    every = catalog()
    every.save(tmp_path)
    kept = TopicCatalog.load(tmp_path)
    assert {name: topic.disks for name, topic in kept.topics.items()} == {
        "Both": ("", DISK),
        "There": (DISK,),
        "Here": (),
        "%DLQ%g": (),
    }
    assert kept.get("Both").by_disk() == {"": [0], DISK: [1]}


def test_the_files_of_a_deleted_topic_go_and_another_topic_s_stay(tmp_path: Path) -> None:
    every = catalog()
    agent = DiskAgent(tmp_path)
    agent.keep_catalog(every.of_disk(DISK))
    for name in ("Both", "There"):
        topic = every.get(name)
        ShardProcess(tmp_path, topic.process_of(topic.queues - 1), {}, clock_ms=lambda: 0).close()
    agent.remove_files(every.get("Both"))
    assert not shard_directory(tmp_path, "Both", 1).parent.exists()
    assert shard_directory(tmp_path, "There", 0).is_dir()
    foreign = replace(every.get("There"), store_hosts=(("10.9.9.9", 10911),))
    with pytest.raises(StreamError, match="is not of the deleted topic"):
        agent.remove_files(foreign)


def test_a_report_has_the_room_of_the_disk_and_names_the_incarnation(tmp_path: Path) -> None:
    agent = DiskAgent(tmp_path, "eu-1")
    first = agent.report()
    assert 0 < first.free_bytes <= first.total_bytes
    assert first.zone == "eu-1"
    assert (
        agent.report().incarnation == first.incarnation != DiskAgent(tmp_path).report().incarnation
    )

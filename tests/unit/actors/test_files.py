"""Small files and whole topics: what is half written or half removed goes, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.local_node import LocalNode

from rocketray.actors.catalog import TopicCatalog
from rocketray.actors.files import remove_half_written, remove_topic
from rocketray.actors.filter_rules import FilterRules
from rocketray.actors.hosting import Hosting
from rocketray.actors.layout import config_directory, producer_rings_directory, shard_directory
from rocketray.actors.processes import owned_name
from rocketray.actors.ring import ProducerRing
from rocketray.testing import node as testing_node


@pytest.fixture(scope="module")
def dead() -> int:
    """A process id that nobody has any more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_only_what_a_dead_process_was_writing_is_removed(tmp_path: Path, dead: int) -> None:
    own = owned_name("").rstrip("-")
    kept = {"topics.json", f"topics.json.{own}.tmp", "note.tmp", f"{dead}.tmp", f"a.{dead}.tmp.bak"}
    gone = {f"topics.json.{dead}.tmp", "delayOffset.json.99999999999999999.tmp"}
    for name in kept | gone:
        (tmp_path / name).touch()
    remove_half_written(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept
    remove_half_written(tmp_path / "missing")


@pytest.fixture
def config(data: Path) -> Path:
    """The directory of a node's state, with a catalogue in it."""
    TopicCatalog().save(data)
    return config_directory(data)


def test_a_host_removes_what_the_one_before_it_left(data: Path, config: Path, dead: int) -> None:
    left = config / f"delayOffset.json.{dead}.tmp"
    left.touch()
    Hosting(data, {}, lambda: pytest.fail("nothing is sent"), clock_ms=lambda: 0).close()
    assert not left.exists()


def test_a_coordinator_removes_what_the_one_before_it_left(
    data: Path, config: Path, dead: int
) -> None:
    left = config / f"topics.json.{dead}.tmp"
    left.touch()
    testing_node.LocalNode(data, {}, lambda: 0, FilterRules()).close()
    assert not left.exists()


def test_a_deleted_topic_leaves_neither_files_nor_rings(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node:
        node.create_topic("T", 2)
        node.create_topic("Other", 1)
        with node.producer() as producer:
            for queue_id in range(2):
                producer.send("T", b"x", queue_id=queue_id)
            producer.send("Other", b"x")
            node.delete_topic("T")
            assert not shard_directory(tmp_path, "T", 0).parent.exists()
            assert not producer_rings_directory(tmp_path, "T", 0).parent.exists()
            assert len([*producer_rings_directory(tmp_path, "Other", 0).iterdir()]) == 1
            node.create_topic("T", 2)
            assert producer.send("Other", b"x").queue_offset == 1
        assert not node.messages("T")


def test_a_topic_is_removed_though_somebody_still_writes_there(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = shard_directory(data, "T", 0)
    directory.mkdir(parents=True)
    ProducerRing(producer_rings_directory(data, "T", 0) / owned_name("r"))
    waits: list[float] = []

    remove = shutil.rmtree

    def remove_all_but_what_comes(path: Path, *, ignore_errors: bool = False) -> None:
        remove(path, ignore_errors=ignore_errors)
        if path == directory.parent and len(waits) < 2:
            directory.mkdir(parents=True)

    monkeypatch.setattr("rocketray.actors.files.time.sleep", waits.append)
    monkeypatch.setattr("rocketray.actors.files.shutil.rmtree", remove_all_but_what_comes)
    remove_topic(data, "T")
    assert len(waits) == 2
    assert not directory.parent.exists()
    assert not producer_rings_directory(data, "T", 0).parent.exists()
    remove_topic(data, "T")  # it was never opened

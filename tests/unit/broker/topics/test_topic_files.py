"""A deleted topic does not come back, whenever the process that deletes it is killed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.nodes.local_node import LocalNode

from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.topic_files import remove_files
from rocketray.errors import ConfigError, StoreError
from rocketray.runtime.files.paths import (
    config_directory,
    process_doorbell_path,
    producer_rings_directory,
    shard_directory,
)
from rocketray.runtime.ipc.ring import ProducerRing
from rocketray.runtime.processes import owned_name

CALLS = ("replace", "fsync", "unlink", "rmdir")


class Killed(BaseException):
    """The process ends here."""


def send(node: LocalNode, bodies: list[bytes]) -> list[str]:
    with node.producer() as producer:
        return [producer.send("Trade", body, queue_id=0).offset_message_id for body in bodies]


def kill_at(count: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let call number *count* to the file system not return, counted from 0; how many there were."""
    done = 0

    def patched(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            done += 1
            if done > count:
                raise Killed
            return call(*arguments, **options)

        return run

    for name in CALLS:
        monkeypatch.setattr(os, name, patched(getattr(os, name)))
    return lambda: done


def delete(data: Path, kill_at_call: int) -> bool:
    """Delete the topic on a node with three messages, until the machine stops; whether it did.

    The copies of settings, which are not synced, are empty then.
    """
    node = LocalNode(data)
    node.topics.ensure("Trade", 2)
    send(node, [b"old 0", b"old 1", b"old 2"])
    with pytest.MonkeyPatch.context() as monkeypatch:
        kill_at(kill_at_call, monkeypatch)
        try:
            node.topics.delete("Trade")
        except Killed:
            is_killed = True
        else:
            is_killed = False
    node.die()
    for copy in shard_directory(data, "Trade", 0).parent.glob("*/store.json.bak"):
        copy.write_bytes(b"")
    return is_killed


@pytest.mark.proves("durability", "A topic is deleted as a whole or not at all")
def test_a_topic_is_there_or_gone_whenever_the_process_is_killed(tmp_path: Path) -> None:
    is_killed, call, kept = True, -1, 0
    while is_killed:
        call += 1
        data = tmp_path / str(call)
        is_killed = delete(data, call)
        with LocalNode(data) as node:
            if "Trade" in node.topics.all():
                assert [one.body for one in node.stored("Trade")] == [
                    b"old 0",
                    b"old 1",
                    b"old 2",
                ]
                kept += 1
                node.topics.delete("Trade")
            assert not shard_directory(data, "Trade", 0).parent.exists()
            assert not process_doorbell_path(data, "Trade:0").exists()
            node.topics.ensure("Trade", 2)
            [message_id] = send(node, [b"new"])
            assert [one.body for one in node.stored("Trade")] == [b"new"]
            found = node.messages.view(message_id)
            assert found is not None
            assert found.body == b"new"
        shutil.rmtree(data)
    assert 0 < kept < call, "it was killed before and after it forgot the topic"


@pytest.mark.proves("durability", "A topic is deleted as a whole or not at all")
def test_no_power_failure_brings_the_files_back_once_the_topic_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    sync, rename = os.fsync, os.replace

    def watched_sync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path == tmp_path / "data" / "shards" and not (path / "Trade").exists():
            happened.append("removal is on disk")
        sync(descriptor)

    def watched_rename(source: Any, target: Any, **options: Any) -> None:
        if Path(target).name == "topics.json":
            happened.append("topics.json")
        rename(source, target, **options)

    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 2)
        monkeypatch.setattr(os, "fsync", watched_sync)
        monkeypatch.setattr(os, "replace", watched_rename)
        node.topics.delete("Trade")
        monkeypatch.undo()
    assert happened == ["topics.json", "removal is on disk", "topics.json"]


def test_the_state_of_before_does_not_have_a_topic_whose_files_go(tmp_path: Path) -> None:
    """Also where topics.json is lost and its .bak is restored."""
    state = ClusterState(tmp_path, FilterRules(), lambda: 0)
    state.topics.create("Trade", 1)
    state.delete_topic("Trade")
    path = config_directory(tmp_path) / "topics.json"
    path.with_name("topics.json.bak").replace(path)
    catalog = TopicCatalog.load(tmp_path)
    assert ([*catalog.topics], [*catalog.deleted]) == ([], ["Trade"])


def test_no_topic_begins_with_files_of_one_that_nobody_knows(tmp_path: Path) -> None:
    """As versions before tombstones left them."""
    with LocalNode(tmp_path) as node:
        node.topics.ensure("Trade", 2)
        send(node, [b"old"])
    (config_directory(tmp_path) / "topics.json").unlink()
    (config_directory(tmp_path) / "topics.json.bak").unlink(missing_ok=True)
    with LocalNode(tmp_path) as node:
        with pytest.raises(StoreError, match="has files of a topic that this node does not know"):
            node.topics.ensure("Trade", 2)
        assert "Trade" not in node.topics.all()
        shard_directory(tmp_path, "Trade", 0).parent.rename(tmp_path / "away")
        node.topics.ensure("Trade", 2)
        assert node.stored("Trade") == []


def test_a_queue_of_another_topic_is_not_opened(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node:
        node.topics.ensure("Trade", 1)
        send(node, [b"old"])
    TopicCatalog().with_topic("Other", 1).with_topic("Trade", 1).save(tmp_path)
    with pytest.raises(StoreError, match=r"10\.0\.0\.1:10911, and topics.json gives queue Trade/0"):
        LocalNode(tmp_path)


def test_files_of_another_topic_are_not_removed_and_keep_the_name(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node:
        node.topics.ensure("Trade", 1)
        send(node, [b"kept"])
    catalog = TopicCatalog().with_topic("Other", 1).with_topic("Trade", 1).without_topic("Trade")
    catalog.save(tmp_path)
    with LocalNode(tmp_path) as node:
        (line,) = node.problems()
    assert "is not of the deleted topic 'Trade'" in line
    assert shard_directory(tmp_path, "Trade", 0).exists()
    with pytest.raises(ConfigError, match="was deleted, and its files are not removed yet"):
        catalog.with_topic("Trade", 1)


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_is_removed_though_somebody_still_writes_there(
    data: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """Before the directory is removed, so that this fails; or just afterwards."""
    directory = shard_directory(data, "T", 0)
    directory.mkdir(parents=True)
    ProducerRing(producer_rings_directory(data, "T", 0) / owned_name("r"))
    waits: list[float] = []

    remove = shutil.rmtree

    def remove_all_but_what_comes(path: Path, *, ignore_errors: bool = False) -> None:
        remove(path, ignore_errors=ignore_errors)
        if path == directory.parent and len(waits) < 2:
            directory.mkdir(parents=True)
            if fails:
                raise OSError(errno.ENOTEMPTY, "Directory not empty", path)

    monkeypatch.setattr("rocketray.broker.topics.topic_files.time.sleep", waits.append)
    monkeypatch.setattr(
        "rocketray.broker.topics.topic_files.shutil.rmtree", remove_all_but_what_comes
    )
    topic = TopicCatalog().with_topic("T", 1).get("T")
    remove_files(data, topic)
    assert len(waits) >= 2  # threads of other tests may sleep, too
    assert not directory.parent.exists()
    assert not producer_rings_directory(data, "T", 0).parent.exists()
    remove_files(data, topic)  # it was never opened

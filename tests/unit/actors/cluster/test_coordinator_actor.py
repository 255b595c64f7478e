"""The coordinator's shell, without Ray: topics that come and go, from several sides at once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rocketray.actors.cluster import coordinator_actor as module
from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.actors.cluster.coordinator_actor import CoordinatorActor
from rocketray.actors.files.home import Home, settle_identity
from rocketray.actors.files.paths import shard_directory
from rocketray.actors.filtering.filter_rules import FilterRules
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.actors.topics.topic_start import Started
from rocketray.config import StoreConfig
from rocketray.errors import ShardUnavailableError, StoreError, TopicNotFoundError
from rocketray.store.files.store_settings import settle_config


def test_a_coordinator_finishes_what_one_before_it_deleted(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = ClusterState(data, FilterRules(), lambda: 0)
    for name in ("Trade", "Other", "Kept"):
        state.create_topic(name, 1)
        shard_directory(data, name, 0).mkdir(parents=True)
    state.delete_topic("Trade")
    state.delete_topic("Other")
    steps: list[str] = []

    def stop(topic: TopicConfig) -> None:
        assert shard_directory(data, topic.name, 0).exists(), "its shard may write until it stops"
        steps.append(f"stop {topic.name}")
        if topic.name == "Other" and steps.count("stop Other") == 1:
            raise ShardUnavailableError("Other/0", 1, "Ray is away")

    def start(
        _home: Home, topics: list[TopicConfig], _sizes: Mapping[str, Any], *_which: Any
    ) -> Started:
        steps.extend(f"start {topic.name}" for topic in topics)
        return Started({})

    monkeypatch.setattr(module, "start_shards", start)
    monkeypatch.setattr(module, "remove_shards", stop)
    home = Home(str(data), settle_identity(data), "here")
    coordinator = CoordinatorActor(home, {}, FilterRules())
    coordinator._stop.set()
    assert sorted(steps[:2]) == ["stop Other", "stop Trade"]
    assert steps[2:] == ["start Kept"]
    assert not any("deleted topic" in line for line in coordinator.problems())
    assert [path.name for path in (data / "shards").iterdir()] == ["Kept"]
    coordinator.create_topic("Trade", 1)
    coordinator.create_topic("Other", 1)
    assert {*coordinator.topics()} == {"Trade", "Other", "Kept"}


def test_a_topic_that_is_made_again_while_it_is_deleted_keeps_its_files(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[threading.Thread] = []

    def start(
        _home: Home, topics: list[TopicConfig], _sizes: Mapping[str, Any], *_which: Any
    ) -> Started:
        for topic in topics:
            shard_directory(data, topic.name, 0).mkdir(parents=True)
        return Started({})

    def make(name: str) -> None:
        topic = coordinator.create_topic(name, 1)
        coordinator.start_queues(name, topic.topic_id, range(1), 1)

    def stop(_topic: TopicConfig) -> None:
        for name in ("T", "Other"):
            made.append(threading.Thread(target=make, args=(name,)))
            made[-1].start()
            made[-1].join(0.2 if name == "T" else 30)
        assert [thread.is_alive() for thread in made] == [True, False]

    monkeypatch.setattr(module, "start_shards", start)
    monkeypatch.setattr(module, "remove_shards", stop)
    coordinator = CoordinatorActor(
        Home(str(data), settle_identity(data), "here"), {}, FilterRules()
    )
    coordinator._stop.set()
    make("T")
    coordinator.delete_topic("T")
    for thread in made:
        thread.join(30)
    assert {*coordinator.topics()} == {"T", "Other"}
    assert shard_directory(data, "T", 0).exists()


def test_a_topic_is_noted_whole_before_its_queues_are_started_as_they_are_asked_for(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, range | None, float | None]] = []
    report = Started({})

    def start(
        _home: Home,
        topics: list[TopicConfig],
        _sizes: Mapping[str, Any],
        queues: range | None,
        wait_s: float | None,
    ) -> Started:
        calls.extend((topic.name, queues, wait_s) for topic in topics)
        return report

    monkeypatch.setattr(module, "start_shards", start)
    monkeypatch.setattr(module, "remove_shards", lambda _topic: None)
    home = Home(str(data), settle_identity(data), "here")
    coordinator = CoordinatorActor(home, {}, FilterRules())
    coordinator._stop.set()
    topic = coordinator.create_topic("Trade", 64)
    assert calls == []
    assert ClusterState(data, FilterRules(), lambda: 0).topic("Trade") == topic
    report = Started({"Trade/9": StoreError("its file is damaged")}, waiting=("Trade/10",))
    assert coordinator.start_queues("Trade", topic.topic_id, range(8, 16), 20.0) == report
    assert calls == [("Trade", range(8, 16), 20.0)]
    assert "its file is damaged" in coordinator.problems()
    report = Started({}, waiting=("Trade/9",))  # nobody knows better yet
    coordinator.start_queues("Trade", topic.topic_id, range(8, 16), 20.0)
    assert "its file is damaged" in coordinator.problems()
    report = Started({})
    coordinator.start_queues("Trade", topic.topic_id, range(8, 16), 20.0)
    assert "its file is damaged" not in coordinator.problems()


def test_queues_of_a_topic_that_was_deleted_meanwhile_are_not_started(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_home: Home, topics: list[TopicConfig], *_: Any) -> Started:
        assert not topics
        return Started({})

    monkeypatch.setattr(module, "start_shards", start)
    monkeypatch.setattr(module, "remove_shards", lambda _topic: None)
    home = Home(str(data), settle_identity(data), "here")
    coordinator = CoordinatorActor(home, {}, FilterRules())
    coordinator._stop.set()
    first = coordinator.create_topic("Trade", 64)
    coordinator.delete_topic("Trade")
    with pytest.raises(TopicNotFoundError):
        coordinator.start_queues("Trade", first.topic_id, range(8), 1)
    coordinator.create_topic("Trade", 4)
    with pytest.raises(TopicNotFoundError):
        coordinator.start_queues("Trade", first.topic_id, range(8), 1)


def test_files_of_a_deleted_topic_that_stay_are_told_at_once(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "start_shards", lambda *_: Started({}))
    monkeypatch.setattr(module, "remove_shards", lambda _topic: None)
    home = Home(str(data), settle_identity(data), "here")
    coordinator = CoordinatorActor(home, {}, FilterRules())
    coordinator._stop.set()
    coordinator.create_topic("Trade", 1)
    strange = shard_directory(data, "Trade", 7)
    strange.mkdir(parents=True)
    settle_config(strange, StoreConfig(store_host=("10.9.9.9", 1)), read_only=False)
    with pytest.raises(StoreError, match="not of the deleted topic"):
        coordinator.delete_topic("Trade")
    [line] = [line for line in coordinator.problems() if "Trade" in line]
    assert line.startswith("files of the deleted topic Trade are not removed yet: ")
    shutil.rmtree(strange)
    coordinator.create_topic("Trade", 1)
    assert not any("Trade" in line for line in coordinator.problems())


def test_shards_that_their_processes_closed_are_problems_until_they_are_open(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: dict[str, str | None] = {"T/0": None, "T/1": "queue T/1 stays closed: its disk failed"}
    monkeypatch.setattr(module, "start_shards", lambda *_: Started({}))
    monkeypatch.setattr(module, "closed_shards", lambda *_: closed)
    coordinator = CoordinatorActor(
        Home(str(data), settle_identity(data), "here"), {}, FilterRules()
    )
    coordinator._stop.set()
    coordinator.note_closed()
    assert closed["T/1"] in coordinator.problems()
    closed["T/1"] = None
    coordinator.note_closed()
    assert not any("T/1" in line for line in coordinator.problems())

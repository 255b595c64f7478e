"""The coordinator's shell, without Ray: what happens to one topic from several sides at once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rocketray.actors import coordinator as module
from rocketray.actors.catalog import TopicConfig
from rocketray.actors.coordinator import CoordinatorActor
from rocketray.actors.filter_rules import FilterRules
from rocketray.actors.layout import shard_directory


def test_a_topic_that_is_made_again_while_it_is_deleted_keeps_its_files(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[threading.Thread] = []

    def start(data: Path, topics: list[TopicConfig], _sizes: Mapping[str, Any]) -> None:
        for topic in topics:
            shard_directory(data, topic.name, 0).mkdir(parents=True)

    def stop(_topic: TopicConfig) -> None:
        for name in ("T", "Other"):
            made.append(threading.Thread(target=coordinator.create_topic, args=(name, 1)))
            made[-1].start()
            made[-1].join(0.2 if name == "T" else 30)
        assert [thread.is_alive() for thread in made] == [True, False]

    monkeypatch.setattr(module, "start_shards", start)
    monkeypatch.setattr(module, "remove_shards", stop)
    coordinator = CoordinatorActor(str(data), {}, FilterRules())
    coordinator._stop.set()
    coordinator.create_topic("T", 1)
    coordinator.delete_topic("T")
    for thread in made:
        thread.join(30)
    assert {*coordinator.topics()} == {"T", "Other"}
    assert shard_directory(data, "T", 0).exists()

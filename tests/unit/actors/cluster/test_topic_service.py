"""Topics that come and go, from several sides at once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience

from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.actors.cluster.topic_service import TopicService
from rocketray.base.config import StoreConfig
from rocketray.broker.filtering.bitmap_orders import Answer, BitmapOrder
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.topic_start import Started
from rocketray.errors import ShardUnavailableError, StoreError, TopicNotFoundError
from rocketray.runtime.files.paths import shard_directory
from rocketray.store.files.store_settings import settle_config

Start = Callable[[list[TopicConfig], range | None, float | None], Started]


class Shards:
    """Shards that start and stop as the test says."""

    def __init__(
        self,
        start: Start = lambda *_: Started({}),
        remove: Callable[[TopicConfig], None] = lambda _: None,
        problems: Mapping[str, str | None] | None = None,
    ) -> None:
        self.start = start
        self.remove = remove
        self._problems = {} if problems is None else problems

    def problems(
        self, topics: Iterable[TopicConfig], noted: Collection[str]
    ) -> dict[str, str | None]:
        assert not {place.partition("/")[0] for place in self._problems} - {t.name for t in topics}
        return {name: why for name, why in self._problems.items() if why or name in noted}

    def remove_files(self, topic: TopicConfig) -> None:
        """There is one disk."""

    def set_writable(self, topic: TopicConfig) -> None:
        raise NotImplementedError

    def keep_bitmaps(self, orders: Sequence[BitmapOrder]) -> list[list[Answer] | None]:
        raise NotImplementedError


def service(data: Path, shards: Shards) -> tuple[TopicService, ClusterState]:
    """A coordinator that starts."""
    state = ClusterState(data, FilterRules(), lambda: 0)
    topics = TopicService(state, shards)
    topics.start_all()
    return topics, state


def test_a_coordinator_finishes_what_one_before_it_deleted(
    data: Path,
) -> None:
    state = ClusterState(data, FilterRules(), lambda: 0)
    for name in ("Trade", "Other", "Kept"):
        state.topics.create(name, 1)
        shard_directory(data, name, 0).mkdir(parents=True)
    state.delete_topic("Trade")
    state.delete_topic("Other")
    steps: list[str] = []

    def stop(topic: TopicConfig) -> None:
        assert shard_directory(data, topic.name, 0).exists(), "its shard may write until it stops"
        steps.append(f"stop {topic.name}")
        if topic.name == "Other" and steps.count("stop Other") == 1:
            raise ShardUnavailableError("shard Other/0", "Ray is away", 1)

    def start(topics: list[TopicConfig], *_which: object) -> Started:
        steps.extend(f"start {topic.name}" for topic in topics)
        return Started({})

    topics, state = service(data, Shards(start, stop))
    assert sorted(steps[:2]) == ["stop Other", "stop Trade"]
    assert steps[2:] == ["start Kept"]
    assert not any("deleted topic" in line for line in state.problems.lines())
    assert [path.name for path in (data / "shards").iterdir()] == ["Kept"]
    topics.create("Trade", 1)
    topics.create("Other", 1)
    assert {*topics.all()} == {"Trade", "Other", "Kept"}


def test_a_topic_that_is_made_again_while_it_is_deleted_keeps_its_files(
    data: Path,
) -> None:
    made: list[threading.Thread] = []

    def start(topics: list[TopicConfig], *_which: object) -> Started:
        for topic in topics:
            shard_directory(data, topic.name, 0).mkdir(parents=True)
        return Started({})

    def make(name: str) -> None:
        topic = topics.create(name, 1)
        topics.start_queues(name, topic.topic_id, range(1), 1)

    def stop(_topic: TopicConfig) -> None:
        for name in ("T", "Other"):
            made.append(threading.Thread(target=make, args=(name,)))
            made[-1].start()
            made[-1].join(0.2 if name == "T" else 30)
        assert [thread.is_alive() for thread in made] == [True, False]

    topics, _ = service(data, Shards(start, stop))
    make("T")
    topics.delete("T")
    for thread in made:
        thread.join(patience(30))
    assert {*topics.all()} == {"T", "Other"}
    assert shard_directory(data, "T", 0).exists()


def test_a_topic_is_noted_whole_before_its_queues_are_started_as_they_are_asked_for(
    data: Path,
) -> None:
    calls: list[tuple[str, range | None, float | None]] = []
    report = Started({})

    def start(topics: list[TopicConfig], queues: range | None, wait_s: float | None) -> Started:
        calls.extend((topic.name, queues, wait_s) for topic in topics)
        return report

    topics, state = service(data, Shards(start))
    topic = topics.create("Trade", 64)
    assert calls == []
    assert ClusterState(data, FilterRules(), lambda: 0).topics.catalog.get("Trade") == topic
    report = Started({"Trade/9": StoreError("its file is damaged")}, waiting=("Trade/10",))
    assert topics.start_queues("Trade", topic.topic_id, range(8, 16), 20.0) == report
    assert calls == [("Trade", range(8, 16), 20.0)]
    assert "its file is damaged" in state.problems.lines()
    report = Started({}, waiting=("Trade/9",))  # nobody knows better yet
    topics.start_queues("Trade", topic.topic_id, range(8, 16), 20.0)
    assert "its file is damaged" in state.problems.lines()
    report = Started({})
    topics.start_queues("Trade", topic.topic_id, range(8, 16), 20.0)
    assert "its file is damaged" not in state.problems.lines()


def test_queues_of_a_topic_that_was_deleted_meanwhile_are_not_started(
    data: Path,
) -> None:
    def start(topics: list[TopicConfig], *_: object) -> Started:
        assert not topics
        return Started({})

    topics, _ = service(data, Shards(start))
    first = topics.create("Trade", 64)
    topics.delete("Trade")
    with pytest.raises(TopicNotFoundError):
        topics.start_queues("Trade", first.topic_id, range(8), 1)
    topics.create("Trade", 4)
    with pytest.raises(TopicNotFoundError):
        topics.start_queues("Trade", first.topic_id, range(8), 1)


def test_files_of_a_deleted_topic_that_stay_are_told_at_once(
    data: Path,
) -> None:
    topics, state = service(data, Shards())
    topics.create("Trade", 1)
    strange = shard_directory(data, "Trade", 7)
    strange.mkdir(parents=True)
    settle_config(strange, StoreConfig(store_host=("10.9.9.9", 1)), read_only=False)
    with pytest.raises(StoreError, match="not of the deleted topic"):
        topics.delete("Trade")
    [line] = [line for line in state.problems.lines() if "Trade" in line]
    assert line.startswith("files of the deleted topic Trade are not removed yet: ")
    shutil.rmtree(strange)
    topics.create("Trade", 1)
    assert not any("Trade" in line for line in state.problems.lines())


def test_shards_that_their_processes_closed_are_problems_until_they_are_open(data: Path) -> None:
    closed: dict[str, str | None] = {"T/0": None, "T/1": "queue T/1 stays closed: its disk failed"}
    topics, state = service(data, Shards(problems=closed))
    topics.create("T", 2)
    topics.note_problems()
    assert state.problems.lines() == [closed["T/1"]]
    closed["T/1"] = None
    topics.note_problems()
    assert state.problems.lines() == []


def test_many_topics_are_saved_at_once_or_not_at_all(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def start(topics: list[TopicConfig], *_: object) -> Started:
        started.append([topic.name for topic in topics])
        return Started({})

    topics, state = service(data, Shards(start))
    saves: list[str] = []
    save = state.documents.save

    def count(name: str, value: Mapping[str, Any], **form: bool) -> None:
        saves.append(name)
        save(name, value, **form)

    monkeypatch.setattr(state.documents, "save", count)
    topics.create("A", 1)
    topics.delete("A")
    del saves[:], started[:]
    topics.create_many(["A", "B", "C"], 2, 1.0, internal=True)
    assert (saves, started) == (["topics", "topics"], [["A", "B", "C"]]), "and what was made"
    assert {(each.queues, each.internal) for each in topics.all().values()} == {(2, True)}
    topics.create_many(["B", "C"], 5, 1.0)
    assert {each.queues for each in topics.all().values()} == {2}
    shard_directory(data, "Lost", 0).mkdir(parents=True)
    with pytest.raises(StoreError, match="a topic that this node does not know"):
        topics.create_many(["D", "Lost"], 1, 1.0)
    assert {*topics.all()} == {"A", "B", "C"}

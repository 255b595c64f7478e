"""Topics as clients create them: queues start step by step, and a repeated call goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import pytest

from rocketray.base.system_topics import SCHEDULE_TOPIC, WAITING_QUEUES
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.broker.topics.topic_options import TopicOptions
from rocketray.broker.topics.topic_start import TOPICS_A_STEP, Started, TopicProgress
from rocketray.broker.topics.topics import Topics
from rocketray.errors import ConfigError, StoreError, StreamError
from rocketray.store.retention import KEEP_ALL


class Coordinator:
    """As much of the coordinator as topics need."""

    def __init__(self) -> None:
        self.catalog = TopicCatalog()
        self.running: set[int] = set()
        self.closed: dict[str, StreamError] = {}
        self.calls: list[str] = []
        self.interrupt_at: int | None = None

    def all(self) -> dict[str, TopicConfig]:
        return dict(self.catalog.topics)

    def create(self, name: str, queues: int, **options: Unpack[TopicOptions]) -> TopicConfig:
        self.calls.append(f"note {name} {queues}")
        existing = self.catalog.topics.get(name)
        if existing is None or existing.queues != queues:
            self.catalog = self.catalog.with_topic(name, queues, **options)
        return self.catalog.get(name)

    def start_queues(self, name: str, topic_id: str, queues: range, wait_s: float) -> Started:
        assert topic_id == self.catalog.get(name).topic_id
        assert 1 <= wait_s <= 60
        if queues.start == self.interrupt_at:
            raise KeyboardInterrupt
        self.calls.append(f"start {queues.start}-{queues.stop - 1}")
        began = tuple(f"{name}/{queue}" for queue in queues if queue not in self.running)
        self.running |= {*queues}
        return Started(self.closed, (), began)

    def create_many(
        self, names: Sequence[str], queues: int, wait_s: float, **options: Unpack[TopicOptions]
    ) -> Started:
        assert 1 <= wait_s <= 60
        self.calls.append(f"{len(names)} from {names[0]}")
        new = [name for name in names if name not in self.catalog.topics]
        for name in new:
            self.catalog = self.catalog.with_topic(name, queues, **options)
        return Started(self.closed, (), tuple(f"{name}/0" for name in new))


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def topics(coordinator: Coordinator) -> Topics:
    return Topics(coordinator)  # type: ignore[arg-type]  # it has the calls that the tests need


def test_a_topic_whose_making_was_interrupted_is_completed_by_the_same_call(
    coordinator: Coordinator, topics: Topics
) -> None:
    coordinator.interrupt_at = 16
    with pytest.raises(KeyboardInterrupt):
        topics.create("Trade", 24)
    assert coordinator.calls == ["note Trade 24", "start 0-7", "start 8-15"]
    coordinator.interrupt_at = None
    seen: list[TopicProgress] = []
    assert topics.create("Trade", on_progress=seen.append).queues == 24
    assert (coordinator.running, seen[-1].started) == ({*range(24)}, 8)
    assert topics.alter("Trade", 26, seen.append).queues == 26
    assert (coordinator.running, seen[-1].started) == ({*range(26)}, 2)
    with pytest.raises(ConfigError, match="cannot be reduced"):
        topics.alter("Trade", 1)


def test_many_topics_are_created_by_few_calls_and_existing_ones_stay(
    coordinator: Coordinator, topics: Topics
) -> None:
    topics.create("T7", 3)
    coordinator.calls.clear()
    names = [f"T{number}" for number in range(TOPICS_A_STEP + 2)]
    seen: list[TopicProgress] = []
    created = topics.create_many([*names, "T0"], 1, on_progress=seen.append, internal=True)
    assert coordinator.calls == [f"{TOPICS_A_STEP} from T0", f"2 from T{TOPICS_A_STEP}"]
    assert [*created] == names
    assert [(each.queues, each.internal) for each in created.values()].count((1, True)) == 65
    assert (created["T7"].queues, created["T7"].internal) == (3, False)
    assert [each.running for each in seen] == [0, TOPICS_A_STEP, TOPICS_A_STEP + 2]
    coordinator.closed = {"T1/0": StoreError("the disk is full")}
    with pytest.raises(StoreError, match="the disk is full"):
        topics.create_many(names)
    for wrong in ({"ack": "tape"}, {"queues": 0}, {"topics": ["a", "../b"]}):
        with pytest.raises(ConfigError):
            topics.create_many(**{"topics": ["a"], **wrong})  # type: ignore[arg-type]
    assert topics.create_many([]) == {}


def test_a_queue_that_stays_closed_fails_who_makes_the_topic_and_nobody_after(
    coordinator: Coordinator, topics: Topics
) -> None:
    coordinator.closed = {"Trade/1": StoreError("the disk is full")}
    with pytest.raises(StoreError, match="the disk is full"):
        topics.create("Trade", 2)
    assert topics.create("Trade", 2).queues == 2
    assert topics.alter("Trade", 3).queues == 3
    with pytest.raises(StoreError, match="the disk is full"):
        topics.alter("Other", 1)


def test_a_topic_of_another_size_is_told_of_before_anything_is_started(
    coordinator: Coordinator, topics: Topics
) -> None:
    coordinator.create("Trade", 4)  # its queues do not run
    coordinator.calls.clear()
    with pytest.raises(ConfigError, match="exists and has 4 queues, not 8"):
        topics.create("Trade", 8)
    assert coordinator.calls == []
    assert topics.create("Trade", 4).queues == 4
    assert coordinator.calls == ["note Trade 4", "start 0-3"]
    seen: list[TopicProgress] = []
    assert topics.ensure("Trade", 8, on_progress=seen.append).queues == 4, "taken as it is"
    assert (seen[-1].running, seen[-1].started) == (4, 0)


def test_a_new_delay_level_gets_its_queue_on_a_node_that_has_the_others(
    coordinator: Coordinator, topics: Topics
) -> None:
    levels = WAITING_QUEUES[SCHEDULE_TOPIC]
    coordinator.create(SCHEDULE_TOPIC, levels - 1)
    assert topics.ensure(SCHEDULE_TOPIC, levels).queues == levels
    assert coordinator.running == {*range(levels)}


def test_an_option_that_no_topic_has_is_refused(topics: Topics) -> None:
    with pytest.raises(ConfigError, match=r"no option retentoin=; did you mean retention=\?"):
        topics.create("Trade", 4, retentoin=KEEP_ALL)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="no option colour=; it has retention, internal, queues"):
        topics.ensure("Trade", colour="red")  # type: ignore[call-arg]
    assert topics.all() == {}


def test_a_retention_is_a_policy(topics: Topics) -> None:
    text: Any = "72h"
    with pytest.raises(ConfigError, match="retention is '72h'; give a rocketray"):
        topics.create("Trade", retention=text)

"""Shards of a topic that goes are stopped, whatever became of their processes; and how they start."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketray.actors.client import actor_names
from rocketray.actors.client.ray_transport import begin
from rocketray.actors.cluster import node_shards
from rocketray.actors.cluster.coordinator_settings import CoordinatorSettings
from rocketray.actors.cluster.node_disks import NodeDisks
from rocketray.actors.cluster.node_shards import NodeShards
from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.base.config import SCRUB_RATE
from rocketray.broker.disks.disk_agent import DiskAgent
from rocketray.broker.shards.shard_api import ExpiryOrder, ShardApi, shard_of
from rocketray.broker.shards.shard_problems import subjects_of
from rocketray.broker.shards.shard_process import Opened
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.broker.topics.placement import Placement
from rocketray.errors import ShardUnavailableError, StoreError, StreamError
from rocketray.runtime.calls.endpoint import process_actor
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import RayError, RayTaskError
from rocketray.store.retention import KEEP_ALL

HOME = Home("/data", "1", "here")


def shards_here() -> NodeShards:
    """The shards of a cluster with one disk."""
    data = Path(HOME.data)
    disks = NodeDisks(HOME, DiskAgent(data), FileDocuments(data))
    return NodeShards(HOME, CoordinatorSettings(HOME), disks, TopicCatalog)


class Actor:
    """A shard's actor: its calls are made by ``remote`` and answered by ``get``."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self.stop = self
        self.stopped = self.killed = False

    def remote(self) -> Actor:
        return self

    def answer(self) -> None:
        if self._error is not None:
            raise self._error
        self.stopped = True


class FakeRay:
    """As much of Ray as stopping a shard needs."""

    def get(self, call: Actor, timeout: float | None = None) -> None:
        assert timeout
        call.answer()

    def kill(self, actor: Actor) -> None:
        actor.killed = True


def test_shards_that_died_do_not_keep_the_others_of_their_topic_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actors = [Actor(RayError("it died and cannot start again")), None, Actor(None)]
    names = [process_actor(f"T:{queue_id}") for queue_id in range(3)]

    def find(_cluster: str, name: str) -> Any:
        actor = actors[names.index(name)]
        if actor is None:
            raise ShardUnavailableError(name, "there is no such actor")
        return actor

    monkeypatch.setattr(node_shards, "find_actor", find)
    monkeypatch.setattr(node_shards, "ray", FakeRay())
    shards_here().remove(TopicCatalog().with_topic("T", 3).get("T"))
    assert [actor and (actor.stopped, actor.killed) for actor in actors] == [
        (False, True),
        None,
        (True, True),
    ]


class StartingRay:
    """Actors by name, of which some never answer; all calls answer at once or not at all."""

    def __init__(self) -> None:
        self.actors: dict[str, str] = {}
        self.silent: set[str] = set()
        self.failing: dict[str, Exception] = {}
        self.stopped: list[str] = []
        self.open: set[str] = set()
        self.openings = 0
        self.expired: dict[str, list[str]] = {}
        self.damaged: dict[str, dict[str, StreamError]] = {}
        self.problems: dict[str, dict[str, str]] = {}
        self.unflushed: dict[str, dict[str, int]] = {}

    def expire(self, name: str, orders: list[ExpiryOrder]) -> dict[str, str]:
        self.expired[name] = [f"{each.topic.name}/{each.queue_id}" for each in orders]
        return {self.expired[name][0]: "its file is in the way"}

    def is_initialized(self) -> bool:
        return True

    def get_actor(self, name: str, namespace: str) -> Any:
        assert namespace
        if name not in self.actors:
            raise ValueError(name)
        return Handle(self, name)

    def start(self, _actor: type, name: str, _threads: int, _home: Home, *arguments: Any) -> Any:
        assert name not in self.actors, "who runs is left alone"
        process, sizes, scrub_rate = arguments
        assert (sizes, scrub_rate) == ({}, SCRUB_RATE)
        self.actors[name] = process
        return Handle(self, name)

    def wait(
        self, answers: list[Answer], num_returns: int, timeout: float | None
    ) -> tuple[list[Answer], list[Answer]]:
        assert num_returns == len(answers)
        late = [each for each in answers if each.name in self.silent]
        assert timeout is not None or not late
        return [each for each in answers if each not in late], late

    def get(self, answer: Answer | list[Answer], timeout: float | None = None) -> Any:
        del timeout
        if isinstance(answer, list):
            return [self.get(each) for each in answer]
        assert answer.name not in self.silent, "it would wait for ever"
        if answer.name in self.failing:
            raise self.failing[answer.name]
        return answer.result()


class Answer:
    """Ray's reference of an answer."""

    def __init__(self, name: str, result: Callable[[], Any]) -> None:
        self.name = name
        self.result = result


class Handle:
    """The actor of a process; its calls are its attributes."""

    def __init__(self, cluster: StartingRay, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self.open = _Call(self._open)
        self.problems = _Call(lambda: self._answer(lambda: dict(cluster.problems.get(name, {}))))
        self.unflushed = _Call(lambda: self._answer(lambda: dict(cluster.unflushed.get(name, {}))))
        self.expire = _Call(lambda orders: self._answer(lambda: cluster.expire(name, orders)))
        self.stop = _Call(lambda: self._answer(lambda: cluster.stopped.append(name)))

    def _open(self, wanted: list[tuple[TopicConfig, list[int]]]) -> Answer:
        self._cluster.openings += 1
        places = [f"{topic.name}/{queue_id}" for topic, queues in wanted for queue_id in queues]
        new = tuple(place for place in places if place not in self._cluster.open)
        self._cluster.open.update(places)
        return self._answer(lambda: Opened(new, self._cluster.damaged.get(self._name, {})))

    def _answer(self, result: Callable[[], Any]) -> Answer:
        return Answer(self._name, result)


class _Call:
    def __init__(self, call: Callable[..., Answer]) -> None:
        self.remote = call


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> StartingRay:
    cluster = StartingRay()
    monkeypatch.setattr(actor_names, "ray", cluster)
    monkeypatch.setattr(node_shards, "ray", cluster)
    monkeypatch.setattr(node_shards, "start_actor", cluster.start)
    return cluster


def test_some_queues_of_a_topic_are_started_and_those_that_run_are_left_alone(
    cluster: StartingRay,
) -> None:
    topic = TopicCatalog().with_topic("T", 64).get("T")
    cluster.silent = {"shards:T:9"}
    cluster.damaged = {"shards:T:10": {"T/10": StoreError("damaged")}}
    first = shards_here().start([topic], range(8, 12), 20.0)
    assert (first.waiting, first.began) == (("T/9",), ("T/8", "T/9", "T/10", "T/11"))
    assert {name: str(error) for name, error in first.closed.items()} == {"T/10": "damaged"}
    assert cluster.actors == {f"shards:T:{queue}": f"T:{queue}" for queue in range(8, 12)}
    cluster.silent.clear()
    again = shards_here().start([topic], range(8, 16), 20.0)
    assert (again.waiting, again.began) == ((), ("T/12", "T/13", "T/14", "T/15"))
    assert len(shards_here().start([topic]).began) == 64 - 8


def test_the_topics_of_the_shared_process_come_to_one_that_runs(cluster: StartingRay) -> None:
    catalog = TopicCatalog().with_topic("%RETRY%a", 2).with_topic("%RETRY%b", 1)
    first, second = catalog.topics.values()
    assert shards_here().start([first]).began == ("%RETRY%a/0", "%RETRY%a/1")
    assert shards_here().start([first, second]).began == ("%RETRY%b/0",)
    assert [*cluster.actors] == ["shards:shared"]


def test_all_topics_of_a_process_are_opened_by_one_call(cluster: StartingRay) -> None:
    catalog = TopicCatalog()
    for number in range(10):
        catalog = catalog.with_topic(f"T{number}", 4, Placement(cores=2))
    started = shards_here().start([*catalog.topics.values()])
    assert (len(started.began), cluster.openings) == (40, 2)
    assert {*cluster.actors} == {"shards:common-0", "shards:common-1"}


def test_old_files_are_removed_by_one_call_of_each_process_and_failures_are_told(
    cluster: StartingRay, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = TopicCatalog()
    for name in ("A", "B"):
        catalog = catalog.with_topic(name, 2, Placement(cores=2))
    topics = [*catalog.with_topic("Away", 1).topics.values()]
    orders = [
        ExpiryOrder(topic, queue, KEEP_ALL, None)
        for topic in topics
        for queue in range(topic.queues)
    ]
    shards_here().start(topics[:2])
    cluster.failing = {"shards:common-1": RayTaskError("expire", "", ValueError("odd"))}
    shards_here().expire(orders, 10.0)
    assert cluster.expired == {"shards:common-0": ["A/0", "B/0"]}
    for line in (
        "A/0 did not remove its old files: its file is in the way",
        "common-1 did not remove its old files",
        "Away:0 is unavailable",
    ):
        assert line in caplog.text


def test_the_processes_say_what_is_wrong_with_their_shards(cluster: StartingRay) -> None:
    topic = TopicCatalog().with_topic("T", 4).get("T")
    assert shards_here().problems([topic], ()) == {}
    shards_here().start([topic], range(3))
    cluster.silent = {"shards:T:1"}
    cluster.problems = {"shards:T:2": {"T/2": "its disk failed", "T/2 damage": "old"}}
    assert shards_here().problems([topic], ()) == cluster.problems["shards:T:2"]
    noted = [subject for queue in range(4) for subject in subjects_of(f"T/{queue}")]
    found = shards_here().problems([topic], noted)
    assert {place: line for place, line in found.items() if line} == cluster.problems["shards:T:2"]
    assert found.keys() == {*subjects_of("T/0"), *subjects_of("T/2")}
    assert shards_here().problems([topic], {"process T:2"})["process T:2"] is None
    cluster.unflushed = {"shards:T:0": {"T/0": 17, "Gone/0": 5}}
    assert shards_here().unflushed([topic]) == {"T/0": 17, "T/1": None, "T/3": None}, "2 is closed"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RayTaskError("ask", "", ValueError("odd")), r"ValueError\('odd'\)"),
        (RayError("the actor died\nin its constructor\nline 3"), "the actor died"),
    ],
)
def test_a_shard_that_fails_unexpectedly_closes_no_other(
    cluster: StartingRay, error: Exception, reason: str
) -> None:
    topic = TopicCatalog().with_topic("T", 2).get("T")
    cluster.failing = {"shards:T:0": error}
    started = shards_here().start([topic])
    assert [*started.closed] == ["T/0"]
    closed = str(started.closed["T/0"])
    assert re.fullmatch(
        f"queue T/0 stays closed: {reason}; see the node's logs, and start the node again", closed
    )
    assert {*cluster.actors} == {"shards:T:0", "shards:T:1"}


def test_a_node_stops_in_order_with_a_topic_that_is_made_by_half(cluster: StartingRay) -> None:
    topic = TopicCatalog().with_topic("T", 4).get("T")
    shards_here().start([topic], range(2), 20.0)
    with pytest.raises(ShardUnavailableError, match=r"shards:T:3 .*or the topic is being created"):
        begin(DEFAULT_CLUSTER, shard_of(topic, 3), ShardApi.statistics)
    shards_here().stop([topic])
    assert cluster.stopped == ["shards:T:0", "shards:T:1"]


def test_no_ray_is_started_only_to_look_for_an_actor() -> None:
    """Ray's own call would start a cluster, whose loss ends this process a minute later."""
    with pytest.raises(ShardUnavailableError, match="has not joined Ray"):
        actor_names.find_actor(DEFAULT_CLUSTER, "coordinator")

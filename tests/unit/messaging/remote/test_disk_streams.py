"""A member of a topic on two disks: one mapped, one fetched, behind one bell."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.nodes.local_node import LocalNode

from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.errors import ShardUnavailableError
from rocketray.filters.subscription import Subscription
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.consumers.queue_stream import QueueStreams
from rocketray.messaging.remote import disk_streams
from rocketray.messaging.remote.disk_streams import DiskStreams
from rocketray.messaging.remote.fetch_api import FetchApi
from rocketray.messaging.remote.fetched_streams import FetchedStreams
from rocketray.runtime.files.runtime_lock import RuntimeLock, remove_runtime

FAR = "00000000-0000-0000-0000-000000000002"


class TwoDisks:
    """A node whose odd queues are said to be on another disk: their files are here all the same."""

    def __init__(self, node: LocalNode, topic: TopicConfig, local: frozenset[str]) -> None:
        self._node = node
        self._topic = topic
        self._local = local
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def at(self, disk: str) -> Any:
        self.asked.append(disk)
        return _Place(self._node, is_here=disk in self._local)


class _Place:
    def __init__(self, node: LocalNode, *, is_here: bool) -> None:
        self._node = node
        self._is_here = is_here

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def is_local(self) -> bool:
        return self._is_here


class OnTwoDisks:
    """The configuration of a topic with the odd queues on the other disk."""

    def __init__(self, topic: TopicConfig) -> None:
        self.name, self.queues = topic.name, topic.queues
        self.moves = 0

    def disk_of(self, queue_id: int) -> str:
        return FAR if queue_id % 2 else ""

    def by_disk(self) -> dict[str, list[int]]:
        return {"": [0, 2], FAR: [1, 3]}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as made:
        made.topics.create("T", 4)
        yield made


@pytest.mark.parametrize(
    ("local", "kinds"),
    [
        ({"", FAR}, {"": QueueStreams, FAR: QueueStreams}),
        ({""}, {"": QueueStreams, FAR: FetchedStreams}),
        (set(), {"": FetchedStreams, FAR: FetchedStreams}),
    ],
)
def test_messages_of_all_queues_come_through_one_bell(
    node: LocalNode, local: set[str], kinds: dict[str, type]
) -> None:
    topic: Any = OnTwoDisks(node.topics.get("T"))
    place: Any = TwoDisks(node, topic, frozenset(local))
    asked: list[str] = []

    def gateway(disk: str) -> FetchApi:
        asked.append(disk)
        return node.gateway

    streams = DiskStreams(place, "g", topic, gateway)
    with (
        GroupConsumer(node, "g", "T", Subscription.tags("*"), streams=streams) as member,
        node.producer() as producer,
    ):
        sender = threading.Timer(
            0.3, lambda: [producer.send("T", b"%d" % queue, queue_id=queue) for queue in range(4)]
        )
        sender.start()
        bodies: list[bytes] = []
        while len(bodies) < 4:
            bodies += [body for batch in member.poll(10.0) for body in batch.bodies()]
        sender.join()
        assert sorted(bodies) == [b"0", b"1", b"2", b"3"]
        assert {disk: type(source) for disk, source in streams._sources.items()} == kinds
    assert sorted(asked) == sorted(disk for disk in kinds if disk not in local)


class Moved(OnTwoDisks):
    """The configuration after the even queues moved to the other disk, and queue 1 from there."""

    def __init__(self, topic: TopicConfig) -> None:
        super().__init__(topic)
        self.moves = 3

    def disk_of(self, queue_id: int) -> str:
        return "" if queue_id == 1 else FAR


def test_queues_that_moved_are_read_on_where_they_are_now(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic: Any = OnTwoDisks(node.topics.get("T"))
    place: Any = TwoDisks(node, topic, frozenset({""}))
    streams = DiskStreams(place, "g", topic, lambda _: node.gateway)
    with (
        GroupConsumer(
            node, "g", "T", Subscription.tags("*"), streams=streams, has_heart=False
        ) as member,
        node.producer() as producer,
    ):
        streams.start()
        bodies: list[bytes] = []

        def read(first: int, count: int) -> None:
            for number in range(first, first + count):
                for queue in range(4):
                    producer.send("T", b"%d-%d" % (queue, number), queue_id=queue)
            while len(bodies) < 4 * (first + count):
                bodies.extend(body for batch in member.poll(10.0) for body in batch.bodies())

        read(0, 2)
        before = dict(member._queues.streams)
        moved: Any = Moved(node.topics.get("T"))
        monkeypatch.setattr(node.topics, "get", lambda _: moved)
        monkeypatch.setattr(member._session, "moves", 3)
        read(2, 2)
        after = member._queues.streams
        assert {at for at in after if after[at] is not before[at]} == {0, 1, 2}
        assert not member._queues.has_to_open
        assert len(bodies) == len({*bodies}) == 16
        for queue in range(4):
            mine = [body for body in bodies if body.startswith(b"%d-" % queue)]
            assert mine == [b"%d-%d" % (queue, number) for number in range(4)]
        assert member.counters().delivered == 16


def test_a_member_reads_on_after_its_node_was_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = RuntimeLock(tmp_path)
    monkeypatch.setattr(disk_streams, "LOOK_S", 0)
    with LocalNode(tmp_path) as node, node.producer() as producer:
        node.topics.create("T", 4)
        topic: Any = OnTwoDisks(node.topics.get("T"))
        place: Any = TwoDisks(node, topic, frozenset({""}))
        streams = DiskStreams(place, "g", topic, lambda _: node.gateway)
        everything = Subscription.tags("*")
        with GroupConsumer(node, "g", "T", everything, streams=streams, has_heart=False) as member:
            streams.start()
            bodies: list[bytes] = []

            def read(number: int) -> None:
                for queue in range(4):
                    producer.send("T", b"%d-%d" % (queue, number), queue_id=queue)
                while len(bodies) < 4 * (number + 1):
                    bodies.extend(body for batch in member.poll(10.0) for body in batch.bodies())

            read(0)
            first.close()
            remove_runtime(tmp_path)
            has_to_follow = [member.needs_rebalance]  # a heartbeat wakes the poll then
            again = RuntimeLock(tmp_path)
            has_to_follow += [member.needs_rebalance]
            assert has_to_follow == [False, True]
            bell = streams.bell
            with monkeypatch.context() as patched:
                patched.setattr(node.topics, "get", lambda _: _unavailable())
                assert member.poll(0.0) == []
            assert streams.is_left_behind()
            monkeypatch.setattr(node.topics, "get", lambda _: topic)
            member._queues._reopen_ms = 0
            read(1)
            assert streams.bell is not bell
            assert not member.needs_rebalance
            assert len(bodies) == len({*bodies}) == 8
        again.close()


def test_polls_look_rarely_whether_the_node_was_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was seen is not forgotten: another thread may have looked."""
    looks = [False, True]
    monkeypatch.setattr(disk_streams, "LOOK_S", 3600)
    with LocalNode(tmp_path) as node:
        streams = DiskStreams(node, "g", TopicCatalog().with_topic("T", 1).get("T"), _no_gateway)
        seen: Any = SimpleNamespace(is_left_behind=lambda: looks.pop(0))
        streams._marks = [seen]
        assert [streams.is_left_behind() for _ in range(100)] == [False] * 100
        assert looks == [True]
        streams._look_at_s = 0
        assert [streams.is_left_behind() for _ in range(100)] == [True] * 100
        assert looks == []
        streams.close()


def _no_gateway(_: str) -> FetchApi:
    raise AssertionError


def _unavailable() -> None:
    raise ShardUnavailableError("the coordinator", "it starts")


def test_a_queue_that_was_moved_away_and_back_is_opened_again(tmp_path: Path) -> None:
    """Its files are other ones, though its disk is the same: which one it was is not known."""
    with LocalNode(tmp_path) as node:
        catalog = TopicCatalog().with_topic("T", 3)
        topic = catalog.get("T")
        now = {"T": topic}
        place: Any = TwoDisks(node, topic, frozenset({"", FAR}))
        place.topics = SimpleNamespace(get=now.__getitem__)
        streams = DiskStreams(place, "g", topic, lambda _: node.gateway)

        def moved(queue_id: int, disk: str) -> None:
            nonlocal catalog
            catalog = catalog.with_disk("T", queue_id, disk)
            now["T"] = catalog.get("T")

        assert streams.follow(0) == frozenset()
        moved(1, FAR)
        assert streams.follow(1) == {1}
        moved(1, "")
        moved(1, FAR)
        assert streams.follow(3) == {0, 1, 2}
        moved(0, FAR)
        moved(2, FAR)
        assert streams.follow(5) == {0, 2}
        assert streams.follow(5) == frozenset()
        streams.close()

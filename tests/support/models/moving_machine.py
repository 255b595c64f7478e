"""The rules by which moves of queues between two disks are tried under a group, with what may fail.

The members are on a third machine: they fetch from the gateway of each disk. All rules and checks of
remote_machine.py hold here, too: a move costs nobody a message, its order or a second delivery, at
whichever step it fails, and whatever starts again meanwhile. A queue is open on one disk, that of
the catalog.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from support.models.remote_machine import (
    FAR_MAX,
    QUEUES,
    SUBSCRIPTION,
    FarNode,
    Reader,
    Remote,
    far_readers,
    fetch_losses,
    fetch_names,
    queue_ids,
)
from support.nodes.lossy_calls import Loss, LossyCalls
from support.nodes.moving_disks import FAR, STEPS, MovingAgents

from rocketray.actors.cluster import queue_moves
from rocketray.actors.cluster.queue_moves import QueueMoves
from rocketray.broker.disks.copy_rounds import RoundProgress
from rocketray.broker.disks.disks_api import DiskReport, DisksApi
from rocketray.broker.filtering.engine import FilterEngine
from rocketray.broker.filtering.filter_api import FilterApi
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.topic_start import Started
from rocketray.broker.topics.topics import TopicsApi
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.remote.disk_streams import DiskStreams
from rocketray.messaging.remote.fetch_sessions import FetchSessions
from rocketray.messaging.remote.fetched_streams import FetchedStreams
from rocketray.runtime.calls.endpoint import InProcess, ServedObjects
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.paths import shard_directory
from rocketray.runtime.files.runtime_lock import remove_runtime
from rocketray.testing import Broker

GRACE_S = int(queue_moves._GRACE_S)
_WAIT_S = 30.0


class SecondDisk:
    """A further disk of a broker's node: its agent, its filter, its gateway and its processes.

    It has the processes of both disks: the ``MovingShards`` of a move.
    """

    def __init__(self, broker: Broker, data: Path) -> None:
        self.data = data
        self._broker = broker
        self._node = broker.node
        (data / "config").mkdir(parents=True)
        self.agents = MovingAgents({"": broker.data, FAR: data})
        self._start_process = self._node._start_process
        vars(self._node)["_start_process"] = self._start_on_disk
        self._node.calls._served.serve(DisksApi, lambda: self)  # type: ignore[arg-type,return-value]
        served = ServedObjects()
        served.serve(FilterApi, lambda: self.filter)
        served.serve(TopicsApi, lambda: self._node.topic_service)
        self._client = NodeClient(data, InProcess(served), broker.clock, disk=FAR)
        self.filter = FilterEngine(data, self._node.rules)
        self.gateway = self.new_gateway()

    def homes(self) -> dict[str, Home]:
        """See ``DisksApi``."""
        return {
            "": Home(str(self._broker.data), "1", "near"),
            FAR: Home(str(self.data), FAR, "far"),
        }

    def reports(self) -> dict[str, DiskReport]:
        """See ``DisksApi``."""
        return {disk: agent.report() for disk, agent in self.agents.agents.items()}

    def new_gateway(self) -> FetchSessions:
        return FetchSessions(self._client, lambda: self._broker.clock.steady() / 1000)

    def restart_gateway(self) -> None:
        self.gateway.close()
        self.gateway = self.new_gateway()

    def restart_filter(self) -> None:
        self.filter.close()
        self.filter = FilterEngine(self.data, self._node.rules)
        self.filter.attach_all()

    def restart_processes(self) -> None:
        """The processes of both disks die, and come back with the catalogs of their disks."""
        for name in [*self._node.processes]:
            self._node.end_process(name)
            self._node._process(name)

    def places(self, queue_id: int) -> list[str]:
        """The disks on which a queue is open."""
        return [
            name.partition("@")[2]
            for name, each in self._node.processes.items()
            if each.find("T", queue_id) is not None
        ]

    def close(self) -> None:
        self.gateway.close()
        self.filter.close()
        remove_runtime(self.data)

    def _start_on_disk(self, name: str) -> ShardProcess:
        if not name.endswith(FAR):
            return self._start_process(name)
        node = self._node
        return ShardProcess(self.data, name, node.sizes, clock_ms=node.clock_ms)

    # MovingShards

    def start(
        self,
        topics: list[TopicConfig],
        queues: range | None,
        wait_s: float | None,
    ) -> Started:
        self.agents.may_fail("start")
        self.keep_catalog()
        closed: dict[str, StreamError] = {}
        for topic in topics:
            for name, wanted in topic.by_process(queues).items():
                closed |= self._node._process(name).open([(topic, wanted)]).closed
        return Started(closed)

    def keep_catalog(self) -> None:
        self._node.state.topics.catalog.of_disk(FAR).save(self.data)

    def start_process(self, topic: TopicConfig, queue_id: int) -> None:
        self.agents.may_fail("start_process")
        self._node._process(topic.process_of(queue_id))

    def hand_over(self, topic: TopicConfig, queue_id: int) -> None:
        self.agents.may_fail("hand_over")
        self._node._process(topic.process_of(queue_id)).hand_over(topic.name, queue_id)

    def take_back(self, topic: TopicConfig, queue_id: int) -> None:
        self._node._process(topic.process_of(queue_id)).take_back(topic, queue_id)

    def end_unused(self, before: TopicConfig, after: TopicConfig) -> None:
        for name in before.by_process().keys() - after.by_process().keys():
            self._node.end_process(name)


class Moving(Remote):
    """Members of a group, and the queues that they read, on two disks."""

    moved = 0

    def __init__(self) -> None:
        self.disk: SecondDisk | None = None
        super().__init__()

    @property
    def far_disk(self) -> SecondDisk:
        if self.disk is None:  # before the first member joins
            self.exits.enter_context(mock.patch.object(queue_moves, "_GRACE_S", 0.0))
            self.disk = SecondDisk(self.broker, self.directory / "second")  # removed with the first
            self.exits.callback(self.disk.close)
            self.moves = self._new_moves()
        return self.disk

    def _new_moves(self) -> QueueMoves:
        state, disk = self.broker.node.state, self.far_disk
        locks = self.broker.node.topic_service.locks
        return QueueMoves(state.documents, state, disk.agents, disk, locks)

    join_near = None  # type: ignore[assignment]  # its streams are those of one disk

    @precondition(lambda self: len(self.readers) < FAR_MAX)
    @rule()
    def join_far(self) -> None:
        node: Any = FarNode(self.broker)
        disk = self.far_disk
        gateways = {"": LossyCalls(lambda: self.gateway), FAR: LossyCalls(lambda: disk.gateway)}
        clock_ms = self.broker.clock.steady
        topic = self.broker.topics.get("T")
        streams: Any = DiskStreams(node, "g", topic, gateways.__getitem__)
        member = GroupConsumer(
            node, "g", "T", SUBSCRIPTION, streams=streams, has_heart=False, clock_ms=clock_ms
        )
        self.readers.append(Reader(self.queues, member, gateways[""], node.sessions, gateways[FAR]))

    @rule(queue_id=queue_ids, fails=st.sampled_from(["", "", *STEPS]))
    def move(self, queue_id: int, fails: str) -> None:
        """Move a queue to the other disk; a move that fails leaves it where it was."""
        before = self.broker.topics.get("T")
        target = "" if before.disk_of(queue_id) else FAR
        agents = self.far_disk.agents
        if fails:
            agents.fails[fails] = ShardUnavailableError("topic T", "the test asked for it", 1)
        moved: Any = RoundProgress()
        try:
            while isinstance(moved, RoundProgress):
                moved = self.moves.move("T", queue_id, target, _WAIT_S)
        except ShardUnavailableError:
            agents.fails.clear()
            self.far_disk.start([self.broker.topics.get("T")], None, None)
        after = self.broker.topics.get("T")
        if not fails:
            assert after.disk_of(queue_id) == target
            Moving.moved += 1
        elif fails != "start":
            assert after == before

    @rule()
    def remove_old_files(self) -> None:
        """Members that have not heard of a move until then have no lease any more."""
        if not self.has_old_files():
            return
        self.advance(GRACE_S)
        self.moves.tidy()
        assert not self.has_old_files()

    def has_old_files(self) -> bool:
        """Whether a queue has files on another disk than its own, where it must have some."""
        topic, has = self.broker.topics.get("T"), False
        for disk, data in (("", self.broker.data), (FAR, self.far_disk.data)):
            there = {at for at in range(QUEUES) if shard_directory(data, "T", at).exists()}
            its_own = {at for at in range(QUEUES) if topic.disk_of(at) == disk}
            assert there >= its_own
            has |= there != its_own
        return has

    @rule()
    def restart_coordinator(self) -> None:
        self.broker.node.state.save()
        self.broker.faults.restart_coordinator()
        self.moves = self._new_moves()

    @rule()
    def restart_processes(self) -> None:
        self.far_disk.restart_processes()

    @rule()
    def restart_far_filter(self) -> None:
        self.far_disk.restart_filter()

    @rule()
    def restart_far_gateway(self) -> None:
        self.far_disk.restart_gateway()

    @rule(reader=far_readers, call=fetch_names, lost=fetch_losses)
    def lose_far_fetches(self, reader: Reader, call: str, lost: list[Loss]) -> None:
        reader.calls[2].losses.setdefault(call, []).extend(lost)

    @rule(reader=far_readers)
    def late_far_fetches_arrive(self, reader: Reader) -> None:
        reader.calls[2].arrive_late()

    @invariant()
    def a_queue_is_open_where_the_catalog_says(self) -> None:
        topic = self.broker.topics.get("T")
        for queue_id in range(QUEUES):
            assert self.far_disk.places(queue_id) == [topic.disk_of(queue_id)]

    def receive(self, reader: Reader) -> None:
        """The fetching threads have their turns."""
        if not reader.is_stopped:
            self.far_disk.filter.step_to_the_end()
            for source in [*reader.member._streams._sources.values()]:  # type: ignore[attr-defined]
                if isinstance(source, FetchedStreams):
                    source.step()

    def advance(self, seconds: int) -> None:
        super().advance(seconds)
        self.far_disk.gateway.sweep()

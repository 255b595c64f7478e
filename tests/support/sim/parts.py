"""The node of a simulation: its parts as processes of one machine, and the calls between them.

Each part, coordinator, filter, shard process, member or producer, is plain objects of the product.
It may be killed by itself, at any call that changes the disk. A call to a part that is down fails;
a call may be lost, its answer may be lost, and a heartbeat may arrive again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from rocketray.actors.cluster.topic_service import TopicService
from rocketray.broker.filtering.engine import FilterEngine
from rocketray.broker.filtering.filter_api import FilterApi
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.shards.shard_api import LookupApi, ShardApi
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.process_names import SHARED_PROCESS
from rocketray.broker.topics.topic_start import Started
from rocketray.broker.topics.topics import TopicsApi
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.groups.groups_api import GroupsApi, SessionsApi
from rocketray.messaging.api.system_api import DelaysApi, TransactionsApi
from rocketray.runtime.calls.endpoint import Endpoint
from rocketray.store.age_clock import AgeClock
from rocketray.testing.node import LocalNode, _LocalShards

from .machine import KilledError, Machine

COORDINATOR, FILTER, OPERATOR = "coordinator", "filter", "operator"
_COORDINATORS = (SessionsApi, GroupsApi, TopicsApi)
SIZES = {
    "commit_log_segment_bytes": 8 * 1024,
    "consume_queue_segment_entries": 20,
    "index_hash_slots": 7,
    "index_entries": 40,
}


def process_part(name: str) -> str:
    """Return the part that a shard process is."""
    return f"shards:{name}"


class Network:
    """What happens to the calls between parts."""

    def __init__(self) -> None:
        self.losing: float = 0.0
        """The share of calls that are lost, or whose answers are."""
        self.repeating: float = 0.0
        """The share of heartbeats that arrive again later."""
        self.waiting: list[Callable[[], Any]] = []
        """Heartbeats that are still under way."""


class SimNode(LocalNode):
    """A node whose parts may die."""

    def __init__(self, machine: Machine, network: Network, on_death: Callable[[str], None]) -> None:
        self.machine = machine
        self.network = network
        self.down: set[str] = set()
        """The parts that are dead and not started again."""
        self.say: Callable[[str], None] = lambda _: None
        """Take note of something for the log of the run."""
        self._on_death = on_death
        self._acting: list[str] = []
        self._pids: dict[str, int] = {}
        rules = FilterRules()
        super().__init__(
            machine.data,
            SIZES,
            AgeClock(machine.clock, machine.steady_ms),
            rules,
            machine.steady_ms,
            around=self._around,
        )
        self.calls.shares_memory = False
        self.filter.attach_all()

    # Parts

    @contextlib.contextmanager
    def acting(self, part: str) -> Iterator[None]:
        """Let *part* run the block; if it is killed there, the caller finds it unavailable."""
        if part in self.down:
            raise ShardUnavailableError(part, "it is down", 1)
        pid = self._pids.get(part) or self._pids.setdefault(part, self.machine.new_process())
        self._acting.append(part)
        try:
            with self.machine.running(pid):
                yield
        except KilledError:
            self.machine.undo_clean_up()
            self.bury(part)
            raise ShardUnavailableError(part, "it was killed", 1) from None
        finally:
            self._acting.pop()

    def bury(self, part: str) -> None:
        """Take note of a dead part: its locks are free, and its memory is gone."""
        self.down.add(part)
        pid = self._pids.pop(part, 0)
        self.machine.living.discard(pid)
        if not part.startswith("shards:"):
            self.machine.release_locks(pid=pid)
        if part.startswith("shards:"):
            name = part.partition(":")[2]
            process = self.processes.pop(name, None)
            if process is not None:
                for topic, queue_id in process._shards:
                    self.machine.release_locks(f"{self.data}/shards/{topic}/{queue_id}/")
            if name == SHARED_PROCESS:
                vars(self).pop("services", None)
        self._on_death(part)

    def end_client(self, part: str) -> None:
        """Take note that a client was killed."""
        pid = self._pids.pop(part, 0)
        self.machine.living.discard(pid)
        self.machine.release_locks(pid=pid)

    def revive(self, part: str) -> None:
        """Start a dead part again."""
        self.down.discard(part)
        if part == COORDINATOR:
            with self.acting(part):
                self.load_state()
                self.topic_service.start_all()
                self.state.begin_to_listen()
        elif part == FILTER:
            with self.acting(part):
                self.filter = FilterEngine(self.data, self.rules)
                self.filter.attach_all()
        elif part != OPERATOR:  # whose next command is another process
            self._process(part.partition(":")[2])

    def parts(self) -> list[str]:
        """Return the parts that run."""
        found = [COORDINATOR, FILTER, *map(process_part, self.processes)]
        return [part for part in found if part not in self.down]

    def load_state(self) -> None:
        """Load the coordinator's state, and let shards report that they stay closed."""
        super().load_state()
        self.topic_service = TopicService(self.state, _SimShards(self))

    def open_queues(self, topic: TopicConfig, queues: range) -> dict[str, StreamError]:
        """Open the shards of queues; return why some stay closed."""
        closed: dict[str, StreamError] = {}
        for name, queue_ids in topic.by_process(queues).items():
            try:
                process = self._process(name)
                with self.acting(process_part(name)):
                    closed |= process.open([(topic, queue_ids)]).closed
            except ShardUnavailableError as error:
                places = [f"{topic.name}/{queue_id}" for queue_id in queue_ids]
                closed |= dict.fromkeys(places, error)
        return closed

    def serve(self) -> None:
        """Run the services once."""
        if SHARED_PROCESS in self.processes:
            with self.acting(process_part(SHARED_PROCESS)):
                self.services.step(self.clock_ms())

    def _start_process(self, name: str) -> ShardProcess:
        part = process_part(name)
        with self.acting(part):
            try:
                return super()._start_process(name)
            except KilledError:
                self.machine.release_locks(f"{self.data}/shards/")
                raise

    def _around(self, endpoint: Endpoint[Any], method: str, run: Callable[[], Any]) -> Any:
        part, network, chance = self._part_of(endpoint), self.network, self.machine.chance
        is_lost = network.losing and chance.random() < network.losing

        def there() -> Any:
            with self.acting(part):
                return run()

        if is_lost and chance.random() < 0.5:
            raise ShardUnavailableError(part, "the call was lost", 1)
        result = there()
        if method == "heartbeat" and chance.random() < network.repeating:
            network.waiting.append(there)
        if is_lost:
            raise ShardUnavailableError(part, "the answer was lost", 1)
        return result

    def _part_of(self, endpoint: Endpoint[Any]) -> str:
        interface = endpoint.interface
        if interface in _COORDINATORS:
            return COORDINATOR
        if interface is FilterApi:
            return FILTER
        if interface in (ShardApi, LookupApi):
            topic, queue_id = endpoint.key
            known = self.topic_service.all().get(topic)
            return process_part(SHARED_PROCESS if known is None else known.process_of(queue_id))
        assert interface in (TransactionsApi, DelaysApi), interface
        return process_part(SHARED_PROCESS)


class _SimShards(_LocalShards):
    """The shards of a node, some of which may stay closed."""

    def __init__(self, node: SimNode) -> None:
        super().__init__(node)
        self._sim = node

    def start(
        self, topics: list[TopicConfig], queues: range | None, wait_s: float | None
    ) -> Started:
        del wait_s
        closed: dict[str, StreamError] = {}
        for topic in topics:
            wanted = range(topic.queues) if queues is None else queues
            closed |= self._sim.open_queues(topic, wanted)
        return Started(closed, (), ())

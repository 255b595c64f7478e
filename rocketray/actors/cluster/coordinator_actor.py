"""The coordinator: the Ray shell of ``ClusterState`` and ``TopicService``.

It starts the shard processes, saves offsets every ``OFFSETS_INTERVAL_S`` and at the stop, and has
old files removed. Ray restarts a coordinator that died; it loads its state, and members join again
with their next heartbeat and report their offsets. So a message is redelivered only if its reader
died, too, between its commit and the next save; nothing is lost.

Its state is on the first disk, or in a register (registered_documents.py). With that, it runs on
another machine while that of the first disk is unavailable (standby.py).

Calls that wait for other actors (``endpoint.waits``) have threads of their own: however many topics
are slow to start, heartbeats are answered at once, and no member's session ends meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import Any, cast

from rocketray.actors.client.actor_names import actor_or_none
from rocketray.actors.client.node_api import NodeApi
from rocketray.base.config import StoreConfig
from rocketray.broker.disks.disk_agent import DiskAgent
from rocketray.broker.disks.disks_api import DisksApi
from rocketray.broker.named_filters.named_filters_api import NamedFiltersApi
from rocketray.broker.shards.shard_api import ScrubState
from rocketray.broker.topics.placement import Placement
from rocketray.broker.topics.topics import TopicsApi
from rocketray.errors import RegisterUnavailableError, ShardUnavailableError, SupersededError
from rocketray.groups.groups_api import GroupsApi, SessionsApi
from rocketray.runtime.calls.endpoint import (
    GATEWAY_NAME,
    SPARE_GATEWAY_NAME,
    ServedObjects,
    on_disk,
)
from rocketray.runtime.clock import steady_clock_ms, system_clock_ms
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.runtime.files.home import Home
from rocketray.runtime.periodic import start_periodic_task
from rocketray.runtime.ray_process.open_ray import OPEN_RAY_PROBLEM
from rocketray.runtime.ray_process.ray_access import asks_for_token
from rocketray.runtime.ray_process.ray_runtime import (
    GetTimeoutError,
    RayActorError,
    ray,
    zone_of_machine,
)
from rocketray.runtime.register.register import open_register

from .actor_log import show_log
from .cluster_state import ClusterState
from .coordinator_settings import CoordinatorSettings
from .disk_service import DiskService
from .gateway_actor import GATEWAY_THREADS, GatewayActor
from .node_disks import NodeDisks
from .node_shards import NodeShards
from .one_node import start_actor
from .queue_moves import QueueMoves
from .registered_documents import RegisteredDocuments, RegisterOfStart, state_directory, take_over
from .staged_watch import StagedWatch
from .stall_watch import LOOK_EVERY_S
from .standby_calls import StandbyCalls
from .topic_service import TopicService

_LOG = logging.getLogger(__name__)
# Heartbeats hold a thread while the groups are written; one write serves all that wait.
COORDINATOR_THREADS = 16
OFFSETS_INTERVAL_S = 5.0  # as RocketMQ's broker persists its offsets
EXPIRE_INTERVAL_S = 10.0  # as RocketMQ's broker cleans its files
BITMAPS_INTERVAL_S = 2.0  # a new group's filter is in no bitmap until then, so its records are read
PROBLEMS_INTERVAL_S = 2.0  # as long as ``rocketray status`` may be behind
DISKS_INTERVAL_S = 2.0  # a disk counts as silent after three (node_disks.py)
MOVES_INTERVAL_S = 10.0  # old files stay for half a minute in any case (queue_moves.py)
# A standby's call in the register has to be answered within 10 s (coordinator_silence.CALL_S).
REGISTER_INTERVAL_S = 2.0
STAGED_INTERVAL_S = 30.0  # a gateway that ended is restarted by Ray; this is for one never started
_SERVES_S = 1.0  # as a standby waits for each answer
_SUPERSEDED_S = 5.0  # meanwhile its node ends it
_GATEWAY_S = 50.0  # less than a call waits for its result
_GATEWAY_LOOK_S = 2.0


class CoordinatorActor(ServedObjects):
    """The only actor that changes a cluster's state."""

    def __init__(
        self,
        home: Home,
        settings: CoordinatorSettings | None = None,
        register: RegisterOfStart | None = None,
    ) -> None:
        """Take the *home* of the disk whose machine it runs on.

        That is the first disk, with its *settings*, or one that joined; then the *register* has
        them.
        """
        super().__init__()
        show_log(home)
        self._place = home
        if settings is not None:
            # It raises for a size that does not exist, before anything is taken over.
            StoreConfig(**cast("Any", settings.shard_sizes))
        self._shared = None if register is None else _taken_over(home, register)
        documents = self._shared or FileDocuments(home.directory())
        if settings is None:
            settings = CoordinatorSettings.load(documents)
            assert settings is not None, "a standby looks before it starts a coordinator"
        elif self._shared is not None:
            settings.save(documents)
        rules, self._home = settings.rules, settings.home
        agent = None if home.is_joined else DiskAgent(home.directory(), zone_of_machine())
        disks = NodeDisks(self._home, agent, documents)
        self._state = ClusterState(
            state_directory(home),
            rules,
            system_clock_ms,
            steady_clock_ms,
            Placement(
                settings.queues_per_process,
                spread=disks.register.spread,
                disks=disks.register.taking,
            ),
            documents=documents,
            end_elsewhere=disks.end_of,
            has_first_disk=not home.is_joined,
        )
        if not asks_for_token():
            self._state.problems.note("Ray", OPEN_RAY_PROBLEM)
        self._shards = NodeShards(self._home, settings, disks, lambda: self._state.topics.catalog)
        self._topics = TopicService(self._state, self._shards)
        moves = QueueMoves(documents, self._state, disks, self._shards, self._topics.locks)
        self._disks = DiskService(disks, self._state, self._topics, rules, moves, place=home)
        disks.look()  # before the shards: those of a disk that does not answer are left closed
        self._disks.note_unavailable()
        self._topics.start_all()
        self._state.begin_to_listen()  # the shards' restart took time
        self._serve_all()
        self._stop = threading.Event()
        start = partial(start_periodic_task, stop=self._stop)
        start("looking at the clock", LOOK_EVERY_S, work=self._state.look_at_clock)
        start("saving offsets and filters", OFFSETS_INTERVAL_S, work=self._state.save)
        start("removing old files", EXPIRE_INTERVAL_S, work=self.expire)
        start("asking for problems", PROBLEMS_INTERVAL_S, work=self._topics.note_problems)
        start("looking at the disks", DISKS_INTERVAL_S, work=self._disks.look)
        start("tidying up after moves of queues", MOVES_INTERVAL_S, work=moves.tidy, at_once=True)
        if not home.is_joined:
            staged = StagedWatch(self._home, self._state.problems, self.open_gateway)
            start("opening the gateway", STAGED_INTERVAL_S, work=staged.open, at_once=True)
            start("looking at staged batches", PROBLEMS_INTERVAL_S, work=staged.look)
        if self._shared is not None:
            me = ray.get_runtime_context().current_actor
            assert register is not None
            calls = StandbyCalls(
                open_register(register.url),
                *(home, self._state.problems, steady_clock_ms, partial(_serves, me)),
            )
            look = partial(self._look_at, self._shared, calls)
            start("looking at the register", REGISTER_INTERVAL_S, work=look)
            threading.Thread(target=_end, args=(self._shared, me), daemon=True).start()
        order = self._topics.order_bitmaps
        start("requesting bitmaps", BITMAPS_INTERVAL_S, work=order, at_once=True)

    def _serve_all(self) -> None:
        self.serve(NodeApi, lambda: self)
        self.serve(SessionsApi, lambda: self._state)
        self.serve(GroupsApi, lambda: self._state.administration)
        self.serve(TopicsApi, lambda: self._topics)
        self.serve(NamedFiltersApi, lambda: self._state.named_filters)
        self.serve(DisksApi, lambda: self._disks)

    def call(
        self, interface: str, key: tuple[Any, ...], method: str, /, *arguments: Any, **options: Any
    ) -> Any:
        """See ``ServedObjects.call``; raises if another coordinator has taken over."""
        if self._shared is not None:
            self._shared.check()
        return super().call(interface, key, method, *arguments, **options)

    def superseded(self) -> str:
        """Return when another coordinator has taken over the register, with the reason to end."""
        assert self._shared is not None
        self._shared.superseded.wait()
        return str(self._shared.end())

    def _look_at(self, documents: RegisteredDocuments, calls: StandbyCalls) -> None:
        try:
            documents.look()
            calls.look()
        except RegisterUnavailableError as error:
            self._state.problems.note("register", str(error))
        except SupersededError:
            return  # the coordinator ends
        else:
            self._state.problems.resolve("register")

    def problems(self) -> list[str]:
        return self._state.problems.lines()

    def unflushed(self) -> dict[str, int | None]:
        return self._shards.unflushed(self._topics.all().values())

    def scrubs(self) -> dict[str, ScrubState | None]:
        return self._shards.scrubs(self._topics.all().values())

    def expire(self) -> None:
        """Have every shard remove files beyond retention that no group needs (store/retention.py).

        A shard that is unavailable does so the next time.
        """
        self._shards.expire(self._state.expiry_orders(), EXPIRE_INTERVAL_S)

    def open_gateway(self, disk: str) -> None:
        """Start the gateway of a disk, and the spare one; return when members elsewhere may join.

        Raises:
            ShardUnavailableError: the disk does not answer.
        """
        end_s = time.monotonic() + _GATEWAY_S
        home, name = self._disks.check(disk), on_disk(GATEWAY_NAME, disk)
        ready = start_actor(GatewayActor, name, GATEWAY_THREADS, home).ready.remote()
        while True:
            try:
                ray.get(ready, timeout=_GATEWAY_LOOK_S)
            except GetTimeoutError as error:  # its machine is busy, or went down a moment ago
                self._disks.check(disk)
                if time.monotonic() > end_s:
                    raise _does_not_start(home) from error
            except RayActorError as error:
                raise _does_not_start(home) from error
            else:
                break
        start_actor(GatewayActor, on_disk(SPARE_GATEWAY_NAME, disk), GATEWAY_THREADS, home)

    def home(self) -> Home:
        """Return the home of the first disk, where every actor that uses its files has to run."""
        return self._home

    def place(self) -> Home:
        """Return the home of the disk on whose machine the coordinator runs."""
        return self._place

    def stop(self) -> None:
        """Save the offsets, then stop the shards of the first disk: all is on disk on return."""
        self._stop.set()
        if self._place.is_joined:  # the first disk is unavailable
            self._state.stop()
            return
        # The spare first, or it would begin to serve when the other ends.
        for name in (SPARE_GATEWAY_NAME, GATEWAY_NAME):
            gateway = actor_or_none(self._home.cluster, name)
            if gateway is not None:  # else no member on another node ever joined
                ray.get(gateway.stop.remote())
        try:
            self._state.stop()
        finally:
            self._shards.stop(self._topics.all().values())


def _taken_over(home: Home, register: RegisterOfStart) -> RegisteredDocuments:
    """Take over a cluster's documents; wait for a register that does not answer.

    Its node asked it a moment ago. An actor whose start fails would not be restarted by Ray.
    """
    while True:
        try:
            return take_over(home, register)
        except RegisterUnavailableError as error:
            _LOG.warning("the coordinator waits: %s", error)
            time.sleep(REGISTER_INTERVAL_S)


def _end(documents: RegisteredDocuments, actor: Any) -> None:
    """End the coordinator for good when another one has taken over; Ray does not restart it."""
    documents.superseded.wait()
    _LOG.error("the coordinator ends: %s", documents.end())
    time.sleep(_SUPERSEDED_S)
    ray.kill(actor)


def _serves(actor: Any) -> bool:
    """Return whether the coordinator has a thread that answers calls, as a standby would find."""
    return bool(ray.wait([actor.place.remote()], timeout=_SERVES_S)[0])


def _does_not_start(home: Home) -> ShardUnavailableError:
    return ShardUnavailableError(
        f"the gateway of disk {home.uuid} on {home.machine}", "it does not start"
    )

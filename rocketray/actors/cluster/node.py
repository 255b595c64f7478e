"""A node: one data directory, one Ray, and the actors over it.

start   lock DATA/node.lock, start or join Ray, then filter actor, coordinator, shards; last of all
        write DATA/node.json, so a process that finds the node finds one that answers
join    where the cluster has its coordinator on another disk: lock, join Ray, filter actor; then
        the coordinator takes the disk into the cluster, and starts its shards there
stop    the same backwards; all acknowledged messages are on disk on return
lost    when its Ray does not answer (ray_watch.py) or its coordinator ended (superseded.py), a
        thread ends its processes and releases the directory. Then every call of this process raises
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from rocketray.actors.client.connection import Connection
from rocketray.actors.client.own_node import lose_node
from rocketray.actors.client.ray_transport import WAITING_GROUP, RayTransport
from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.base.data_directory import data_directory
from rocketray.broker.disks.disks_api import DISKS
from rocketray.broker.disks.joined_cluster import JoinedCluster, note_joined, read_joined
from rocketray.broker.fetching.service_identity import choose_port
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.broker.topics.topics import TOPICS
from rocketray.errors import ConfigError, NodeNotRunningError, StreamError
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME, FILTER_NAME, client_of, on_disk
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.home import Home, settle_identity
from rocketray.runtime.files.node_description import write_description
from rocketray.runtime.files.node_lock import lock_node
from rocketray.runtime.files.paths import node_file, token_file
from rocketray.runtime.files.runtime_lock import RuntimeLock, remove_abandoned, remove_runtime
from rocketray.runtime.machine import this_process
from rocketray.runtime.one_process import OfOneProcess
from rocketray.runtime.process_logs.log_index import drop_lost_logs
from rocketray.runtime.ray_process.ray_access import auth_mode, warn_of_joined_ray
from rocketray.runtime.ray_process.ray_runtime import (
    GetTimeoutError,
    RayActorError,
    RayError,
    RayTaskError,
    has_ray,
    join_ray,
    leave_ray,
    logs_directory,
    namespace_of,
    own_processes,
    raised_there,
    ray,
    ray_node_of,
    start_ray,
    watch_ray,
)
from rocketray.runtime.ray_process.ray_watch import AwayNote, end_processes

from .coordinator_actor import COORDINATOR_THREADS, CoordinatorActor
from .coordinator_settings import CoordinatorSettings
from .filter_actor import FILTER_THREADS, FilterActor
from .gateway_actor import GatewayActor
from .local_service import LocalService, open_service
from .node_options import NodeOptions, settle_rules
from .one_node import (
    coordinator_elsewhere,
    coordinator_id,
    end_actors,
    make_room,
    start_actor,
    stop_actors,
    stop_coordinator,
)
from .registered_documents import (
    RegisterOfStart,
    check_register,
    check_standby,
    has_coordinated,
)
from .shard_process_actor import ShardProcessActor
from .standby import Standby
from .superseded import end_own_actors, has_ended, why_superseded

_LOG = logging.getLogger(__name__)
_WATCH_INTERVAL_S = 0.5  # so a raylet that ended is noticed within half a second
# For a coordinator of the cluster, by a node that need not join; and between two looks at a call.
_LOOK_S = 1.0
_AWAIT_S = 60.0  # machines of a cluster start in any order
_ACTORS = frozenset(
    actor.__name__ for actor in (CoordinatorActor, FilterActor, GatewayActor, ShardProcessActor)
)


class Node(OfOneProcess, what="node", ends=("stop", "_lost")):
    """A running node, owned by this process."""

    def __init__(self, data: Path | str | None = None, options: NodeOptions | None = None) -> None:
        """Start the node; return when it answers.

        Raises:
            ConfigError: *data* is empty, or no path.
            StoreLockedError: another process runs a node on the directory.
        """
        self.data = data_directory(data).resolve()
        self.owner: Home | None = None
        """Where the coordinator ran whose cluster the disk joined; None on the first disk."""
        self._first_data = self.data
        """The data directory of the first disk of the cluster."""
        self._options = options or NodeOptions()
        self._lock = lock_node(self.data, self._options.data_mode)
        self._owns_ray = not has_ray()
        self.has_own_ray = self._owns_ray and self._options.ray_address is None
        """Whether the node started the Ray that it runs on, which ends with it."""
        self._token: Path | None = None
        self._runtime: RuntimeLock | None = None
        self._leaves_actors = False
        """Whether the node has actors that would outlive it, on a Ray that it joined."""
        self._away = AwayNote()
        self._lost: str | None = None
        self._standby: Standby | None = None
        self._service: LocalService | None = None
        self._register: RegisterOfStart | None = None
        self._superseded: Any = None
        """The call that returns when another coordinator has taken over the register."""
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._ending = threading.Lock()
        try:
            self._start()
        except BaseException:
            self._release()
            raise
        threading.Thread(target=self._keep_watch, daemon=True, name="watch").start()

    def _start(self) -> None:
        disk = settle_identity(self.data)
        drop_lost_logs(self.data)
        if self._options.register is None:
            TopicCatalog.load(self.data)  # report its problems before Ray is started
        cluster_id = self._check_register(disk)  # a refusal comes before anything is started
        if self._owns_ray:
            self._token = _start_ray(self.data, self._options, disk)
        if not self.has_own_ray:
            warn_of_joined_ray()
        cluster = self._options.cluster or DEFAULT_CLUSTER
        place = str(self.data), disk, socket.gethostname(), ray_node_of(disk)
        self._home = Home(*place, cluster=cluster, cluster_id=cluster_id)
        self.owner = self._find_owner()
        remove_runtime(self.data)
        self._runtime = RuntimeLock(self.data)
        if self._options.fetch_port is not None:
            choose_port(self.data, self._options.fetch_port)
        for path in remove_abandoned():
            _LOG.info("removed %s, of a node that has ended", path)
        if self.owner is not None:
            self._join(self.owner)
        else:
            self._begin()
        write_description(self.data, self.description())
        # Last, so that a command that finds the socket finds a node that answers.
        self._service = open_service(self.data, self.connection())

    def _check_register(self, disk: str) -> str:
        """Return the id of the cluster that would have its coordinator here, "" on a joined disk.

        Raises:
            ConfigError: the register is not for this directory, or the directory has joined.
            RegisterUnavailableError: it does not answer.
        """
        options = self._options
        if options.joins or read_joined(self.data) is not None:
            options.check_joining()
            if options.register is not None:
                check_standby(options.register, options.cluster or DEFAULT_CLUSTER)
            return ""
        cluster = options.cluster or DEFAULT_CLUSTER
        return check_register(self.data, options.register, cluster, disk)

    def _find_owner(self) -> Home | None:
        """Return the home of the coordinator to join; None if the node has its own.

        Raises:
            ConfigError: the directory belongs to another cluster, or cannot join this one.
            NodeNotRunningError: it belongs to a cluster whose coordinator does not run.
        """
        joined = read_joined(self.data)
        if joined is not None and joined.cluster != self._home.cluster:
            raise ConfigError(
                f"{self.data} is a disk of cluster {joined.cluster!r}; start it with: --cluster "
                f"{joined.cluster} --ray-address HOST:PORT"
            )
        waits = self._options.joins or joined is not None
        if self.has_own_ray or (self._options.cluster is None and joined is None):
            owner = None
        else:
            waited_for = coordinator_id(self._home.cluster)
            owner = coordinator_elsewhere(self._home, _AWAIT_S if waits else _LOOK_S)
            if owner is None and joined is not None and self._options.register is not None:
                standby = self._standby_of(joined)
                standby.start_coordinator(waited_for)  # the first disk may never come back
                owner = coordinator_elsewhere(self._home, _AWAIT_S)
        if owner is not None and owner.is_joined and has_coordinated(self.data):
            owner = None  # a standby has the coordinator until this first disk is back
        if joined is not None and owner is None:
            raise NodeNotRunningError(
                f"{self.data} is a disk of cluster {joined.cluster!r}, whose coordinator does not "
                f"run: start the node of its first disk first, on the same Ray "
                "(--ray-address)"
            )
        if self._options.joins and owner is None:
            raise NodeNotRunningError(
                f"{self.data} is to join cluster {self._home.cluster!r}, which does not run on the "
                f"Ray at {self._options.ray_address}, or whose coordinator is on this directory: "
                "start its first node, without --join"
            )
        if owner is not None:
            self._options.check_joining()
            note_joined(self._home, owner)
        return owner

    def _join(self, owner: Home) -> None:
        """Have the coordinator, at *owner*, take this disk into its cluster."""
        self._home = replace(self._home, is_joined=True)
        disks = client_of(RayTransport(Path(owner.data), self._home.cluster), DISKS)
        make_room(self._home)
        name = on_disk(FILTER_NAME, self._home.disk)
        arguments = self._home, disks.rules()
        self._filter = start_actor(
            FilterActor, name, FILTER_THREADS, *arguments, is_alone=True, groups=WAITING_GROUP
        )
        self._leaves_actors = True
        ray.get(self._filter.home.remote())
        self._watch = watch_ray(ray.get(self._filter.pid.remote()), is_own=False)
        disks.join(self._home, TopicCatalog.load(self.data))
        self._first_data = Path(disks.homes()[""].data)
        if self._options.register is not None:
            joined = read_joined(self.data)
            assert joined is not None
            self._standby = self._standby_of(joined)
            self._standby.start()

    def _standby_of(self, joined: JoinedCluster) -> Standby:
        assert self._options.register is not None
        place = replace(self._home, is_joined=True, cluster_id=joined.id)
        return Standby(place, self._options.register)

    def _begin(self) -> None:
        """Start the actors of a cluster whose coordinator is on this disk."""
        rules, register = settle_rules(self.data, self._options), self._options.register
        if register is not None:
            self._register = RegisterOfStart(register, uuid.uuid4().hex)
        if not self.has_own_ray:  # else no earlier node can have left actors on it
            make_room(self._home, takes_over=register is not None)
        # The first of the actors: by its name, a node knows whose the others are (superseded.py).
        self._filter = start_actor(
            *(FilterActor, FILTER_NAME, FILTER_THREADS, self._home, rules),
            is_alone=True,
            groups=WAITING_GROUP,
        )
        self._leaves_actors = not self.has_own_ray
        if register is not None:
            stop_coordinator(self._home.cluster)  # a standby's
        self._coordinator = start_actor(
            CoordinatorActor,
            COORDINATOR_NAME,
            COORDINATOR_THREADS,
            self._home,
            CoordinatorSettings(
                self._home,
                rules,
                dict(self._options.shard_sizes),
                self._options.queues_per_process,
                self._options.scrub_rate,
            ),
            self._register,
            is_alone=True,
            groups=WAITING_GROUP,
        )
        # Both have started when they answer; an error of their start is raised here.
        ray.get([actor.home.remote() for actor in (self._filter, self._coordinator)])
        self._watch = watch_ray(ray.get(self._coordinator.pid.remote()), is_own=self.has_own_ray)
        if (ack := self._options.ack) is not None:
            client_of(RayTransport(self.data, self._home.cluster), TOPICS).set_node_ack(ack)
        if register is not None:
            [group] = WAITING_GROUP
            wait = self._coordinator.superseded.options(concurrency_group=group)
            self._superseded = wait.remote()

    def description(self) -> dict[str, Any]:
        """Return the content of node.json."""
        return {
            "address": ray.get_runtime_context().gcs_address,
            "raylet": self._watch.raylet,
            "cluster": self._home.cluster,
            "coordinatorData": str(self._first_data),
            "namespace": namespace_of(self._home.cluster),
            "authMode": auth_mode(),
            "tokenPath": None if self._token is None else str(self._token),
            "nodeId": ray.get_runtime_context().get_node_id(),
            **this_process(),
            "data": str(self.data),
            "startedMs": system_clock_ms(),
            "logs": logs_directory(),
        }

    def note(self) -> str:
        """Return what the operator should know about the Ray that the node joined, or ""."""
        if not self._home.ray_node:
            return ""
        return (
            f"the actors depend on the raylet that runs on {self._home.machine} now: when it ends, "
            "for example by ray stop, they and the node end with it; then start the node again"
        )

    def lost(self) -> str | None:
        """Return why the node has ended by itself, and what to do; None while it runs."""
        return self._lost

    def _keep_watch(self) -> None:
        while not self._stopped.wait(_WATCH_INTERVAL_S):
            with self._ending:
                if self._stopped.is_set() or self._end_if_lost():
                    return

    def _end_if_lost(self) -> bool:
        """End the node if its Ray or its coordinator is lost; return whether it has ended."""
        if self._lost is None:
            if (what := self._watch.lost()) is not None:
                self._give_up(what)
                return True
            self._away.look(self._watch)
            if self._register is not None and has_ended(self._superseded):
                self._end_superseded(self._register)
        return self._lost is not None

    def _give_up(self, what: str) -> None:
        """Leave a Ray that is lost.

        The processes of the node's own Ray are ended, those of a joined Ray are left alone. The
        directory is released for the next node.
        """
        node_file(self.data).unlink(missing_ok=True)
        said = f"the node on {self.data} ends: Ray is lost, {what}"
        workers = self._watch.workers()
        if self.has_own_ray:
            left = end_processes([*own_processes(), *(worker.pid for worker in workers)])
            end = f"start it again with: rocketray start --data {self.data}"
            if left:
                end = f"processes {', '.join(map(str, left))} of its Ray do not end; {end}"
        else:
            ours = [f"{each.title} {each.pid}" for each in workers if each.title in _ACTORS]
            end = "start it again when its Ray runs again"
            if ours:
                end = f"its actors {', '.join(ours)} still run there; {end}, and they have ended"
        self._let_go_of_memory()
        self._let_go_of_directory()
        self._lost = f"{said}; {end}"
        lose_node(self._first_data, NodeNotRunningError(self._lost))
        if self._owns_ray:
            leave_ray(is_lost=True)

    def _end_superseded(self, register: RegisterOfStart) -> None:
        """End, as the coordinator is lost, and perhaps runs elsewhere now."""
        node_file(self.data).unlink(missing_ok=True)
        said = f"the node on {self.data} ends: its coordinator has ended"
        lose_node(self._first_data, NodeNotRunningError(said))
        try:
            with ExitStack() as stack:
                stack.callback(self._release)
                if self._leaves_actors:
                    self._leaves_actors = False  # or the release would end them by their names
                    end_own_actors(self._home.cluster, self._coordinator, self._filter)
            said = why_superseded(self._home, register, self._stopping)
        except (RayError, StreamError) as error:
            said = f"{said}, and {error}"
        finally:
            lose_node(self._first_data, NodeNotRunningError(said))
            self._lost = said

    def connection(self) -> Connection:
        """Return a connection of this process to the node.

        Raises:
            NodeNotRunningError: its Ray is lost.
        """
        self._check_ray()
        return Connection(RayTransport(self._first_data, self._home.cluster))

    def stop(self) -> None:
        """Stop all actors; all their data is on disk on return.

        Raises:
            NodeNotRunningError: its Ray is lost, or another coordinator has its cluster.
        """
        self._check_ray()
        self._stopping.set()
        node_file(self.data).unlink(missing_ok=True)
        try:
            if self._home.is_joined:
                if self._standby is not None:
                    self._standby.stop()
                stop_actors(self._home)
            else:
                for actor in (self._coordinator, self._filter):
                    self._get(actor.stop.remote())
        except RayActorError:  # the coordinator may have been ended by one that took over
            with self._ending:
                self._end_if_lost()
            self._check_ray()
            raise
        finally:
            with self._ending:
                self._stopped.set()
                if self._lost is None:
                    self._release()

    def _get(self, reference: Any) -> Any:
        """Return an actor's result, as long as the Ray that brings it lives."""
        while True:
            self._check_ray()
            try:
                return ray.get(reference, timeout=_LOOK_S)
            except GetTimeoutError:
                continue
            except RayTaskError as error:
                raise raised_there(error, self.data) from None

    def _check_ray(self) -> None:
        if self._lost is not None:
            raise NodeNotRunningError(self._lost)

    def _release(self) -> None:
        self._let_go_of_memory()
        try:
            if self._leaves_actors:
                end_actors(self._home.cluster, self._home.disk)
        finally:
            if self._owns_ray and ray.is_initialized():
                leave_ray()
            self._let_go_of_directory()

    def _let_go_of_memory(self) -> None:
        if self._service is not None:
            self._service.close()
        if self._standby is not None:
            self._standby.close()
        if self._runtime is not None:
            self._runtime.close()
        remove_runtime(self.data)

    def _let_go_of_directory(self) -> None:
        token_file(self.data).unlink(missing_ok=True)
        os.close(self._lock)

    def __enter__(self) -> Self:
        """Return the node itself; it is stopped at the end of the block."""
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Stop it; if it is lost, the block's own error, if any, is raised instead."""
        if error is None or self._lost is None:
            self.stop()


def _start_ray(data: Path, options: NodeOptions, disk: str) -> Path | None:
    """Start the node's own Ray and return its token file, or join another Ray and return None."""
    if options.ray_address is None:
        return start_ray(options.num_cpus, token_file(data), disk)
    advice = (
        "; start it first (ray start --head), or let the node start a Ray of its own: leave "
        "--ray-address out and unset RAY_ADDRESS"
    )
    join_ray(options.ray_address, advice=advice)
    return None

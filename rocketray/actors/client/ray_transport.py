"""The transport of calls over Ray: from this process to the actors of one node.

A call whose actor is unavailable raises :class:`ShardUnavailableError`; Ray restarts the actors.
Errors of ours are raised here as they were raised there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate

from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.base.names import disk_words
from rocketray.broker.disks.disks_api import DISKS, DiskReport, DisksApi
from rocketray.errors import ShardUnavailableError
from rocketray.runtime.calls.endpoint import (
    CALL_TIMEOUT_S,
    COORDINATOR_NAME,
    GATEWAY_NAME,
    Arguments,
    Endpoint,
    InterfaceT,
    ResultT,
    client_of,
    disk_in,
    does_wait,
    is_once,
    method_of,
    on_disk,
    run_in_thread,
)
from rocketray.runtime.files.node_description import read_description
from rocketray.runtime.machine import whereabouts
from rocketray.runtime.ray_process.ray_runtime import (
    GetTimeoutError,
    RayError,
    RayTaskError,
    is_here,
    raised_there,
    ray,
    ray_session,
)

from .actor_names import actor_or_none, find_actor
from .client_ray import CLIENT_RAY
from .node_api import NODE
from .own_node import ToldTransport

WAITING_GROUP = {"waiting": 16}
"""Ray's concurrency group for calls that wait for other actors: its name and threads.

With all 16 waiting, further ones queue; heartbeats and other quick calls have other threads.
"""
# A call that waits looks so often whether its Ray, its node's process and its disk still live, and
# raises if one does not: Ray alone may keep it for half a minute, or for ever.
_LOOK_S = 1.0
# Without a GCS, actors that live still answer, but none is started. A call that takes longer than
# this counts as one to an actor that Ray would have to start.
_WITHOUT_GCS_S = 5.0


class RayTransport(ToldTransport):
    """Calls to the actors of the node on one data directory; safe to use from several threads."""

    def __init__(
        self, data: Path, cluster: str = DEFAULT_CLUSTER, node: Mapping[str, Any] | None = None
    ) -> None:
        """Find the coordinator on the Ray that is joined; *node* is the content of node.json."""
        super().__init__(data)
        self.cluster = cluster
        self.node = node
        """The content of node.json, or None if the node was found by the name of its cluster."""
        self._known: tuple[str, set[str]] = "", set()  # a session with Ray, and actors' names
        self._are_local: dict[str, Mapping[str, bool]] = {}  # by session with Ray, and by disk
        find_actor(cluster, COORDINATOR_NAME)

    def close(self) -> None:
        """Do nothing: Ray stays joined, for other clients."""

    def call(self, endpoint: Endpoint[Any], method: str, *arguments: Any, **options: Any) -> Any:
        declared = method_of(endpoint.interface, method)
        return self._result(self._begin(endpoint, declared, *arguments, **options), endpoint)

    def call_each(
        self,
        endpoints: Sequence[Endpoint[InterfaceT]],
        method: Callable[Concatenate[InterfaceT, Arguments], ResultT],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> list[ResultT]:
        begun = [self._begin(each, method, *arguments, **options) for each in endpoints]
        return [self._result(*each) for each in zip(begun, endpoints, strict=True)]

    def is_local(self, disk: str) -> bool:
        """Return whether this process is on the Ray node that a disk's actors are bound to."""
        self._check()
        session = ray_session()  # a process stays on its Ray node
        if disk not in self._are_local.get(session, ()):
            homes = client_of(self, DISKS).homes()
            self._are_local = {session: {name: is_here(home) for name, home in homes.items()}}
        return self._are_local[session].get(disk, False)

    def in_background(self, run: Callable[[], None], /) -> None:
        run_in_thread(run)

    def has_files(self, disk: str) -> bool:
        """Return whether this process is on a disk's machine, where its files can be read."""
        return self.is_local(disk)

    def _begin(
        self, endpoint: Endpoint[Any], method: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        self._check()
        name = endpoint.actor
        known = self._known_actors()
        if name not in known:  # Ray asks the GCS for it
            _check_gcs(name)
        self._open_gateway(name)
        actor = find_actor(self.cluster, name)
        known.add(name)
        return _begin(actor, endpoint, method, *arguments, **options)

    def _known_actors(self) -> set[str]:
        """Return the names of the actors that this process found in this session with Ray."""
        session = ray_session()
        if self._known[0] != session:
            self._known = session, set()
        return self._known[1]

    def _open_gateway(self, name: str) -> None:
        """Have the gateway of that name started, if it is one and does not run."""
        disk = disk_in(name)
        if name == on_disk(GATEWAY_NAME, disk) and actor_or_none(self.cluster, name) is None:
            client_of(self, NODE).open_gateway(disk)

    def _check(self) -> None:
        """Raise the error of every call while there is no Ray."""
        self.check_left()
        CLIENT_RAY.check()

    def _result(self, reference: Any, endpoint: Endpoint[Any]) -> Any:
        try:
            return self._answer(reference, endpoint)
        except RayTaskError as error:
            raise raised_there(error, self.coordinator_data) from None
        except RayError as error:  # an actor or its result is unavailable, or it times out
            raise ShardUnavailableError(f"actor {endpoint.actor}", str(error)) from error

    def _answer(self, reference: Any, endpoint: Endpoint[Any]) -> Any:
        """Wait for a result while the node's process lives: without it Ray may never answer.

        Ray learns after half a minute that a machine is gone, the coordinator after some seconds.
        """
        begin_s = time.monotonic()
        end = begin_s + CALL_TIMEOUT_S
        disk = disk_in(endpoint.actor)
        is_on_disk = endpoint.actor != COORDINATOR_NAME
        while True:
            self._check()
            try:
                return ray.get(reference, timeout=min(_LOOK_S, max(0, end - time.monotonic())))
            except GetTimeoutError:
                if self.node and whereabouts(self.node) != "here":
                    directory = Path(str(self.node["data"]))
                    self.node = read_description(directory) or self.node  # of its next start
                    raise ShardUnavailableError(
                        f"the node on {directory}",
                        "it has ended, and did not answer before; if it is not started again by "
                        f"itself, start it with: rocketray start --data {directory}",
                    ) from None
                if time.monotonic() >= end:
                    raise
                if time.monotonic() - begin_s > _WITHOUT_GCS_S:
                    _check_gcs(endpoint.actor)
                if is_on_disk and self._is_away(disk):
                    reason = "its machine does not answer"
                    raise ShardUnavailableError(disk_words(disk), reason) from None

    def _is_away(self, disk: str) -> bool:
        """Return whether the coordinator says that a disk does not answer."""
        try:
            call = begin(self.cluster, DISKS, DisksApi.reports)
            reports: Mapping[str, DiskReport] = ray.get(call, timeout=_LOOK_S)
        except (RayError, ShardUnavailableError):
            return False  # that is not known
        return disk not in reports


def _check_gcs(name: str) -> None:
    """Raise :class:`ShardUnavailableError` for an actor that Ray cannot find or start now."""
    if (said := CLIENT_RAY.gcs_away()) is not None:
        raise ShardUnavailableError(f"actor {name}", said)


def begin(
    cluster: str,
    endpoint: Endpoint[InterfaceT],
    method: Callable[Concatenate[InterfaceT, Arguments], object],
    *arguments: Arguments.args,
    **options: Arguments.kwargs,
) -> Any:
    """Begin a call, and return Ray's reference of its result, for callers with their own waits.

    Raises:
        ShardUnavailableError: there is no such actor.
    """
    return _begin(find_actor(cluster, endpoint.actor), endpoint, method, *arguments, **options)


def _begin(
    actor: Any, endpoint: Endpoint[Any], method: Callable[..., Any], *given: Any, **options: Any
) -> Any:
    entry = actor.call_once if is_once(method) else actor.call
    if does_wait(method):
        [group] = WAITING_GROUP
        entry = entry.options(concurrency_group=group)
    name = endpoint.interface.__name__
    return entry.remote(name, endpoint.key, method.__name__, *given, **options)

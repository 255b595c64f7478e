"""The actors of hosts: found by name, asked for their status, drained and ended.

Ray must be connected. Faust is not loaded: the node's process does this for commands.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from rocketray.queries.spark.sink_runner import STOP_MAX_S
from rocketray.runtime.ray_process.ray_runtime import (
    GetTimeoutError,
    RayActorError,
    namespace_of,
)

from .host_failure import HostFailure
from .host_status import (
    APP_PREFIX,
    SINKS,
    STATUS_TIMEOUT_S,
    Host,
    HostNumber,
    HostState,
    HostStatus,
    actor_name,
    full_name,
)
from .stored_failures import forget_failure, last_failure, why_no_answer

STOP_TIMEOUT_S = 60.0
"""How long a host of agents may take to stop.

They are drained in some 15 s, unless shards are unavailable (topology/faust/fetcher.py).
"""
_GONE_TIMEOUT_S = 10.0  # until Ray has removed a killed actor, whose name is taken until then
_LOOK_AGAIN_S = 0.1  # each look asks Ray once for each host that is left
ALIVE, _DEAD = "ALIVE", "DEAD"  # of Ray's states of an actor
_UNDRAINED = (
    "was ended before it was drained, so messages that it had finished may be redelivered",
    "were ended before they had stopped, so a micro-batch may be repeated",
)
ONCE: Mapping[str, Any] = {"max_task_retries": 0}
"""The options of a call that is not repeated after its process has ended."""


def find_hosts(cluster: str, app: str | None = None) -> list[Host]:
    """Return all hosts of a cluster, or those of one app, by app and number."""
    handles: dict[tuple[str, HostNumber], Any] = {}
    namespace = namespace_of(cluster)
    for entry in ray.util.list_named_actors(all_namespaces=True):
        found, _, number = entry["name"].removeprefix(APP_PREFIX).rpartition(":")
        is_host = entry["namespace"] == namespace and entry["name"].startswith(APP_PREFIX)
        handle = host_actor(cluster, entry["name"]) if is_host and app in (None, found) else None
        if handle is not None:
            handles[found, SINKS if number == SINKS else int(number)] = handle
    facts = {key: _facts(handles[key]) for key in sorted(handles, key=_order)}
    asked = {key: handles[key].status.remote() for key, (fact, _) in facts.items() if fact == ALIVE}
    if asked:  # Ray refuses to wait for nothing
        # All are asked at once, so silent hosts cost this time together, and not one after another.
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=STATUS_TIMEOUT_S)
    hosts = []
    for key, (fact, restarts) in facts.items():
        if fact != _DEAD:
            status = _answer(asked[key]) if key in asked else None
            last_error = last_failure(full_name(cluster, actor_name(*key)))
            hosts.append(Host(*key, _state(fact, status), restarts, status, last_error, cluster))
    return hosts


def take_down(hosts: Sequence[Host], most_s: float = math.inf) -> list[str]:
    """Drain *hosts*, then end them; return a sentence for each not drained, or still there.

    They may take as long as their stops take at worst, and *most_s* at most. One whose process has
    ended has nothing to drain.
    """
    found = [
        (host, handle)
        for host in hosts
        if (handle := host_actor(host.cluster, host.name)) is not None
    ]
    for _, handle in (each for each in found if not _has_process(each[0])):
        ray.kill(handle)
    drained = [each for each in found if _has_process(each[0])]
    timeout_s = max((_stop_max_s(host) for host, _ in drained), default=0.0)
    reasons = end_hosts([handle for _, handle in drained], min(timeout_s, most_s))
    said = [
        f"{host.label} {_UNDRAINED[host.number == SINKS]}: {reason}"
        for (host, _), reason in zip(drained, reasons, strict=True)
        if reason
    ]
    said.extend(
        f"{host.label}: its process has not ended; try again"
        for host in _still_there([host for host, _ in found])
    )
    for host in hosts:
        forget_failure(host.full_name)
    return said


def end_hosts(handles: Sequence[Any], timeout_s: float = STOP_TIMEOUT_S) -> list[str]:
    """Drain and end actors; return, for each in order, why it was not drained, or an empty text."""
    calls = [handle.stop.options(**ONCE).remote() for handle in handles]
    if calls:  # Ray refuses to wait for nothing
        ray.wait(calls, num_returns=len(calls), timeout=timeout_s)
    reasons = [why_not(call, timeout_s) for call in calls]
    for handle in handles:
        ray.kill(handle)
    return reasons


def why_not(call: Any, timeout_s: float = 0) -> str:
    """Return why *call* did not complete; empty if it did."""
    try:
        # The call has ended, or its time is over: there is nothing to wait for.
        failure: HostFailure | None = ray.get(call, timeout=0)
    except ray.exceptions.GetTimeoutError:
        return f"it had not finished after {timeout_s:g} s"
    except ray.exceptions.RayError as error:
        return why_no_answer(error)
    if failure is None:
        return ""
    return str(failure) if failure.is_here else f"on {failure.machine}, {failure}"


def host_actor(cluster: str, name: str) -> Any:
    """Return the host with that name in a cluster; None if there is none."""
    try:
        return ray.get_actor(name, namespace=namespace_of(cluster))
    except ValueError:
        return None  # it is gone already


def _has_process(host: Host) -> bool:
    """Return whether the host may have a process to drain."""
    return host.status is not None or host.state != "restarting"


def _stop_max_s(host: Host) -> float:
    """Return how long the stop of a host takes at worst: its sinks are stopped one by one."""
    if host.number != SINKS:
        return STOP_TIMEOUT_S
    return STOP_MAX_S * max(1, len(host.status.sinks if host.status is not None else ()))


def _still_there(hosts: Sequence[Host]) -> list[Host]:
    """Return those killed *hosts* that Ray has not removed after some time."""
    end = time.monotonic() + _GONE_TIMEOUT_S
    left = list(hosts)
    while left and time.monotonic() < end:
        left = [host for host in left if host_actor(host.cluster, host.name) is not None]
        time.sleep(_LOOK_AGAIN_S if left else 0)
    return left


def _facts(handle: Any) -> tuple[str, int]:
    """Return an actor's state and restarts; without its dashboard Ray has no other way."""
    fact = ray._private.state.actors(handle._actor_id.hex())  # noqa: SLF001  # as above
    return (fact["State"], fact["NumRestarts"]) if fact else (_DEAD, 0)


def _answer(reference: Any) -> HostStatus | None:
    try:
        status: HostStatus = ray.get(reference, timeout=0)
    except (RayActorError, GetTimeoutError):
        return None
    return status


def _state(fact: str, status: HostStatus | None) -> HostState:
    if status is not None:
        if status.has_failed:
            return "restarting"
        return "running" if status.is_running else "starting"
    if fact == "RESTARTING":
        return "restarting"
    return "silent" if fact == ALIVE else "starting"


def _order(key: tuple[str, HostNumber]) -> tuple[str, bool, HostNumber]:
    """Sort the hosts of an app by their numbers, and that of its sinks behind them."""
    return key[0], key[1] == SINKS, key[1]

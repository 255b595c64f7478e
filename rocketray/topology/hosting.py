"""Apps that are up: their hosts found by name, from whichever process asks.

A host is a named Ray actor, ``app:ID:NUMBER``, and its name is all that is recorded: Ray knows
which are there, on the node and after a restart. Ray must be connected.

Invariants
  1. An app that is up has the numbers that it has once: a name has one actor.
  2. A host that is taken down has drained: what its handlers finished is committed, so no other
     instance gets it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import ray

from rocketray.actors.ray_runtime import NAMESPACE, GetTimeoutError, RayActorError
from rocketray.errors import ConfigError

from .deploy import HOST_OPTIONS, ConsumerHost, HostStatus, await_start, load_app

__all__ = ["Deployed", "Host", "HostState", "bring_up", "find_hosts", "scale", "take_down"]

_PREFIX = "app:"
_STATUS_TIMEOUT_S = 5.0
_STOP_TIMEOUT_S = 60.0
HostState = Literal["running", "starting", "restarting", "silent"]


@dataclass(frozen=True, slots=True)
class Host:
    """One instance of an app; ``status`` is its own word, where it answers.

    A host that does not answer in time is ``silent``; one whose process ended is ``restarting``
    until Ray has started another.
    """

    app: str
    number: int
    state: HostState
    restarts: int
    status: HostStatus | None

    @property
    def name(self) -> str:
        """The name of its actor."""
        return _name(self.app, self.number)


class Deployed(NamedTuple):
    """An app's id, and its hosts: those that are not detached end when nobody refers to them."""

    app: str
    handles: list[Any]


def find_hosts(app: str | None = None) -> list[Host]:
    """All hosts, or those of one app, by app and number."""
    handles = {}
    for entry in ray.util.list_named_actors(all_namespaces=True):
        found, _, number = entry["name"].removeprefix(_PREFIX).rpartition(":")
        is_host = entry["namespace"] == NAMESPACE and entry["name"].startswith(_PREFIX)
        if is_host and app in (None, found):
            handles[found, int(number)] = ray.get_actor(entry["name"], namespace=NAMESPACE)
    facts = _facts(handle._actor_id.hex() for handle in handles.values())  # noqa: SLF001  # Ray has no other
    asked = {key: handle.status.remote() for key, handle in handles.items()}
    _wait(list(asked.values()), _STATUS_TIMEOUT_S)
    return [
        _host(*key, *facts[handles[key]._actor_id.hex()], _answer(asked[key]))  # noqa: SLF001  # the same
        for key in sorted(handles)
    ]


def bring_up(
    path: str, *, data: Path, directory: Path, consumers: int = 1, detached: bool = True
) -> Deployed:
    """Start *consumers* hosts of the app at *path*, imported from *directory*.

    Hosts that are *detached* go on when this process ends. Blocks until every app has started.

    Raises:
        ConfigError: there is no such app, or it is up already.
        ActorError: it did not start.
    """
    app = str(load_app(path).conf.id)
    up = find_hosts(app)
    if up:
        raise ConfigError(
            f"app {app!r} is up with {_count(up)}; change their number with: "
            f"rocketray scale {app} {consumers}"
        )
    places = str(data), str(directory)
    return Deployed(app, _start(app, path, places, range(consumers), detached=detached))


def take_down(hosts: Sequence[Host]) -> None:
    """Drain *hosts*, then end them; one that does not answer is ended as it is."""
    handles = [handle for handle in map(_handle, hosts) if handle is not None]
    _wait([handle.stop.remote() for handle in handles], _STOP_TIMEOUT_S)
    for handle in handles:
        ray.kill(handle)


def scale(app: str, consumers: int) -> None:
    """Let *app*, which is up, have so many hosts; the newest ones go first.

    Raises:
        ConfigError: none of its hosts says what to start.
        ActorError: a new host did not start.
    """
    hosts = find_hosts(app)
    known = next((host.status for host in hosts if host.status is not None), None)
    if known is None:
        raise ConfigError(
            f"none of the {len(hosts)} hosts of app {app!r} says what to start; see: "
            f"rocketray status {app}"
        )
    numbers = sorted(set(range(len(hosts) + consumers)) - {host.number for host in hosts})
    missing = numbers[: max(0, consumers - len(hosts))]
    _start(app, known.path, (known.data, known.directory), missing, detached=True)
    take_down(hosts[consumers:])


def _start(
    app: str,
    path: str,
    places: tuple[str | None, str | None],
    numbers: Iterable[int],
    *,
    detached: bool,
) -> list[Any]:
    options = {**HOST_OPTIONS, "namespace": NAMESPACE}
    if detached:
        options["lifetime"] = "detached"
    actor = ray.remote(ConsumerHost)
    try:
        handles = [
            actor.options(name=_name(app, number), **options).remote(path, *places)
            for number in numbers
        ]
    except ValueError as error:  # the name is taken
        raise ConfigError(
            f"app {app!r} is being started by somebody else: {error}; see: rocketray status {app}"
        ) from error
    await_start(path, handles)
    return handles


def _handle(host: Host) -> Any:
    try:
        return ray.get_actor(host.name, namespace=NAMESPACE)
    except ValueError:
        return None  # it is gone already


def _wait(references: Sequence[Any], timeout_s: float) -> None:
    """Until all are answered, well or not, or the time is over."""
    if references:  # Ray refuses to wait for nothing
        ray.wait(list(references), num_returns=len(references), timeout=timeout_s)


def _facts(actor_ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    """State and restarts of actors, as Ray has them.

    Ray says them nowhere else without its dashboard; test_apps.py sees them change on a real node.
    """
    found = {one: ray._private.state.actors(one) for one in actor_ids}  # noqa: SLF001  # as above
    return {one: (fact["State"], fact["NumRestarts"]) for one, fact in found.items()}


def _answer(reference: Any) -> HostStatus | None:
    try:
        status: HostStatus = ray.get(reference, timeout=0)
    except (RayActorError, GetTimeoutError):
        return None
    return status


def _host(app: str, number: int, fact: str, restarts: int, status: HostStatus | None) -> Host:
    state: HostState = "silent"
    if status is not None:
        state = "running" if status.is_running else "starting"
    elif fact == "RESTARTING":
        state = "restarting"
    elif fact != "ALIVE":
        state = "starting"
    return Host(app, number, state, restarts, status)


def _name(app: str, number: int) -> str:
    return f"{_PREFIX}{app}:{number}"


def _count(hosts: Sequence[Host]) -> str:
    return "1 host" if len(hosts) == 1 else f"{len(hosts)} hosts"

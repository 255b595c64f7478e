"""Running apps: their hosts found by name, from any process.

A host is a named Ray actor, ``app:ID:NUMBER``; that of the app's sinks is ``app:ID:sinks``. Ray
knows which exist, on the node and after a restart; the last failure of each is stored separately
(host_failure.py). Ray must be connected.

Invariants
  1. Each number of a running app exists once: a name has one actor. So a sink runs once.
  2. A host that is taken down has drained: what its handlers finished is committed, so it is not
     redelivered to another instance. A host that cannot drain is ended all the same, and reported.
  3. A failed start leaves nothing: if one host fails, all are ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import ray

from rocketray.actors.client.actor_names import APP_PREFIX
from rocketray.actors.ray_process.ray_runtime import (
    GetTimeoutError,
    RayActorError,
    namespace_of,
)
from rocketray.cluster import DEFAULT_CLUSTER
from rocketray.errors import ActorError, ConfigError
from rocketray.topology.app.sink_spec import SinkSpec
from rocketray.topology.app.spark_need import needing_spark
from rocketray.topology.app.spark_options import SparkOptions

from .app_path import load_app
from .code_archive import CodeArchive
from .code_upload import renew, upload
from .host import ConsumerHost, HostStatus
from .host_failure import HostFailure, forget_failure, last_failure, why_no_answer
from .host_plan import HostPlan, least_busy, nodes_with

__all__ = [
    "SINKS",
    "Host",
    "bring_up",
    "check_checkpoints",
    "end_hosts",
    "find_hosts",
    "renew_code",
    "scale",
    "start_hosts",
    "take_down",
]

SINKS: Literal["sinks"] = "sinks"
"""The number of the host of an app's sinks."""
HostNumber = int | Literal["sinks"]
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
_FAILED_STOP_TIMEOUT_S = 10.0
_START_LOOK_S = 0.5
_STATUS_TIMEOUT_S = 5.0
_GONE_TIMEOUT_S = 10.0
_LOOK_AGAIN_S = 0.1
_ALIVE, _DEAD = "ALIVE", "DEAD"  # of Ray's states of an actor
_UNDRAINED = (
    "was ended before it was drained, so messages that it had finished may be redelivered",
    "were ended before they had stopped, so a micro-batch may be repeated",
)
_ONCE: Mapping[str, Any] = {"max_task_retries": 0}  # an ended process is not called again
HostState = Literal["running", "starting", "restarting", "silent"]


@dataclass(frozen=True, slots=True)
class Host:
    """One instance of an app; ``status`` is its own report, if it answers.

    A host that does not answer in time is ``silent``; one that failed is ``restarting`` until the
    app starts again in a new process. ``last_error`` is its last fatal failure, if it was reported;
    ``cluster`` is the node's. The host of the app's sinks has the number ``SINKS``.
    """

    app: str
    number: HostNumber
    state: HostState
    restarts: int
    status: HostStatus | None
    last_error: HostFailure | None = None
    cluster: str = DEFAULT_CLUSTER

    @property
    def name(self) -> str:
        """The name of its actor."""
        return _name(self.app, self.number)

    @property
    def label(self) -> str:
        """What it is called in sentences."""
        which = "the sinks" if self.number == SINKS else f"host {self.number}"
        return f"{which} of app {self.app!r}"

    @property
    def full_name(self) -> str:
        """Its name and its cluster's, for what is stored at Ray's head."""
        return _full_name(self.cluster, self.name)


def find_hosts(cluster: str, app: str | None = None) -> list[Host]:
    """Return all hosts of a cluster, or those of one app, by app and number."""
    handles: dict[tuple[str, HostNumber], Any] = {}
    namespace = namespace_of(cluster)
    for entry in ray.util.list_named_actors(all_namespaces=True):
        found, _, number = entry["name"].removeprefix(APP_PREFIX).rpartition(":")
        is_host = entry["namespace"] == namespace and entry["name"].startswith(APP_PREFIX)
        handle = _handle(cluster, entry["name"]) if is_host and app in (None, found) else None
        if handle is not None:
            handles[found, SINKS if number == SINKS else int(number)] = handle
    facts = {key: _facts(handles[key]) for key in sorted(handles, key=_order)}
    asked = {
        key: handles[key].status.remote() for key, (fact, _) in facts.items() if fact == _ALIVE
    }
    if asked:  # Ray refuses to wait for nothing
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=_STATUS_TIMEOUT_S)
    hosts = []
    for key, (fact, restarts) in facts.items():
        if fact != _DEAD:
            status = _answer(asked[key]) if key in asked else None
            last_error = last_failure(_full_name(cluster, _name(*key)))
            hosts.append(Host(*key, _state(fact, status), restarts, status, last_error, cluster))
    return hosts


def bring_up(
    plan: HostPlan,
    consumers: int = 1,
    *,
    code: CodeArchive | None = None,
    detached: bool = True,
    with_sinks: bool = True,
    is_given_up: Callable[[], bool] = lambda: False,
) -> tuple[str, list[Any]]:
    """Start *consumers* hosts of the app of *plan*, which is uploaded as *code* if there is any.

    If the app has sinks, one more host runs them, unless *with_sinks* is False. Returns the app's
    id and the hosts. Those that are not *detached* end with this process, or with the last
    reference to them, and need :func:`renew_code`. Blocks until every app has started, or until
    *is_given_up* returns True.

    Raises:
        ConfigError: there is no such app, it is up already, or no machine has the plan's labels;
            or it has sinks that cannot run there.
        ActorError: it did not start; nothing of it is up then.
    """
    declared = load_app(plan.path)
    app = str(declared.conf.id)
    spark = declared.spark if with_sinks and declared.sinks else None
    up = find_hosts(plan.cluster, app)
    if up:
        raise ConfigError(_is_up(app, plan.path, up, consumers))
    if spark is not None and plan.directory is None:
        check_checkpoints(declared.sinks.values())
    if code is not None:
        nodes_with(plan.labels)  # raises before the upload
        plan = replace(plan, code=upload(code))
    return app, start_hosts(
        plan, app, range(consumers), is_given_up, detached=detached, spark=spark
    )


def renew_code(hosts: Sequence[Host]) -> None:
    """Have Ray keep the code of *hosts* that are not detached; to be called every RENEW_S."""
    for code in {host.status.plan.code for host in hosts if host.status is not None}:
        if code is not None:
            renew(code)


def take_down(hosts: Sequence[Host]) -> list[str]:
    """Drain *hosts*, then end them; return a sentence for each not drained, or still there.

    One whose process has ended has nothing to drain.
    """
    found = [
        (host, handle) for host in hosts if (handle := _handle(host.cluster, host.name)) is not None
    ]
    for _, handle in (each for each in found if not _has_process(each[0])):
        ray.kill(handle)
    drained = [each for each in found if _has_process(each[0])]
    reasons = end_hosts([handle for _, handle in drained])
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


def scale(
    cluster: str, app: str, consumers: int, is_given_up: Callable[[], bool] = lambda: False
) -> list[str]:
    """Give the agents of the running *app* so many hosts; the newest ones are removed first.

    Returns the sentences of :func:`take_down`.

    Raises:
        ConfigError: none of its hosts says what to start, or another caller is scaling it; or it
            has no agents, but sinks.
        ActorError: a new host did not start; the others are left as they are.
    """
    found = find_hosts(cluster, app)
    hosts = [host for host in found if host.number != SINKS]
    _check_scalable(app, found)
    known = next((host.status for host in hosts if host.status is not None), None)
    numbers = sorted(set(range(len(hosts) + consumers)) - {host.number for host in hosts})
    missing = numbers[: max(0, consumers - len(hosts))]
    if missing:
        if known is None:
            raise ConfigError(
                f"none of the {len(hosts)} hosts of app {app!r} answers, for example because they "
                f"are restarting; see: rocketray status {app}"
            )
        start_hosts(known.plan, app, missing, is_given_up, detached=True)
    return take_down(hosts[consumers:])


def start_hosts(
    plan: HostPlan,
    app: str,
    numbers: Sequence[int],
    is_given_up: Callable[[], bool],
    *,
    detached: bool,
    spark: SparkOptions | None = None,
) -> list[Any]:
    """Start hosts of *numbers*, and that of the sinks if there is *spark*; return when they run.

    Raises:
        ConfigError: one of the numbers is taken, or no machine can run it.
        ActorError: one did not start; none of them is left.
    """
    nodes = least_busy(nodes_with(plan.labels), *_nodes_of_hosts(app), len(numbers))
    wanted: list[tuple[HostNumber, type, dict[str, Any]]] = [
        (number, ConsumerHost, plan.options(node))
        for number, node in zip(numbers, nodes, strict=True)
    ]
    if spark is not None:
        wanted.append(_spark_host(plan, app, spark))
    lifetime = "detached" if detached else None
    handles: dict[str, Any] = {}
    try:
        for number, kind, options in wanted:
            name = _name(app, number)
            actor = ray.remote(kind).options(name=name, lifetime=lifetime, **options)
            handles[name] = actor.remote(plan, _full_name(plan.cluster, name))
    except ValueError as error:  # the name is taken
        for handle in handles.values():
            ray.kill(handle)
        raise ConfigError(
            f"app {app!r} is being started or scaled by another command at the same time; see: "
            f"rocketray status {app}"
        ) from error
    try:
        await_start(plan.path, list(handles.values()), is_given_up)
    except ActorError:
        for name in handles:
            forget_failure(_full_name(plan.cluster, name))
        raise
    return list(handles.values())


def _spark_host(
    plan: HostPlan, app: str, spark: SparkOptions
) -> tuple[HostNumber, type, dict[str, Any]]:
    """Return what to start for the sinks of *app*; its modules load Spark, which others spare."""
    with needing_spark(app):
        from .spark_host import SparkHost  # noqa: PLC0415  # as above
    nodes = nodes_with(plan.labels, spark.num_cpus)
    [node] = least_busy(nodes, *_nodes_of_hosts(app), 1)
    return SINKS, SparkHost, plan.options(node, spark.num_cpus)


def check_checkpoints(sinks: Iterable[SinkSpec]) -> None:
    """Refuse checkpoints that would be in a directory that Ray creates and removes."""
    for sink in sinks:
        if sink.checkpoint is None or not ("://" in sink.checkpoint or sink.checkpoint[:1] == "/"):
            raise ConfigError(
                f"sink {sink.name!r} has a checkpoint in the current directory, which Ray creates "
                "on some machine for an app of a cluster, and removes; give it one that every "
                f"machine finds: checkpoint='/shared/{sink.name}' or 's3://…', and let it write to "
                "such a place, too"
            )


def _check_scalable(app: str, hosts: Sequence[Host]) -> None:
    """Refuse to scale an app of which only sinks run."""
    has_agents = any(host.status.agents for host in hosts if host.status is not None)
    if any(host.number == SINKS for host in hosts) and not has_agents:
        raise ConfigError(
            f"app {app!r} has no agents to scale, and its sinks run in one host; to run more of "
            "their tasks at a time, give their session more cores: App(…, "
            "spark=rr.spark.SparkOptions(cores=8))"
        )


def await_start(
    path: str, handles: Sequence[Any], is_given_up: Callable[[], bool] = lambda: False
) -> None:
    """Return when all apps have started; end them all and raise when one does not.

    Raises:
        ActorError: one failed, with its reason; or not all started in time; or *is_given_up*
            returned True meanwhile.
    """
    calls = [handle.start.options(**_ONCE).remote() for handle in handles]
    end = time.monotonic() + START_TIMEOUT_S
    waiting, why = calls, ""
    while waiting and not why:
        done, waiting = ray.wait(waiting, num_returns=1, timeout=_START_LOOK_S)
        why = next(filter(None, map(_why_not, done)), "")
        if waiting and not why and is_given_up():
            why = "it was interrupted"
        elif waiting and not why and time.monotonic() > end:
            why = f"{len(waiting)} of {len(handles)} are not up after {START_TIMEOUT_S:g} s"
    if why:
        end_hosts(handles, _FAILED_STOP_TIMEOUT_S)
        raise ActorError(f"app {path!r} did not start: {why}")


def end_hosts(handles: Sequence[Any], timeout_s: float = STOP_TIMEOUT_S) -> list[str]:
    """Drain and end actors; return, for each in order, why it was not drained, or an empty text."""
    calls = [handle.stop.options(**_ONCE).remote() for handle in handles]
    if calls:  # Ray refuses to wait for nothing
        ray.wait(calls, num_returns=len(calls), timeout=timeout_s)
    reasons = [_why_not(call, timeout_s) for call in calls]
    for handle in handles:
        ray.kill(handle)
    return reasons


def _why_not(call: Any, timeout_s: float = 0) -> str:
    """Return why *call* did not complete; empty if it did."""
    try:
        failure: HostFailure | None = ray.get(call, timeout=0)
    except ray.exceptions.GetTimeoutError:
        return f"it had not finished after {timeout_s:g} s"
    except ray.exceptions.RayError as error:
        return why_no_answer(error)
    if failure is None:
        return ""
    return str(failure) if failure.is_here else f"on {failure.machine}, {failure}"


def _is_up(app: str, path: str, up: Sequence[Host], consumers: int) -> str:
    """Return why an app is not started again."""
    present = len([host for host in up if host.number != SINKS])
    count = "1 host" if present == 1 else f"{present} hosts"
    others = {host.status.plan.path for host in up if host.status is not None} - {path}
    if others:
        return (
            f"app {app!r} is up with {count} from {', '.join(sorted(others))}, not from {path}; "
            f"give one of the apps another id, or end the other with: rocketray down {app}"
        )
    more = f"; to have {consumers}: rocketray scale {app} {consumers}"
    more = "" if consumers in (1, present) else more  # 1 is the default, and seldom a wish
    return (
        f"app {app!r} is up with {count} already; to run changed code: rocketray up {path} "
        f"--replace{more}"
    )


def _handle(cluster: str, name: str) -> Any:
    try:
        return ray.get_actor(name, namespace=namespace_of(cluster))
    except ValueError:
        return None  # it is gone already


def _has_process(host: Host) -> bool:
    """Return whether the host may have a process to drain."""
    return host.status is not None or host.state != "restarting"


def _still_there(hosts: Sequence[Host]) -> list[Host]:
    """Return those killed *hosts* that Ray has not removed after some time."""
    end = time.monotonic() + _GONE_TIMEOUT_S
    left = list(hosts)
    while left and time.monotonic() < end:
        left = [host for host in left if _handle(host.cluster, host.name) is not None]
        time.sleep(_LOOK_AGAIN_S if left else 0)
    return left


def _facts(handle: Any) -> tuple[str, int]:
    """Return an actor's state and restarts; without its dashboard Ray has no other way."""
    fact = ray._private.state.actors(handle._actor_id.hex())  # noqa: SLF001  # as above
    return (fact["State"], fact["NumRestarts"]) if fact else (_DEAD, 0)


def _nodes_of_hosts(app: str) -> tuple[list[str], list[str]]:
    """Return the Ray node of each living host of *app*, and of each of other apps."""
    own: list[str] = []
    others: list[str] = []
    for fact in ray._private.state.actors().values():  # noqa: SLF001  # the same
        if fact["State"] == _ALIVE and fact["Name"].startswith(APP_PREFIX):
            is_own = fact["Name"].rpartition(":")[0] == f"{APP_PREFIX}{app}"
            (own if is_own else others).append(fact["Address"]["NodeID"])
    return own, others


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
    return "silent" if fact == _ALIVE else "starting"


def _full_name(cluster: str, name: str) -> str:
    return f"{cluster}/{name}"


def _name(app: str, number: HostNumber) -> str:
    return f"{APP_PREFIX}{app}:{number}"


def _order(key: tuple[str, HostNumber]) -> tuple[str, bool, HostNumber]:
    """Sort the hosts of an app by their numbers, and that of its sinks behind them."""
    return key[0], key[1] == SINKS, key[1]

"""Running apps: their hosts started and scaled, from any process.

A host is a named Ray actor, ``app:ID:NUMBER``; that of the app's sinks is ``app:ID:sinks``. Ray
knows which exist, on the node and after a restart; the last failure of each is stored separately
(stored_failures.py). host_actors.py finds and ends them. Ray must be connected.

Invariants
  1. Each number of a running app exists once: a name has one actor. So a sink runs once.
  2. A host that is taken down has drained: what its handlers finished is committed, so it is not
     redelivered to another instance. A host that cannot drain is ended all the same, and reported.
  3. A failed start leaves nothing: if one host fails, all are ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import ray

from rocketray.base.quantity import counted
from rocketray.errors import ActorError, ConfigError
from rocketray.topology.app.sink_spec import SinkSpec
from rocketray.topology.app.spark_need import needing_spark
from rocketray.topology.app.spark_options import SparkOptions

from .app_path import load_app
from .code_archive import CodeArchive
from .code_upload import renew, upload
from .host import ConsumerHost
from .host_actors import ALIVE, ONCE, end_hosts, find_hosts, take_down, why_not
from .host_placement import host_options, least_busy, nodes_with, without_cpus
from .host_plan import HostPlan
from .host_status import APP_PREFIX, SINKS, Host, HostNumber, actor_name, full_name
from .stored_failures import forget_failure

# It may have to unpack the code on a machine, to load Faust or Spark, and to wait for a group.
START_TIMEOUT_S = 120.0
_FAILED_STOP_TIMEOUT_S = 10.0  # some of them may have begun to work, so they are drained, too
_START_LOOK_S = 0.5  # how long Ctrl-C goes unseen


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
    # The free numbers, lowest first: a host that was ended by hand leaves a gap.
    numbers = sorted(set(range(len(hosts) + consumers)) - {host.number for host in hosts})
    missing = numbers[: max(0, consumers - len(hosts))]
    if missing:
        if known is None:
            raise ConfigError(
                f"app {app!r} has {counted(len(hosts), 'host')}, and no answer: they may be restarting; "
                f"see: rocketray status {app}"
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
    left_out = without_cpus(plan.labels)
    wanted: list[tuple[HostNumber, type, dict[str, Any]]] = [
        (number, ConsumerHost, host_options(plan, node, left_out=left_out))
        for number, node in zip(numbers, nodes, strict=True)
    ]
    if spark is not None:
        wanted.append(_spark_host(plan, app, spark))
    lifetime = "detached" if detached else None
    handles: dict[str, Any] = {}
    try:
        for number, kind, options in wanted:
            name = actor_name(app, number)
            actor = ray.remote(kind).options(name=name, lifetime=lifetime, **options)
            handles[name] = actor.remote(plan, full_name(plan.cluster, name))
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
            forget_failure(full_name(plan.cluster, name))
        raise
    return list(handles.values())


def _spark_host(
    plan: HostPlan, app: str, spark: SparkOptions
) -> tuple[HostNumber, type, dict[str, Any]]:
    """Return what to start for the sinks of *app*; its modules load Spark, which others spare."""
    with needing_spark(app):
        from .spark_host import SparkHost  # noqa: PLC0415  # loads Spark
    nodes = nodes_with(plan.labels, spark.num_cpus)
    [node] = least_busy(nodes, *_nodes_of_hosts(app), 1)
    options = host_options(plan, node, spark.num_cpus, left_out=without_cpus(plan.labels))
    return SINKS, SparkHost, options


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
    calls = [handle.start.options(**ONCE).remote() for handle in handles]
    end = time.monotonic() + START_TIMEOUT_S
    waiting, why = calls, ""
    while waiting and not why:
        done, waiting = ray.wait(waiting, num_returns=1, timeout=_START_LOOK_S)
        why = next(filter(None, map(why_not, done)), "")
        if waiting and not why and is_given_up():
            why = "it was interrupted"
        elif waiting and not why and time.monotonic() > end:
            why = f"{len(waiting)} of {len(handles)} are not up after {START_TIMEOUT_S:g} s"
    if why:
        end_hosts(handles, _FAILED_STOP_TIMEOUT_S)
        raise ActorError(f"app {path!r} did not start: {why}")


def _is_up(app: str, path: str, up: Sequence[Host], consumers: int) -> str:
    """Return why an app is not started again."""
    present = len([host for host in up if host.number != SINKS])
    count = counted(present, "host")
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


def _nodes_of_hosts(app: str) -> tuple[list[str], list[str]]:
    """Return the Ray node of each living host of *app*, and of each of other apps."""
    own: list[str] = []
    others: list[str] = []
    for fact in ray._private.state.actors().values():  # noqa: SLF001  # the same
        if fact["State"] == ALIVE and fact["Name"].startswith(APP_PREFIX):
            is_own = fact["Name"].rpartition(":")[0] == f"{APP_PREFIX}{app}"
            (own if is_own else others).append(fact["Address"]["NodeID"])
    return own, others

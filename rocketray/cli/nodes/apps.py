"""``rocketray up``, ``down`` and ``scale``: apps as Ray actors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.base.quantity import counted
from rocketray.cli.arguments.completions import complete_apps
from rocketray.cli.arguments.found_hosts import apps_of, host_of_member
from rocketray.cli.arguments.node import ask, connect
from rocketray.cli.arguments.options import CommonOptions
from rocketray.cli.terminal.output import progress
from rocketray.cli.terminal.waiting import waiting
from rocketray.errors import ActorError, ConfigError
from rocketray.runtime.signal_handlers import stop_signals

from .app_status import failures_of, idle_instances, queues_of, show_hosts, sinks_of

if TYPE_CHECKING:
    from rocketray.actors.client.connection import Connection
    from rocketray.hosting.apps_api import AppsApi
    from rocketray.hosting.host_status import Host, HostNumber
    from rocketray.messaging.api.node_client import NodeClient

    from .app_plan import Labels

_LOOK_AGAIN_S = 1.0  # each look asks Ray and every host; how late a failure is told
_AppArgument = Annotated[
    str, typer.Argument(metavar="APP", help="The app's id.", autocompletion=complete_apps)
]
_PathArgument = Annotated[
    str,
    typer.Argument(metavar="MODULE:APP", help="The app's module and name, for example trade:app."),
]


def up(
    path: _PathArgument,
    *,
    consumers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Number of instances.  [default: 1]"),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Run changed code: replace the instances of the app that is up, one at a time.",
        ),
    ] = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Return when the app is up; end it with: rocketray down."),
    ] = False,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Run on machines whose Ray has this label; may be repeated. For a cluster only.",
        ),
    ] = None,
    common: CommonOptions,
) -> None:
    """Run an app's agents and sinks as Ray actors.

    Each instance has a process of its own, and they share the messages of their groups. The module
    is imported from the current directory, or from Python's path. If an instance fails to start,
    all are ended, and the reason is printed. One that crashes later is restarted. Without --detach
    the app runs until SIGINT (Ctrl-C) or SIGTERM, and is then drained. A queue is read by one
    instance at a time; a warning says if a topic has fewer queues than there are instances.

    If the app has Spark sinks, one more process runs all of them. A sink that fails is restarted
    from its checkpoint, for as long as the app is up.

    With --data, the instances run on this machine. For a cluster that is named (--cluster NAME
    before the command, or ROCKETRAY_CLUSTER), they are spread over the machines of its Ray, and the
    directory that the module is imported from is uploaded, up to 100 MiB. Hidden files, virtual
    environments, data directories, and what a .gitignore or .rayignore names are left out.

    With --replace, an app that is up gets changed code: a further instance starts with it, an old
    one is drained and ended, and so on; the sinks are last. If one fails to start, the rest keep
    the old code. "rocketray status" shows the version of each, a digest of the loaded modules. An
    instance that asks for a filter from which its group has switched is replaced in any case.

    Examples:
        rocketray up trade:app --consumers 4 --detach
        rocketray up trade:app --replace
    """
    from rocketray.hosting import hosting  # imports Ray and Faust
    from rocketray.hosting.app_path import import_from, load_app  # imports Faust
    from rocketray.hosting.host_actors import find_hosts  # imports Ray
    from rocketray.topology.app.agent import agent_doubts  # imports Faust

    from .app_plan import parse_labels, plan_of, queues_to_read  # Ray and Faust

    import_from(Path.cwd())
    labels = parse_labels(label or ())
    with connect(common.data) as connection, stop_signals() as signals:
        is_given_up = signals.event.is_set
        if replace:
            with waiting(f"replacing the hosts of {path}"):
                _replace(connection, path, labels, consumers, is_given_up, common=common)
            return
        with waiting(f"starting {path}"):
            plan, code = plan_of(connection, path, labels)
            declared, count = load_app(path), consumers or 1
            for line in idle_instances(queues_to_read(declared, connection.topics.all()), count):
                progress(f"warning: {line}")
            app, handles = hosting.bring_up(
                plan, count, code=code, detached=detach, is_given_up=is_given_up
            )
        hosts = find_hosts(connection.cluster, app)
        show_hosts(hosts, as_json=common.as_json)
        for line in agent_doubts(connection, declared.agents.values()):
            progress(f"warning: {line}")
        if detach:
            return
        left = _stay_up(connection.cluster, app, hosts, signals.event)
        del handles  # they kept the hosts that are not detached
    _say_what_is_left(left)


def _stay_up(cluster: str, app: str, hosts: list[Host], ended: threading.Event) -> list[str]:
    """Tell what fails until a signal; then take the app down, and return what was not drained."""
    from rocketray.hosting.code_upload import RENEW_S  # imports Ray
    from rocketray.hosting.host_actors import find_hosts, take_down  # imports Ray
    from rocketray.hosting.hosting import renew_code  # Faust

    told = {name: said for name, said, _ in failures_of(hosts)}
    renewed_s = time.monotonic()
    while not ended.wait(_LOOK_AGAIN_S):
        hosts = find_hosts(cluster, app)
        if not hosts:
            progress(f"{app} was ended by another command")
            return []
        if time.monotonic() > renewed_s + RENEW_S:
            renewed_s = time.monotonic()
            renew_code(hosts)
        for name, said, line in failures_of(hosts):
            if told.get(name) != said:
                told[name] = said
                progress(line)
    progress("stopping")
    return take_down(find_hosts(cluster, app))


def _replace(
    connection: Connection,
    path: str,
    labels: Labels,
    consumers: int | None,
    is_given_up: Callable[[], bool],
    *,
    common: CommonOptions,
) -> None:
    """Replace the hosts of the app at *path* that run other code, and show all hosts."""
    from rocketray.hosting import replacing  # imports Ray and Faust
    from rocketray.hosting.app_path import load_app  # imports Faust
    from rocketray.hosting.code_version import code_version
    from rocketray.hosting.host_status import SINKS
    from rocketray.runtime.clock import system_clock_ms

    from .app_plan import plan_of  # imports Ray and Faust

    app = load_app(path)
    version = code_version(path, system_clock_ms())
    apps = apps_of(connection)
    hosts = apps.hosts(str(app.conf.id))
    count = sum(host.number != SINKS for host in hosts)
    if consumers not in (None, count):
        raise ConfigError(
            f"app {app.conf.id!r} has {counted(count, 'host')}, and --replace keeps their number; leave "
            f"--consumers out, and then: rocketray scale {app.conf.id} {consumers}"
        )
    plan, code = plan_of(connection, path, labels)
    outdated = _outdated(connection, hosts)
    new = replacing.Replacement(plan, app, version, code, outdated)
    said = replacing.replace_hosts(new, hosts, progress, is_given_up)
    show_hosts(apps.hosts(str(app.conf.id)), as_json=common.as_json)
    _say_what_is_left(said)


def _outdated(connection: NodeClient, hosts: Sequence[Host]) -> frozenset[HostNumber]:
    """Return the hosts with members that ask for a filter from which their group has switched.

    Their code may be unchanged, where it has a filter's name without a version.
    """
    found = set()
    for each in connection.groups.all():
        if each.plan is not None and each.plan.is_switching:
            change = connection.groups.change_progress(each.group, each.topic)
            outdated = () if change is None else change.outdated
            found |= {host_of_member(member, hosts) for member in outdated}
    return frozenset(host.number for host in found if host is not None)


def down(app: _AppArgument, *, common: CommonOptions) -> None:
    """Drain and end an app's actors.

    What their handlers finished is committed first, and is not redelivered. A sink's function for a
    micro-batch runs to completion; any other micro-batch is repeated from the checkpoint.

    Examples:
        rocketray down shop
        rocketray --cluster trade down shop
    """
    with ask(common.data) as node, waiting(f"draining {app}"):
        found = apps_of(node).take_down(app)
    record = {"app": app, "ended": found.ended, "notDrained": found.not_drained}
    common.emit(record, f"{app} is down")
    _say_what_is_left(found.not_drained)


def scale(
    app: _AppArgument,
    consumers: Annotated[
        int, typer.Argument(metavar="N", min=1, help="The new number of instances.")
    ],
    *,
    common: CommonOptions,
) -> None:
    """Change the number of an app's instances. Queues are reassigned.

    This is about its agents: its sinks run in one process. More instances are started, or some are
    drained and ended. A queue is read by one instance at a time: with more instances than a topic
    has queues, some get none of its messages, and a warning says so.

    Examples:
        rocketray scale shop 4
        rocketray scale shop 1 --json
    """
    from rocketray.hosting import hosting  # imports Ray and Faust

    with connect(common.data) as connection, stop_signals() as signals:
        apps = apps_of(connection)
        _check_is_no_sink(apps, app)
        hosts = apps.hosts(app)
        _warn_of_changed_code(hosts, app, consumers)
        for line in idle_instances(queues_of(hosts, connection.groups.all()), consumers):
            progress(f"warning: {line}")
        with waiting(f"scaling {app}"):
            said = hosting.scale(connection.cluster, app, consumers, signals.event.is_set)
        hosts = apps.hosts(app)
        show_hosts(hosts, as_json=common.as_json)
    _say_what_is_left(said)


def _warn_of_changed_code(hosts: Sequence[Host], app: str, consumers: int) -> None:
    """Say that new hosts would run other code than those that are up."""
    from rocketray.hosting.host_status import SINKS

    known = [host.status for host in hosts if host.status is not None and host.number != SINKS]
    of_directory = [each for each in known if each.version is not None and not each.plan.code]
    if consumers <= len(known) or not of_directory:
        return
    version = of_directory[0].version
    if version is not None and version.now() != version.digest:
        progress(
            f"warning: the code of {app} in {version.directory} has changed since its hosts "
            f"started with version {version}: new hosts run the changed code; to replace the "
            f"others: rocketray up {of_directory[0].plan.path} --replace"
        )


def _check_is_no_sink(apps: AppsApi, name: str) -> None:
    hosts = apps.hosts(None)
    owners = {host.app: {sink.name for sink in sinks_of(host)} for host in hosts}
    owner = next((app for app, sinks in owners.items() if name in sinks), None)
    if owner is not None and name not in owners:
        raise ConfigError(
            f"{name!r} is a sink of app {owner!r}, and all sinks of an app run in one host; to run "
            "more of their tasks at a time, give their session more cores: App(…, "
            f"spark=rr.spark.SparkOptions(cores=8)); for its agents: rocketray scale {owner} N"
        )


def _say_what_is_left(said: Sequence[str]) -> None:
    if said:
        raise ActorError("; ".join(said))

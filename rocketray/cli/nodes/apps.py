"""``rocketray up``, ``down``, ``status`` and ``scale``: apps as Ray actors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.actors.runtime.signal_handlers import stop_signals
from rocketray.cli.arguments.node import ask, connect
from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption, JsonOption
from rocketray.cli.terminal.output import print_line, print_result, progress
from rocketray.cli.terminal.waiting import waiting
from rocketray.errors import ActorError, ConfigError, StoreError

from .app_status import (
    failures_of,
    groups_of,
    idle_instances,
    show_groups,
    show_hosts,
    show_problems,
    show_scrubs,
    show_unflushed,
    sinks_of,
    without_hosts,
)

if TYPE_CHECKING:
    from rocketray.actors.api.node_client import NodeClient
    from rocketray.actors.client.connection import Connection
    from rocketray.actors.client.local_client import LocalClient
    from rocketray.actors.groups.group_descriptions import GroupDescription
    from rocketray.topology.hosting.hosting import Host

__all__ = ["down", "scale", "status", "up"]

_LOOK_AGAIN_S = 1.0
_AppArgument = Annotated[str, typer.Argument(metavar="APP", help="The app's id.")]
_PathArgument = Annotated[
    str,
    typer.Argument(metavar="MODULE:APP", help="The app's module and name, for example trade:app."),
]


def up(
    path: _PathArgument,
    *,
    consumers: Annotated[int, typer.Option(metavar="N", min=1, help="Number of instances.")] = 1,
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
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Run an app's agents and sinks as Ray actors.

    Each instance has a process of its own, and they share the messages of their groups. The module
    is imported from the current directory, or from Python's path. If an instance fails to start,
    all are ended, and the reason is printed. One that crashes later is restarted. Without --detach
    the app runs until SIGINT (Ctrl-C) or SIGTERM, and is then drained.

    If the app has Spark sinks, one more process runs all of them. A sink that fails is restarted
    from its checkpoint, for as long as the app is up.

    With --data, the instances run on this machine. For a cluster that is named (--cluster NAME
    before the command, or ROCKETRAY_CLUSTER), they are spread over the machines of its Ray, and the
    directory that the module is imported from is uploaded, up to 100 MiB. Hidden files, virtual
    environments, data directories, and what a .gitignore or .rayignore names are left out.
    """
    from rocketray.topology.app.agent import agent_doubts  # noqa: PLC0415 - the same
    from rocketray.topology.hosting import hosting  # noqa: PLC0415 - imports Ray and Faust
    from rocketray.topology.hosting.app_path import import_from, load_app  # noqa: PLC0415 - same
    from rocketray.topology.hosting.code_upload import RENEW_S  # noqa: PLC0415 - the same

    from .app_plan import parse_labels, plan_of  # noqa: PLC0415 - the same

    import_from(Path.cwd())
    labels = parse_labels(label or ())
    with connect(data) as connection, stop_signals() as signals:
        with waiting(f"starting {path}"):
            plan, code = plan_of(connection, path, labels)
            app, handles = hosting.bring_up(
                plan, consumers, code=code, detached=detach, is_given_up=signals.event.is_set
            )
        hosts = hosting.find_hosts(connection.cluster, app)
        show_hosts(hosts, as_json=as_json)
        for line in idle_instances(hosts, connection.groups.all(), consumers):
            progress(f"warning: {line}")
        declared = load_app(path)
        for line in agent_doubts(connection, declared.agents.values()):
            progress(f"warning: {line}")
        if detach:
            return
        told = {name: said for name, said, _ in failures_of(hosts)}
        renewed_s = time.monotonic()
        while not signals.event.wait(_LOOK_AGAIN_S):
            hosts = hosting.find_hosts(connection.cluster, app)
            if not hosts:
                progress(f"{app} was ended by another command")
                return
            if time.monotonic() > renewed_s + RENEW_S:
                renewed_s = time.monotonic()
                hosting.renew_code(hosts)
            for name, said, line in failures_of(hosts):
                if told.get(name) != said:
                    told[name] = said
                    progress(line)
        progress("stopping")
        left = hosting.take_down(hosting.find_hosts(connection.cluster, app))
        del handles  # they kept the hosts that are not detached
    _say_what_is_left(left)


def down(
    app: _AppArgument, *, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False
) -> None:
    """Drain and end an app's actors.

    What their handlers finished is committed first, and is not redelivered. A sink's function for a
    micro-batch runs to completion; any other micro-batch is repeated from the checkpoint.
    """
    from rocketray.topology.hosting import hosting  # noqa: PLC0415 - imports Ray and Faust

    with connect(data) as connection:
        hosts = _hosts_of(connection.cluster, app)
        said = hosting.take_down(hosts)
    record = {"app": app, "ended": len(hosts), "notDrained": said}
    print_result(record, f"{app} is down", as_json=as_json)
    _say_what_is_left(said)


def status(
    app: Annotated[
        str | None, typer.Argument(metavar="APP", help="An app's id; default: all apps.")
    ] = None,
    *,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show apps, what is on disk and verified, and problems.

    A table has the app's sinks: the last micro-batch of each, its rows, the rows that it wrote in a
    second, and behind, the messages that it has not read yet.

    Below the tables are the last failure of each host since it was started, and the number of
    failures to decode a message. The counts are of the host's process: they begin at 0 after a
    restart. Failures are exceptions of the handler, and of the steps before it. Sent back counts
    failed messages that are redelivered later, dead letters those that are not: "rocketray explain"
    shows what happened to one.

    A line "group ..." names the message at which a queue is held, because its member retries it
    before any other, or the number of messages on which the group's filter failed since the
    coordinator started. These are all groups, or those of APP, and with --json objects with the key
    "group".

    A table shows for each topic the queue whose oldest message that is not on disk has waited
    longest. A flush is due every 0.5 s; a greater age says that a disk is slow, or that its flush
    hangs. --json has all such queues in one object with the key "unflushed".

    Another table shows when all complete log files of a topic were last read again and verified,
    and how much of the pass under way is done; a pass begins once a day (rocketray start
    --scrub-rate). --json has all queues in one object with the key "verified", and each damaged
    place.

    A line "problem: ..." says what is wrong with the node and what to do about it, such as damaged
    messages, a damaged file of its state, or a flush that hangs; with --json it is an object with
    the key "problem". If consumer groups are closed because of it, the exit code is 1.
    """
    with ask(data) as node, waiting("querying the node and the hosts of apps"):
        problems = node.problems()
        unflushed, scrubs = node.unflushed(), node.scrubs()
        groups = _groups_unless_closed(node, problems)
        hosts = _hosts_there(node, app, data)
    if hosts or as_json:
        show_hosts(hosts, as_json=as_json)
    else:
        print_line(without_hosts(groups))
    if groups is not None:
        show_groups(groups if app is None else groups_of(hosts, groups), as_json=as_json)
    show_unflushed(unflushed, as_json=as_json)
    show_scrubs(scrubs, as_json=as_json)
    show_problems(problems, as_json=as_json)
    if groups is None:
        raise typer.Exit(1)


def scale(
    app: _AppArgument,
    consumers: Annotated[
        int, typer.Argument(metavar="N", min=1, help="The new number of instances.")
    ],
    *,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Change the number of an app's instances. Queues are reassigned.

    This is about its agents: its sinks run in one process. More instances are started, or some are
    drained and ended. A queue is read by one instance at a time: with more instances than a topic
    has queues, some get none of its messages, and a warning says so.
    """
    from rocketray.topology.hosting import hosting  # noqa: PLC0415 - imports Ray and Faust

    with connect(data) as connection, stop_signals() as signals:
        _check_is_no_sink(connection.cluster, app)
        _hosts_of(connection.cluster, app)
        with waiting(f"scaling {app}"):
            said = hosting.scale(connection.cluster, app, consumers, signals.event.is_set)
        hosts = hosting.find_hosts(connection.cluster, app)
        show_hosts(hosts, as_json=as_json)
        for line in idle_instances(hosts, connection.groups.all(), consumers):
            progress(f"warning: {line}")
    _say_what_is_left(said)


def _hosts_there(node: LocalClient | Connection, app: str | None, data: Path) -> list[Host]:
    """Return all hosts, or those of *app*; without any, Ray and Faust are not imported."""
    from rocketray.actors.client.local_client import LocalClient  # noqa: PLC0415 - not for help

    if app is None and isinstance(node, LocalClient) and not node.has_apps():
        return []
    from rocketray.topology.hosting.hosting import find_hosts  # noqa: PLC0415 - Ray, Faust

    with connect(data) as connection:
        cluster = connection.cluster
        return find_hosts(cluster) if app is None else _hosts_of(cluster, app)


def _hosts_of(cluster: str, app: str) -> list[Host]:
    from rocketray.topology.hosting.hosting import find_hosts  # noqa: PLC0415 - Ray, Faust

    hosts = find_hosts(cluster, app)
    if not hosts:
        names = sorted({host.app for host in find_hosts(cluster)})
        known = f"these are: {', '.join(names)}" if names else "no app is"
        raise ConfigError(f"app {app!r} is not up; {known}; start it with: rocketray up MODULE:APP")
    return hosts


def _check_is_no_sink(cluster: str, name: str) -> None:
    from rocketray.topology.hosting.hosting import find_hosts  # noqa: PLC0415 - Ray, Faust

    hosts = find_hosts(cluster)
    owners = {host.app: {sink.name for sink in sinks_of(host)} for host in hosts}
    owner = next((app for app, sinks in owners.items() if name in sinks), None)
    if owner is not None and name not in owners:
        raise ConfigError(
            f"{name!r} is a sink of app {owner!r}, and all sinks of an app run in one host; to run "
            "more of their tasks at a time, give their session more cores: App(…, "
            f"spark=rr.spark.SparkOptions(cores=8)); for its agents: rocketray scale {owner} N"
        )


def _groups_unless_closed(node: NodeClient, problems: list[str]) -> list[GroupDescription] | None:
    """Return the node's groups; None if they are closed, which is one of its *problems*."""
    try:
        return node.groups.all()
    except StoreError as error:
        if str(error) not in problems:
            raise
        return None


def _say_what_is_left(said: list[str]) -> None:
    if said:
        raise ActorError("; ".join(said))

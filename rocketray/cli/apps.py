"""``rocketray up``, ``down``, ``status`` and ``scale``: apps as Ray actors of the node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.errors import ConfigError

from .node import connect
from .options import DATA_DEFAULT, DataOption, JsonOption
from .output import print_json, print_line, print_table, progress
from .signals import until_signalled

if TYPE_CHECKING:
    from rocketray.topology.agent import AgentStatistics
    from rocketray.topology.hosting import Host

__all__ = ["down", "scale", "status", "up"]

_LOOK_AGAIN_S = 1.0
_COUNTS = ("received", "finished", "failures", "sent back", "dead letters")
_AppArgument = Annotated[str, typer.Argument(metavar="APP", help="The app's id.")]
_PathArgument = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="Where the app is, for example trade:app.")
]


def up(
    path: _PathArgument,
    *,
    consumers: Annotated[
        int, typer.Option("--consumers", metavar="N", min=1, help="How many instances.")
    ] = 1,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when it is up; end it with: rocketray down.")
    ] = False,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Run an app's agents as Ray actors of the node, each instance in a process of its own.

    Instances share the messages of their groups. The module is imported from the current
    directory, or from wherever Python finds it. An instance that crashes is started again.
    Without --detach the app runs until SIGINT (Ctrl-C) or SIGTERM, and is drained then.
    """
    from rocketray.topology import deploy, hosting  # noqa: PLC0415 - imports Ray and Faust

    directory = Path.cwd()
    deploy.import_from(directory)
    with connect(data) as connection, until_signalled() as signalled:
        deployed = hosting.bring_up(
            path,
            data=connection.data,
            directory=directory,
            consumers=consumers,
            detached=detach,
        )
        app = deployed.app
        _show(hosting.find_hosts(app), as_json=as_json)
        if detach:
            return
        while not signalled.wait(_LOOK_AGAIN_S):
            if not hosting.find_hosts(app):
                progress(f"{app} was taken down")
                return
        progress("stopping")
        hosting.take_down(hosting.find_hosts(app))


def down(
    app: _AppArgument, *, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False
) -> None:
    """End an app's actors. What their handlers finished is committed first, and does not come again."""
    from rocketray.topology import hosting  # noqa: PLC0415 - imports Ray and Faust

    with connect(data):
        hosts = _hosts_of(app)
        hosting.take_down(hosts)
    if as_json:
        print_json({"app": app, "ended": len(hosts)})
    else:
        print_line(f"{app} is down")


def status(
    app: Annotated[
        str | None, typer.Argument(metavar="[APP]", help="One app's id; all apps without it.")
    ] = None,
    *,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the apps that are up: their hosts, what their agents did, and the queues they read.

    The counts are of the host's process: they begin again at a restart. Failures are exceptions of
    the handler; sent back are messages that come again later, also those that could not be decoded,
    and dead letters those that do not: "rocketray explain" tells what became of one.
    """
    from rocketray.topology import hosting  # noqa: PLC0415 - imports Ray and Faust

    with connect(data):
        hosts = hosting.find_hosts() if app is None else _hosts_of(app)
    if not hosts and not as_json:
        print_line("no app is up; start one with: rocketray up MODULE:APP")
        return
    _show(hosts, as_json=as_json)


def scale(
    app: _AppArgument,
    consumers: Annotated[
        int, typer.Argument(metavar="N", min=1, help="How many instances it is to have.")
    ],
    *,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Start more instances of an app, or drain and end some; the others take over their queues."""
    from rocketray.topology import hosting  # noqa: PLC0415 - imports Ray and Faust

    with connect(data):
        _hosts_of(app)
        hosting.scale(app, consumers)
        _show(hosting.find_hosts(app), as_json=as_json)


def _hosts_of(app: str) -> list[Host]:
    from rocketray.topology.hosting import find_hosts  # noqa: PLC0415 - imports Ray and Faust

    hosts = find_hosts(app)
    if not hosts:
        names = sorted({host.app for host in find_hosts()})
        known = f"these are: {', '.join(names)}" if names else "no app is"
        raise ConfigError(f"app {app!r} is not up; {known}; start it with: rocketray up MODULE:APP")
    return hosts


def _show(hosts: list[Host], *, as_json: bool) -> None:
    if as_json:
        for host in hosts:
            print_json(_fields(host))
        return
    columns = ("app", "host", "pid", "state", "restarts", "agent", *_COUNTS, "queues")
    right = ("host", "pid", "restarts", *_COUNTS)
    print_table(columns, [row for host in hosts for row in _rows(host)], right=right)


def _rows(host: Host) -> list[tuple[Any, ...]]:
    """A line for each agent; the queues of all agents stand in the first."""
    status = host.status
    pid = None if status is None else status.pid
    agents = status.agents if status is not None else ()
    queues = _queues(host)
    first = (host.app, host.number, pid, host.state, host.restarts)
    if not agents:
        return [(*first, None, *(None for _ in _COUNTS), queues)]
    rows = [(each.name, *_counts(each)) for each in agents]
    empty = ("",) * len(first)
    return [
        (*(empty if number else first), *row, "" if number else queues)
        for number, row in enumerate(rows)
    ]


def _counts(agent: AgentStatistics) -> tuple[int, ...]:
    """What stands in the columns of _COUNTS."""
    done = (agent.received, agent.finished, agent.failures)
    return (*done, agent.sent_back, agent.dead_lettered)


def _queues(host: Host) -> str:
    """The queues by topic: ``Orders 0,1 Payments 3``."""
    by_topic: dict[str, list[str]] = {}
    for topic, queue in host.status.queues if host.status is not None else ():
        by_topic.setdefault(topic, []).append(str(queue))
    return " ".join(f"{topic} {','.join(queues)}" for topic, queues in by_topic.items())


def _fields(host: Host) -> dict[str, Any]:
    status = host.status
    return {
        "app": host.app,
        "host": host.number,
        "state": host.state,
        "restarts": host.restarts,
        "pid": None if status is None else status.pid,
        "path": None if status is None else status.path,
        "agents": [
            {
                "agent": each.name,
                "group": each.group,
                "received": each.received,
                "finished": each.finished,
                "failures": each.failures,
                "sentBack": each.sent_back,
                "deadLettered": each.dead_lettered,
                "overdue": each.overdue,
            }
            for each in (status.agents if status is not None else ())
        ],
        "queues": [
            {"topic": topic, "queueId": queue}
            for topic, queue in (status.queues if status is not None else ())
        ],
    }

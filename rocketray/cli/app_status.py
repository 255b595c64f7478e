"""Hosts of apps, shown to people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .output import as_time, print_json, print_line, print_table

if TYPE_CHECKING:
    from rocketray.topology.hosting import Host

__all__ = ["show_hosts"]

_HOST_COLUMNS = ("app", "host", "pid", "state", "restarts", "queues")
_COUNTS = ("received", "finished", "failures", "sent back", "dead letters")


def show_hosts(hosts: list[Host], *, as_json: bool) -> None:
    """A line of JSON for each; or the hosts, their agents, and what ended them last."""
    if as_json:
        for host in hosts:
            print_json(_fields(host))
        return
    rows = [
        (
            host.app,
            host.number,
            None if host.status is None else host.status.pid,
            host.state,
            host.restarts,
            _queues(host) or None,
        )
        for host in hosts
    ]
    print_table(_HOST_COLUMNS, rows, right=("host", "pid", "restarts"))
    agents = [
        (
            host.app,
            host.number,
            agent.name,
            agent.received,
            agent.finished,
            agent.failures,
            agent.sent_back,
            agent.dead_lettered,
        )
        for host in hosts
        for agent in (host.status.agents if host.status is not None else ())
    ]
    if agents:
        print_line("")
        print_table(("app", "host", "agent", *_COUNTS), agents, right=("host", *_COUNTS))
    for host in hosts:
        if (error := host.last_error) is not None:
            print_line("")
            print_line(f"{host.app} host {host.number} failed at {as_time(error.time_ms)}: {error}")


def _queues(host: Host) -> str:
    """The queues by topic: ``Orders 0,1 Payments 3``."""
    by_topic: dict[str, list[str]] = {}
    for topic, queue in host.status.queues if host.status is not None else ():
        by_topic.setdefault(topic, []).append(str(queue))
    return " ".join(f"{topic} {','.join(queues)}" for topic, queues in by_topic.items())


def _fields(host: Host) -> dict[str, Any]:
    status, error = host.status, host.last_error
    return {
        "app": host.app,
        "host": host.number,
        "state": host.state,
        "restarts": host.restarts,
        "lastError": None
        if error is None
        else {
            "type": error.kind,
            "message": error.message,
            "place": error.place,
            "time": error.time_ms,
        },
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
                "damaged": each.damaged,
            }
            for each in (status.agents if status is not None else ())
        ],
        "queues": [
            {"topic": topic, "queueId": queue}
            for topic, queue in (status.queues if status is not None else ())
        ],
    }

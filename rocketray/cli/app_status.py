"""Hosts of apps, shown to people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketray.names import RETRY_PREFIX

from .output import as_time, print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rocketray.actors.group_views import GroupDescription
    from rocketray.topology.hosting import Host

__all__ = ["filter_errors", "idle_instances", "show_hosts", "show_problems", "without_hosts"]

_HOST_COLUMNS = ("app", "host", "pid", "state", "restarts", "queues")
_COUNTS = ("received", "finished", "failures", "sent back", "dead letters")


def filter_errors(groups: Sequence[GroupDescription]) -> dict[str, int]:
    """On how many messages the filter of each group failed; *groups* has an entry a topic."""
    errors: dict[str, int] = {}
    for each in groups:
        errors[each.group] = errors.get(each.group, 0) + each.counters.errors
    return errors


def idle_instances(
    hosts: Sequence[Host], groups: Sequence[GroupDescription], consumers: int
) -> list[str]:
    """A line for each topic that has fewer queues than the app has instances: some read none of it."""
    names = {
        agent.group for host in hosts if host.status is not None for agent in host.status.agents
    }
    queues = {
        each.topic: len(each.offsets)
        for each in groups
        if each.group in names and not each.is_broadcast and not each.topic.startswith(RETRY_PREFIX)
    }
    return [
        f"topic {topic} has {_queue_count(count)}, and a queue is read by one instance at a time: "
        f"{consumers - count} of the {consumers} instances get none of its messages; scale to "
        f"{count}, or, where no key has to stay in its queue, give the topic more: rocketray topics "
        f"alter {topic} --queues {consumers}"
        for topic, count in sorted(queues.items())
        if count < consumers
    ]


def _queue_count(count: int) -> str:
    return "1 queue" if count == 1 else f"{count} queues"


def without_hosts(groups: Sequence[GroupDescription]) -> str:
    """What to say where no app was brought up: one may run by itself all the same.

    Members that did not report since the node started may be of processes that ended with it.
    """
    living = {each.group for each in groups if each.members.keys() - each.unheard}
    silent = sorted({each.group for each in groups if each.unheard} - living)
    if living:
        return (
            f"no app was brought up with rocketray up, but groups have members: "
            f"{', '.join(sorted(living))}; they belong to apps that run by themselves "
            "(python app.py), or to consumers; see: rocketray groups list"
        )
    said = "no app is up; start one with: rocketray up MODULE:APP"
    if silent:
        said += (
            f"\ngroups have members that have not reported since the node started: "
            f"{', '.join(silent)}; they are forgotten when their leases run out"
        )
    return said


def show_hosts(hosts: list[Host], errors: Mapping[str, int], *, as_json: bool) -> None:
    """A line of JSON for each; or the hosts, their agents, and what needs somebody's attention.

    That is what ended a host last, messages that could not be decoded or not be filtered, and queues
    that are held at a message. *errors* are those of :func:`filter_errors`.
    """
    if as_json:
        for host in hosts:
            print_json(_fields(host, errors))
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
    logs = [host for host in hosts if host.status is not None and host.status.logs]
    if logs:
        print_line("")
    for host in logs:
        assert host.status is not None
        print_line(f"{host.app} host {host.number} writes to {' and '.join(host.status.logs)}")
    for line in _complaints(hosts, errors):
        print_line("")
        print_line(line)


def _complaints(hosts: Sequence[Host], errors: Mapping[str, int]) -> Iterator[str]:
    for host in hosts:
        if (error := host.last_error) is not None:
            yield f"{host.app} host {host.number} failed at {as_time(error.time_ms)}: {error}"
    groups: dict[str, None] = {}
    for host in hosts:
        for agent in host.status.agents if host.status is not None else ():
            groups[agent.group] = None
            who = f"{host.app} host {host.number} agent {agent.name}"
            if agent.decode_failures:
                yield f"{who}: {agent.decode_failures} failures are of messages that do not decode"
            for held in agent.held:
                yield f"{who}: topic {held.topic} queue {held.queue_id} is {held.message}"
    for group in groups:
        if errors.get(group):
            yield (
                f"group {group}: the filter failed on {errors[group]} messages; see: "
                "rocketray filter stats"
            )


def show_problems(lines: list[str], *, as_json: bool) -> None:
    """What is wrong with the node: a line, or a line of JSON, each."""
    if lines and not as_json:
        print_line("")
    for line in lines:
        if as_json:
            print_json({"problem": line})
        else:
            print_line(f"problem: {line}")


def _queues(host: Host) -> str:
    """The queues by topic: ``Orders 0,1 Payments 3``."""
    by_topic: dict[str, list[str]] = {}
    for topic, queue in host.status.queues if host.status is not None else ():
        by_topic.setdefault(topic, []).append(str(queue))
    return " ".join(f"{topic} {','.join(queues)}" for topic, queues in by_topic.items())


def _fields(host: Host, errors: Mapping[str, int]) -> dict[str, Any]:
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
        "logs": [] if status is None else list(status.logs),
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
                "decodeFailures": each.decode_failures,
                "filterErrors": errors.get(each.group, 0),
                "held": [
                    {"topic": held.topic, "queueId": held.queue_id, **held.message.to_json()}
                    for held in each.held
                ],
            }
            for each in (status.agents if status is not None else ())
        ],
        "queues": [
            {"topic": topic, "queueId": queue}
            for topic, queue in (status.queues if status is not None else ())
        ],
    }

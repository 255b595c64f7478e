"""The output of ``rocketray status``, for users and programs: hosts of apps, groups, problems."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rocketray.base.json_fields import json_fields
from rocketray.base.names import RETRY_PREFIX
from rocketray.base.quantity import counted
from rocketray.cli.terminal.output import TextTable, as_time, emit
from rocketray.hosting.host_status import STATUS_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rocketray.broker.shards.shard_api import ScrubState
    from rocketray.groups.group_descriptions import GroupDescription
    from rocketray.hosting.host_status import Host
    from rocketray.topology.app.agent_statistics import AgentStatistics
    from rocketray.topology.app.loop_stall import LoopStall
    from rocketray.topology.app.sink_statistics import SinkStatistics

_HOST_COLUMNS = ("app", "host", "machine", "pid", "state", "restarts", "version", "queues")
_SINK_COLUMNS = ("app", "sink", "topic", "state", "batch", "rows", "rows/s", "behind", "restarts")
_FAILED = {"restarting": "failed and restarts", "failed": "failed"}  # by state
_WELL = "failed, and was restarted"
_COUNTS = {
    "received": "received",
    "finished": "finished",
    "failures": "failures",
    "sent back": "sent_back",
    "dead letters": "dead_lettered",
}


def groups_of(hosts: Sequence[Host], groups: Sequence[GroupDescription]) -> list[GroupDescription]:
    """Return those of *groups* that agents of the hosts belong to."""
    names = {agent.group for host in hosts for agent in _agents(host)}
    return [each for each in groups if each.group in names]


def living(groups: Sequence[GroupDescription]) -> list[GroupDescription]:
    """Return the groups with members that are heard."""
    return [each for each in groups if each.heard]


def groups_of_program(app: str, groups: Sequence[GroupDescription]) -> list[GroupDescription]:
    """Return the living groups whose names begin as those of an app's agents do."""
    return [each for each in living(groups) if each.group.startswith(f"{app}-")]


def show_program(app: str, groups: Sequence[GroupDescription], *, as_json: bool) -> None:
    """Print that an app runs as a program of its own: its processes, and its *groups*."""
    members = {name for each in groups for name in each.heard}
    processes = sorted({name.partition("#")[0].rpartition("@")[::2] for name in members})
    names = sorted({each.group for each in groups})
    where = ", ".join(f"pid {pid} on {machine}" for machine, pid in processes)
    found = {
        "program": app,
        "processes": [{"machine": machine, "pid": int(pid)} for machine, pid in processes],
        "groups": names,
    }
    shown = f"app {app} runs as a program, not by rocketray up: {where}; its groups: "
    emit(found, shown + ", ".join(names), as_json=as_json)


def queues_of(hosts: Sequence[Host], groups: Sequence[GroupDescription]) -> dict[str, int]:
    """Return how many queues each topic has whose queues the hosts share."""
    return {
        each.topic: len(each.offsets)
        for each in groups_of(hosts, groups)
        if not each.is_broadcast and not each.topic.startswith(RETRY_PREFIX)
    }


def idle_instances(queues: Mapping[str, int], consumers: int) -> list[str]:
    """Return a line for each topic of *queues* that has fewer than the app has instances."""
    return [
        f"topic {topic} has {counted(count, 'queue')}, and a queue is read by one instance at a "
        f"time: {consumers - count} of the {consumers} instances get none of its messages; run "
        f"{count}, or, if keys need not stay in their queues, add queues: rocketray topics "
        f"alter {topic} --queues {consumers}"
        for topic, count in sorted(queues.items())
        if count < consumers
    ]


def failures_of(hosts: Sequence[Host]) -> list[tuple[str, object, str]]:
    """Return what failed last, of each host and sink: its name, the failure, and a line on it."""
    found: list[tuple[str, object, str]] = []
    for host in hosts:
        if host.last_error is not None:
            line = f"host {host.number} failed and starts again: {host.last_error}"
            found.append((host.name, host.last_error, line))
        for sink in sinks_of(host):
            if sink.error is not None:
                line = f"sink {sink.name} failed and restarts: {sink.failure()}"
                found.append((f"{host.name} {sink.name}", (sink.restarts, sink.error), line))
    return found


def without_hosts(groups: Sequence[GroupDescription] | None) -> str:
    """Return the text for a node without hosts: an app may still run by itself.

    Members that did not report since the node started may be of processes that ended with it.
    *groups* is None if consumer groups are closed.
    """
    if groups is None:
        return "no app was started with rocketray up, and consumer groups are closed"
    heard = {each.group for each in living(groups)}
    silent = sorted({each.group for each in groups if each.unheard} - heard)
    if heard:
        return (
            "no app was started with rocketray up, but groups have members: "
            f"{', '.join(sorted(heard))}; they belong to apps that were started otherwise (python "
            "app.py), or to consumers; see: rocketray groups list"
        )
    said = "no app is up; start one with: rocketray up MODULE:APP"
    if silent:
        said += (
            f"\ngroups have members that have not reported since the node started: "
            f"{', '.join(silent)}; they are removed when their leases expire"
        )
    return said


def show_hosts(hosts: list[Host], *, as_json: bool) -> None:
    """Print a line of JSON for each host; or tables of hosts, agents and sinks, and problems.

    These are the last failure of a host or sink, and messages that could not be decoded.
    """
    emit(map(host_fields, hosts), _shown_hosts(hosts), as_json=as_json)


def _shown_hosts(hosts: Sequence[Host]) -> Iterator[str | TextTable]:
    rows = [
        (
            host.app,
            host.number,
            host.status and host.status.machine,
            host.status and host.status.pid,
            host.state,
            host.restarts,
            _version(host),
            _queues(host) or None,
        )
        for host in hosts
    ]
    yield TextTable(_HOST_COLUMNS, rows, right=("host",))
    counts = attrgetter(*_COUNTS.values())
    agents = [
        (host.app, host.number, agent.name, *counts(agent))
        for host in hosts
        for agent in _agents(host)
    ]
    if agents:
        yield from ("", TextTable(("app", "host", "agent", *_COUNTS), agents))
    sinks = [_sink_row(host, sink) for host in hosts for sink in sinks_of(host)]
    if sinks:
        yield from ("", TextTable(_SINK_COLUMNS, sinks))
    yield from _log_lines(hosts)
    for line in (*_unknown(hosts), *_complaints(hosts)):
        yield f"\n{line}"


def _log_lines(hosts: Sequence[Host]) -> list[str]:
    """Return how the output of the hosts is read: on the machine of the node."""
    logging = [host for host in hosts if host.status is not None and host.status.logs]
    if not logging:
        return []
    names = "|".join(sorted({host.app for host in logging}))
    is_of_cluster = any(host.status is not None and not host.status.plan.data for host in logging)
    where = ", with --data DIR on the node's machine" if is_of_cluster else ""
    return ["", f"what they print and log: rocketray logs {names}{where}"]


def _unknown(hosts: Sequence[Host]) -> Iterator[str]:
    for host in hosts:
        if host.state == "silent":
            yield (
                f"{host.app} host {host.number}: its queues and counters are unknown, because it "
                f"did not answer within {STATUS_TIMEOUT_S:g} s; see: rocketray logs {host.app}"
            )


def _complaints(hosts: Sequence[Host]) -> Iterator[str]:
    for host in hosts:
        if (error := host.last_error) is not None:
            where = "" if error.is_here else f" on {error.machine}"
            when = as_time(error.time_ms)
            yield f"{host.app} host {host.number} failed at {when}{where}: {error}"
    for host in hosts:
        for sink in sinks_of(host):
            if sink.error is not None:
                what = _FAILED.get(sink.state.value, _WELL)
                yield f"{host.app} sink {sink.name} {what}: {sink.failure()}"
    yield from _stalls(hosts)
    for host in hosts:
        for agent in _agents(host):
            if agent.last_failure is not None:
                yield (
                    f"{host.app} host {host.number} agent {agent.name} failed last at "
                    f"{as_time(agent.last_failure.time_ms)}: {agent.last_failure}"
                )
            if agent.decode_failures:
                yield (
                    f"{host.app} host {host.number} agent {agent.name}: {agent.decode_failures} "
                    "failures to decode a message"
                )


def _stalls(hosts: Sequence[Host]) -> Iterator[str]:
    for host in hosts:
        if host.status is not None and (stall := host.status.stall) is not None:
            yield f"{host.app} host {host.number} at {as_time(stall.time_ms)}: {stall}"


def show_groups(groups: Sequence[GroupDescription], *, as_json: bool) -> None:
    """Print a line for each queue that is held at a message, and for each filter that failed.

    As JSON, print a line for each group and topic with such a queue or filter.
    """
    for each in sorted(groups, key=lambda each: (each.group, each.topic)):
        held, errors = sorted(each.failing.items()), each.counters.errors
        if not held and not errors:
            continue
        messages = [{"queueId": queue} | json_fields(message) for queue, message in held]
        names = {"group": each.group, "topic": each.topic}
        lines = [f"queue {queue} is {message}" for queue, message in held]
        if errors:
            lines.append(
                f"the filter failed on {counted(errors, 'message')}; see: rocketray filter stats"
            )
        emit(
            names | {"filterErrors": errors, "held": messages},
            (f"\ngroup {each.group}, topic {each.topic}: {line}" for line in lines),
            as_json=as_json,
        )


def show_unflushed(ages: Mapping[str, int | None], *, as_json: bool) -> None:
    """Print the age of the oldest message that is not on disk: the worst queue of each topic.

    *ages* are in ms by ``topic/queue``, None if it is unknown, which is worse than any age. As
    JSON, print one line with all queues that have such a message, the worst first.
    """
    waiting = [
        (*place.rpartition("/")[::2], age) for place, age in ages.items() if age is None or age > 0
    ]
    waiting.sort(key=lambda each: (each[2] is not None, -(each[2] or 0), each[0], int(each[1])))
    records = [
        {"topic": topic, "queueId": int(queue), "ageMs": age} for topic, queue, age in waiting
    ]
    # From the best to the worst, so that the worst queue of each topic is what stays.
    worst = {topic: (queue, age) for topic, queue, age in reversed(waiting)}
    rows = [
        (topic, queue, "unknown: its process does not answer" if age is None else _seconds(age))
        for topic, (queue, age) in reversed(worst.items())
    ]
    table = TextTable(("topic", "queue", "oldest message not on disk"), rows)
    shown = table if rows else "all stored messages are on disk"
    emit({"unflushed": records}, ("", shown), as_json=as_json)


def show_scrubs(scrubs: Mapping[str, ScrubState | None], *, as_json: bool) -> None:
    """Print when stored messages were last verified, and how far it is now: a line for each topic.

    *scrubs* are by ``topic/queue``, None where a process does not answer. Topics without a complete
    log file are left out. As JSON, print one line with all queues.
    """
    found = [(*place.rpartition("/")[::2], scrub) for place, scrub in scrubs.items()]
    found.sort(key=lambda each: (each[0], int(each[1])))
    records = [
        {"topic": topic, "queueId": int(queue), **_scrub_fields(scrub)}
        for topic, queue, scrub in found
    ]
    by_topic: dict[str, list[ScrubState | None]] = {}
    for topic, _, scrub in found:
        if scrub is None or scrub.all_bytes or scrub.verified_ms is not None:
            by_topic.setdefault(topic, []).append(scrub)
    columns = ("topic", "last verified", "under way", "damaged places")
    rows = [(topic, *_verified(all_of)) for topic, all_of in by_topic.items()]
    shown = ("", TextTable(columns, rows)) if rows else ()  # on a new node there is none to tell of
    emit({"verified": records}, shown, as_json=as_json)


def _verified(scrubs: Sequence[ScrubState | None]) -> tuple[str, str | None, str]:
    """Return the cells of a topic: the time of its queue that was verified longest ago, first."""
    known = [scrub for scrub in scrubs if scrub is not None]
    if len(known) < len(scrubs):
        return "unknown: a process does not answer", None, ""
    times = [scrub.verified_ms for scrub in known]
    last = "never" if None in times else as_time(min(time for time in times if time is not None))
    begun = [scrub for scrub in known if scrub.begun_ms is not None]
    done, size = (sum(getattr(one, name) for one in begun) for name in ("done_bytes", "all_bytes"))
    places = sum(len(scrub.damage) for scrub in known)
    return last or "never", f"{100 * done // size} %" if size else None, str(places)


def _scrub_fields(scrub: ScrubState | None) -> dict[str, Any]:
    if scrub is None:
        return {"verifiedMs": None}
    return {
        "verifiedMs": scrub.verified_ms,
        "begunMs": scrub.begun_ms,
        "doneBytes": scrub.done_bytes,
        "allBytes": scrub.all_bytes,
        "damage": [
            {"file": f"{scrub.directory}/{one.file}", "offset": one.offset, "problem": one.what}
            for one in scrub.damage
        ],
    }


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s"


def show_problems(lines: list[str], *, as_json: bool) -> None:
    """Print what is wrong with the node: a line, or a line of JSON, for each problem."""
    shown = (f"problem: {line}" for line in lines)
    emit(({"problem": line} for line in lines), ("", *shown) if lines else (), as_json=as_json)


def _version(host: Host) -> str | None:
    """Return the digest of a host's code, and when it was loaded."""
    version = None if host.status is None else host.status.version
    return None if version is None else f"{version} {as_time(version.loaded_ms)}"


def _queues(host: Host) -> str:
    """Return the queues by topic: ``Orders 0,1 Payments 3``."""
    by_topic: dict[str, list[str]] = {}
    for topic, queue in host.status.queues if host.status is not None else ():
        by_topic.setdefault(topic, []).append(str(queue))
    return " ".join(f"{topic} {','.join(queues)}" for topic, queues in by_topic.items())


def _agents(host: Host) -> Sequence[AgentStatistics]:
    return () if host.status is None else host.status.agents


def sinks_of(host: Host) -> Sequence[SinkStatistics]:
    return () if host.status is None else host.status.sinks


def _sink_row(host: Host, sink: SinkStatistics) -> tuple[object, ...]:
    return (
        host.app,
        sink.name,
        sink.topic,
        sink.state.value,
        sink.batch_id,
        sink.batch_rows,
        None if sink.rows_per_s is None else round(sink.rows_per_s),
        sink.lag,
        sink.restarts,
    )


def host_fields(host: Host) -> dict[str, Any]:
    status, error = host.status, host.last_error
    return {
        "app": host.app,
        "host": host.number,
        "state": host.state,
        "restarts": host.restarts,
        "lastError": error
        and {
            "type": error.kind,
            "message": error.message,
            "place": error.place,
            "time": error.time_ms,
            "machine": error.machine,
        },
        "machine": status and status.machine,
        "pid": status and status.pid,
        "path": status and status.plan.path,
        "version": status and status.version and status.version.digest,
        "loaded": status and status.version and status.version.loaded_ms,
        "logs": list(status.logs) if status else [],
        "stall": status and status.stall and _stall_fields(status.stall),
        "agents": [_agent_fields(each) for each in _agents(host)],
        "sinks": [_sink_fields(each) for each in sinks_of(host)],
        "queues": [
            {"topic": topic, "queueId": queue} for topic, queue in (status.queues if status else ())
        ],
    }


def _stall_fields(stall: LoopStall) -> dict[str, Any]:
    place = json_fields(stall.place) if stall.place else {}
    return {
        "time": stall.time_ms,
        "seconds": round(stall.seconds, 3),
        "isOver": stall.is_over,
        "who": stall.who,
        "frame": stall.frame,
        **place,
        "text": str(stall),
    }


def _agent_fields(agent: AgentStatistics) -> dict[str, Any]:
    found = json_fields(agent)
    del found["batches"], found["held"], found["lastFailure"]
    failure = agent.last_failure
    place = failure and failure.place
    found["lastError"] = failure and {
        "time": failure.time_ms,
        "reason": failure.reason,
        **(json_fields(place) if place else {}),
    }
    return {"agent": found.pop("name"), **found}


def _sink_fields(sink: SinkStatistics) -> dict[str, Any]:
    found = json_fields(sink)
    return {"sink": found.pop("name"), **found, "state": sink.state.value}

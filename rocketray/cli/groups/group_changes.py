"""``rocketray groups reset``, ``skip``, ``seek``, ``clone`` and ``migrate``: what a group reads."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.base.quantity import counted
from rocketray.cli.arguments.completions import complete_topics
from rocketray.cli.arguments.filter_choice import FilterOptions, filter_on_node
from rocketray.cli.arguments.filter_diffs import diff_lines
from rocketray.cli.arguments.found_hosts import apps_of, host_of_member
from rocketray.cli.arguments.lookup_options import parse_place, parse_time_ms
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import (
    SCAN_DEFAULT,
    CommonOptions,
    GroupArgument,
    OnlyQueueOption,
    TopicArgument,
    chosen_groups,
    group_argument,
    tell_doubts_of,
    tell_note,
)
from rocketray.cli.terminal.output import progress, table_of
from rocketray.errors import ConfigError, StreamError
from rocketray.runtime.machine import user_name
from rocketray.views.message_records import diff_record
from rocketray.views.node_records import move_record, plan_record

if TYPE_CHECKING:
    from rocketray.cli.arguments.node import AskedClient
    from rocketray.filters.subscription import Subscription
    from rocketray.groups.filter_plan import FilterPlan
    from rocketray.groups.filter_plans import PlanProgress
    from rocketray.hosting.host_status import Host
    from rocketray.messaging.api.node_client import NodeClient
    from rocketray.services.admin.seeking import OffsetMove, Target

_WAIT_S = 30.0  # for members to release the queues: a silent one does when its 10 s are over
_EXAMPLES = 5  # of each difference, in a dry run
_NOTHING_CHANGED = "nothing was changed; leave out --dry-run to do it"

OnlyTopicOption = Annotated[
    str | None,
    typer.Option(metavar="TOPIC", help="Only this topic.", autocompletion=complete_topics),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would change; change nothing.")
]


@dataclass(frozen=True, slots=True)
class _MoveOptions:
    """The options of each command that moves offsets."""

    queue: OnlyQueueOption = None
    dry_run: DryRunOption = False


def reset(
    group: GroupArgument,
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="earliest, latest, or a time: the first message stored then or later.",
        ),
    ],
    topic: OnlyTopicOption = None,
    moved: _MoveOptions,
    common: CommonOptions,
) -> None:
    """Reset a group's offsets, to a time or to an end.

    Members need not stop: each releases the queues that move, with its last commits, and resumes
    after the move. Messages between the old and the new offset are skipped, or redelivered.

    Examples:
        rocketray groups reset audit --to 2026-11-21T08:30:00Z --dry-run
        rocketray groups reset audit --to earliest --topic Trade
    """
    goal = parse_place(to)
    if isinstance(goal, int):
        _move("reset", group, topic, moved, common, time_ms=goal)
    else:
        _move("reset", group, topic, moved, common, to=goal)


def skip(
    group: GroupArgument,
    *,
    topic: OnlyTopicOption = None,
    moved: _MoveOptions,
    common: CommonOptions,
) -> None:
    """Skip all messages that a group has not finished.

    It continues with messages that are sent from now on. Members need not stop; see "groups reset".

    Examples:
        rocketray groups skip audit --dry-run
        rocketray groups skip audit --topic Trade --queue 3
    """
    _move("skip", group, topic, moved, common, to="latest")


def seek(
    group: GroupArgument,
    topic: TopicArgument,
    *,
    offset: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="This queue offset.")
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(
            "--time",
            parser=parse_time_ms,
            metavar="TIME",
            help="The first message stored then or later.",
        ),
    ] = None,
    moved: _MoveOptions,
    common: CommonOptions,
) -> None:
    """Move a group's offsets in one topic to an offset or a time.

    It moves all queues of the topic, or one with --queue. Members need not stop; see "groups
    reset".

    Examples:
        rocketray groups seek audit Trade --time 2026-11-21T08:30:00Z
        rocketray groups seek audit Trade --queue 3 --offset 1200
    """
    if (offset is None) == (at is None):
        raise typer.BadParameter("give one of --offset and --time")
    _move("seek", group, topic, moved, common, time_ms=at, offset=offset)


def clone(
    source: Annotated[str, group_argument("The group whose offsets are taken.", "FROM")],
    group: Annotated[str, group_argument("The group that gets them; it may be new.", "TO")],
    *,
    topic: OnlyTopicOption = None,
    dry_run: DryRunOption = False,
    common: CommonOptions,
) -> None:
    """Give a group the offsets of another one.

    As mqadmin's cloneGroupOffset. The offsets of FROM are those of this moment; it reads on, and
    nothing of it changes. Members of TO need not stop; see "groups reset". A TO that does not read
    a topic yet gets the filter of FROM there, until its first member brings its own. Failed
    messages that wait for redelivery stay with FROM.

    Examples:
        rocketray groups clone audit audit-next --dry-run
        rocketray groups clone audit audit-next --topic Trade
    """
    from rocketray.services.admin.seeking import plan_clone  # slow

    with ask(common.data) as connection:
        found = connection.groups.all()
        chosen_groups(found, source)
        moves = plan_clone(found, source, group, topic)
        if not dry_run:
            _carry_out(connection, "clone", moves, like=source)
    _show_moves(moves, common, dry_run=dry_run)


def _move(
    command: str,
    group: str,
    topic: str | None,
    moved: _MoveOptions,
    common: CommonOptions,
    *,
    to: Target = "latest",
    time_ms: int | None = None,
    offset: int | None = None,
) -> None:
    from rocketray.services.admin.seeking import plan_moves  # slow

    with ask(common.data) as connection:
        found = [
            each
            for each in chosen_groups(connection.groups.all(), group)
            if topic in (None, each.topic)
        ]
        if not found:
            raise ConfigError(f"group {group!r} does not read topic {topic!r}")
        moves = plan_moves(
            connection, found, to=to, time_ms=time_ms, offset=offset, queue_id=moved.queue
        )
        if not moved.dry_run:
            _carry_out(connection, command, moves)
    _show_moves(moves, common, dry_run=moved.dry_run)


def _carry_out(
    node: NodeClient, command: str, moves: Sequence[OffsetMove], *, like: str = ""
) -> None:
    from rocketray.services.admin.seeking import carry_out  # slow

    who = f"rocketray groups {command} by {user_name()} on {socket.gethostname()}"
    carry_out(node.groups, moves, _WAIT_S, who=who, like=like)


def _show_moves(moves: Sequence[OffsetMove], common: CommonOptions, *, dry_run: bool) -> None:
    columns = ("topic", "queue", "from", "to", "skipped", "repeated")
    rows = [move_record(move, moved=not dry_run) for move in moves]
    table = table_of(rows, columns, {"queue": "queueId"})
    common.emit(rows, (table, *([_NOTHING_CHANGED] if dry_run else [])))


def migrate(
    group: GroupArgument,
    topic: TopicArgument,
    *,
    subscribed: FilterOptions,
    abort: Annotated[
        bool, typer.Option("--abort", help="Drop a change before any queue has begun to switch.")
    ] = False,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", metavar="S", min=0, help="Maximum time to wait, in seconds."),
    ] = 60.0,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Compare both filters on what the group has not read, and count its failed "
            "messages that wait; change nothing.",
        ),
    ] = False,
    common: CommonOptions,
) -> None:
    """Change what a group subscribes to while its members run.

    First the group holds both subscriptions, and members may ask for either. When all members have
    received the change, each queue switches at one offset: below it exactly the old filter
    delivers, from it on exactly the new one. Then replace the members by ones that ask for the new
    subscription; with the last of them the change is complete. An interrupted command may be
    repeated. A --filter without a version is the latest one.

    Examples:
        rocketray groups migrate audit Trade --sql "amount > 200" --dry-run
        rocketray groups migrate audit Trade --filter large@2
    """
    from rocketray.services.admin import migration

    if not abort and not subscribed.is_given:
        raise typer.BadParameter(
            "give the new filter with --tags, --sql, --where or --filter; --tags '*' is all messages"
        )
    chosen = subscribed.chosen()
    with ask(common.data) as connection:
        if abort:
            connection.groups.abort_change(group, topic)
            common.emit({"aborted": True}, "the change was dropped")
            return
        subscription = filter_on_node(connection, topic, chosen)
        tell_doubts_of(connection, [topic], subscription)
        if dry_run:
            _compare(connection, group, topic, subscription, common)
            return
        found = migration.migrate(
            connection.groups, group, topic, subscription, timeout_s=timeout_s, tell=progress
        )
        hosts = _hosts(connection) if found is not None and found.outdated else []
    record = plan_record(found) | _host_fields(found, hosts)
    common.emit(record, "\n".join(_lines(group, topic, found, hosts)))


def _compare(
    node: AskedClient, group: str, topic: str, new: Subscription, common: CommonOptions
) -> None:
    """Show what the group would get with the new filter, of what it has not read yet."""
    from rocketray.broker.filtering.filter_diff import diff_filters  # imports Arrow
    from rocketray.broker.filtering.preview import PreviewRange  # NumPy and Arrow
    from rocketray.messaging.api.queues_here import queues_of
    from rocketray.services.admin.waiting_retries import waiting_retries  # NumPy

    there = chosen_groups(node.groups.all(), group)
    found = next((each for each in there if each.topic == topic), None)
    if found is None:
        raise ConfigError(f"group {group!r} does not read topic {topic!r}")
    here = queues_of(node, node.topics.get(topic))
    filters = found.subscription, new
    within = PreviewRange(limit=SCAN_DEFAULT)
    compared = diff_filters(here.directories, topic, filters, within, found.offsets, show=_EXAMPLES)
    retries = waiting_retries(node, group, scan_max=SCAN_DEFAULT)
    tell_note(here.note())
    record = {
        "group": group,
        "topic": topic,
        **diff_record(filters, compared),
        "queuesElsewhere": list(here.elsewhere),
        "waitingRetries": retries.to_json(),
        "changed": False,
    }
    least = "" if retries.is_exact else "at least "
    waiting = (
        f"to be redelivered whatever the filter is: {least}"
        f"{counted(retries.count, 'failed message')} of the group"
    )
    shown = (
        f"what group {group} has not read of topic {topic}, with {filters[0]} and {new}:",
        *diff_lines(compared),
        *([waiting] if retries.count or least else []),
        _NOTHING_CHANGED,
    )
    common.emit(record, shown)


def _hosts(node: NodeClient) -> list[Host]:
    """Return the hosts of apps, if Ray says which there are."""
    try:
        return apps_of(node).hosts(None)
    except StreamError as error:
        progress(f"warning: the hosts of apps are unknown: {error}")
        return []


def _host_fields(found: PlanProgress | None, hosts: Sequence[Host]) -> dict[str, Any]:
    """Return the app and the host of each member to be replaced that one has."""
    owners = [host_of_member(each, hosts) for each in found.outdated] if found is not None else []
    named = [{"app": host.app, "host": host.number} for host in owners if host is not None]
    return {"outdatedHosts": named} if named else {}


def _replace_lines(plan: FilterPlan, outdated: Sequence[str], hosts: Sequence[Host]) -> list[str]:
    """Return which members are to be replaced, by the names in "rocketray status", and how."""
    first = "change the agent's filter in its code, then"
    if plan.new.named and plan.new.named.partition("@")[0] == plan.old.named.partition("@")[0]:
        first = f"agents whose code has the filter without a version get {plan.new.named} with"
    owners = {each: host_of_member(each, hosts) for each in outdated}
    names = [
        client if host is None else f"{host.app} host {host.number} ({client})"
        for client, host in owners.items()
    ]
    paths = sorted(
        {host.status.plan.path for host in owners.values() if host and host.status is not None}
    )
    lines = [f"members to be replaced, as they ask for the old one: {', '.join(names)}"]
    lines += [f"{first}: rocketray up {path} --replace" for path in paths]
    if any(host is None for host in owners.values()):
        lines.append(
            "members that are no hosts of rocketray up: start their programs again with the new "
            "filter; an id names machine and process"
        )
    return lines


def _lines(group: str, topic: str, found: PlanProgress | None, hosts: Sequence[Host]) -> list[str]:
    if found is None:
        return [f"group {group} reads topic {topic} with the new subscription"]
    lines = [
        f"queue {queue} switches at offset {offset}"
        for queue, offset in sorted(found.plan.switches.items())
    ]
    if found.without_switch:
        way_out = "" if found.plan.switches else ", and until then --abort drops the change"
        lines.append(
            f"queues {_queues(found.without_switch)} have no consumer; they switch when one joins"
            f"{way_out}"
        )
    if found.before_switch:
        lines.append(f"queues {_queues(found.before_switch)} have not reached their switch")
    if found.outdated:
        lines += _replace_lines(found.plan, found.outdated, hosts)
    return lines


def _queues(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))

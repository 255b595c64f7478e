"""``rocketray topics``: create, list, describe, change and remove topics."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, Literal, Self

import typer

from rocketray.base.ack_mode import ACK_PROMISES, AckMode
from rocketray.base.quantity import counted
from rocketray.base.units import format_bytes, format_duration
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.topic_start import TopicProgress
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import (
    CommonOptions,
    QueuesOption,
    TopicArgument,
)
from rocketray.cli.terminal.output import TextTable, progress
from rocketray.cli.terminal.quantities import (
    parse_bytes,
    parse_duration,
    parse_queues_per_process,
)
from rocketray.cli.terminal.usage import usage_error
from rocketray.cli.terminal.waiting import AGAIN_S
from rocketray.errors import ConfigError
from rocketray.messaging.api.node_client import NodeClient
from rocketray.services.health.day_totals import DayReadings, read_days
from rocketray.store.retention import RetentionPolicy
from rocketray.views.node_records import days_record, described_topic, topic_record

from .flow_status import shown_days

topics = typer.Typer(help="Create, list, describe, change and remove topics.", no_args_is_help=True)
_QUEUES_DEFAULT = 4  # as RocketMQ's producers: defaultTopicQueueNums
_KeepOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Remove messages at this age: 90s, 72h, 7d.")
]
_KeepBytesOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Remove a queue's oldest messages above this size: 500MB, 10GiB."
    ),
]
_QueuesPerProcessOption = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="How many of its queues share a process of its own, or shared, for the process of "
        "the system topics.  [default: what rocketray start says]",
    ),
]
_PERMISSIONS = {"2": 2, "4": 4, "6": 6, "w": 2, "r": 4, "rw": 6, "wr": 6}
"""RocketMQ's numbers, and the letters that files have."""


def _parse_permission(text: str) -> int:
    if text not in _PERMISSIONS:
        raise typer.BadParameter(f"{text!r} is no permission; give r, w or rw, or 4, 2 or 6")
    return _PERMISSIONS[text]


_BitmapsOption = Annotated[
    Literal["auto", "on", "off"] | None,
    typer.Option(
        help="Keep filter bitmaps for SQL92 groups: on, off, or auto (where they save time)."
    ),
]
_SILENT_S = 5.0  # a start that takes less says nothing


class TopicWait:
    """The progress on stderr while the queues of a topic start, shown at each call.

    In a terminal it is a live line; elsewhere a line when it takes a while, and again every 15
    seconds. At the end ``started`` counts the queues that were missing.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.started = 0
        self._clock_s = clock_s
        self._latest: TopicProgress | None = None
        self._say_again_s = clock_s() + _SILENT_S
        self._live: Callable[[str], None] | None = None
        self._open = ExitStack()

    def __call__(self, report: TopicProgress) -> None:
        self._latest, self.started = report, report.started
        if self._live is not None:
            self._live(f"{_count(report)} run")
        elif report.running < report.queues and (now_s := self._clock_s()) > self._say_again_s:
            self._say_again_s = now_s + AGAIN_S
            progress(f"{_count(report)} run; the others are being started")

    def __enter__(self) -> Self:
        """Return this object, with a live line if stderr is a terminal."""
        if sys.stderr.isatty():
            from rocketray.cli.terminal.progress import ProgressDisplay  # imports rich

            self._live = self._open.enter_context(ProgressDisplay(sys.stderr)).show
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        """Remove the live line, and say how to continue after Ctrl-C."""
        self._open.close()
        latest = self._latest
        if isinstance(error, KeyboardInterrupt) and latest and latest.running < latest.queues:
            progress(f"interrupted: {_count(latest)} run; the same command starts the others")


def _count(report: TopicProgress) -> str:
    return f"topic {report.topic}: {report.running} of {counted(report.queues, 'queue')}"


@topics.command()
def create(
    topic: TopicArgument,
    *,
    queues: QueuesOption = _QUEUES_DEFAULT,
    queues_per_process: _QueuesPerProcessOption = None,
    retention: _KeepOption = None,
    retention_bytes: _KeepBytesOption = None,
    bitmaps: _BitmapsOption = None,
    ack: Annotated[
        AckMode | None,
        typer.Option(
            help=f"When a message is acknowledged, unless its sender says: {ACK_PROMISES}.  "
            "[default: what the node says]",
            show_default=False,
        ),
    ] = None,
    common: CommonOptions,
) -> None:
    """Create a topic. An existing one is not changed; its queues must be as many as asked for.

    Returns when all its queues answer, which takes some time on a busy machine. If it was
    interrupted, or failed, the same command starts the missing queues.

    Without --retention and --retention-bytes the topic keeps every message until it is removed.

    Examples:
        rocketray topics create Trade
        rocketray topics create Trade --queues 16 --retention 7d --ack disk
    """
    policy = _retention(retention, retention_bytes)
    per_process = parse_queues_per_process(queues_per_process)
    with ask(common.data) as connection:
        exists = topic in connection.topics.all()
        with TopicWait() as wait:
            config = connection.topics.ensure(
                topic,
                queues,
                on_progress=wait,
                retention=policy,
                queues_per_process=per_process,
                ack=ack,
            )
        if exists and wait.started:
            progress(
                f"topic {topic} existed, with {wait.started} of its "
                f"{counted(config.queues, 'queue')} missing; all of them run now"
            )
        if config.queues != queues:
            raise ConfigError(
                f"topic {topic!r} exists with {counted(config.queues, 'queue')}, not {queues}; "
                f"add queues with: rocketray topics alter {topic} --queues N"
            )
        if bitmaps is not None and (wait.started or not exists):
            config = connection.topics.set_bitmaps(topic, bitmaps)
        _show(connection, config, common)


@topics.command("list")
def list_all(
    *,
    with_system: Annotated[bool, typer.Option("--all", help="Also list system topics.")] = False,
    common: CommonOptions,
) -> None:
    """List the topics, with their queues and permissions.

    Examples:
        rocketray topics list
        rocketray topics list --all --json
    """
    with ask(common.data) as connection:
        configs = sorted(connection.topics.all().values(), key=lambda config: config.name)
    configs = [config for config in configs if with_system or not config.internal]
    rows = (
        (each.name, each.queues, _permission(each), _keeps(each), each.bitmaps, _ack(each))
        for each in configs
    )
    columns = ("topic", "queues", "allows", "keeps", "bitmaps", "ack")
    common.emit(map(topic_record, configs), TextTable(columns, rows))


@topics.command()
def describe(topic: TopicArgument, *, common: CommonOptions) -> None:
    """Show a topic, and the offsets of its queues.

    minOffset is the first message that is stored, maxOffset the next one to come. A storeHost only
    makes the ids of the queue's messages unique: nothing listens there.

    A line says how many messages were stored today and yesterday, since midnight in the zone of the
    node. They are counted in the store; "at least" says that retention may have removed some.

    Examples:
        rocketray topics describe Trade
        rocketray topics describe Trade --json
    """
    with ask(common.data) as connection:
        config = connection.topics.get(topic)
        _show(connection, config, common, read_days(connection, {topic: config}))


@topics.command()
def alter(
    topic: TopicArgument,
    *,
    queues: Annotated[
        int | None,
        typer.Option(metavar="N", help="The new number of queues; it cannot be reduced."),
    ] = None,
    permission: Annotated[
        int | None,
        typer.Option(
            "--perm",
            metavar="N",
            parser=_parse_permission,
            help="Permissions: w or 2 to send, r or 4 to consume, rw or 6 both.",
        ),
    ] = None,
    retention: _KeepOption = None,
    retention_bytes: _KeepBytesOption = None,
    bitmaps: _BitmapsOption = None,
    ack: Annotated[
        Literal[AckMode, "node"] | None,
        typer.Option(
            help=f"When a message is acknowledged, unless its sender says: {ACK_PROMISES}; "
            "node: as the node says."
        ),
    ] = None,
    common: CommonOptions,
) -> None:
    """Change a topic: queues, permissions, limits, acknowledgement.

    --retention none and --retention-bytes none remove the limit. --bitmaps takes effect at once,
    for messages that arrive from then on. --ack takes effect at once for producers that start, and
    within half a minute for those that run.

    Examples:
        rocketray topics alter Trade --queues 32
        rocketray topics alter Trade --retention none --bitmaps on
    """
    changes = queues, permission, retention, retention_bytes, bitmaps, ack
    if all(option is None for option in changes):
        raise typer.BadParameter(
            "name what to change: --queues, --perm, --retention, --retention-bytes, --bitmaps or "
            "--ack"
        )
    _retention(retention, retention_bytes)
    with ask(common.data) as connection:
        config = connection.topics.get(topic)
        if queues is not None:
            with TopicWait() as wait:
                config = connection.topics.alter(topic, queues, on_progress=wait)
        if permission is not None:
            config = connection.topics.set_permission(topic, permission)
        if retention is not None or retention_bytes is not None:
            policy = _retention(retention, retention_bytes, config.retention)
            config = connection.topics.set_retention(topic, policy)
        if bitmaps is not None:
            config = connection.topics.set_bitmaps(topic, bitmaps)
        if ack is not None:
            config = connection.topics.set_ack(topic, None if ack == "node" else ack)
        _show(connection, config, common)


@topics.command()
def delete(
    topic: TopicArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    common: CommonOptions,
) -> None:
    """Remove a topic and all its messages. Asks first, unless --yes is given.

    Examples:
        rocketray topics delete Trade
        rocketray topics delete Trade --yes
    """
    with ask(common.data) as connection:
        connection.topics.get(topic)
        if not yes and not _is_wanted(topic):
            raise typer.Exit(1)
        connection.topics.delete(topic)
    common.emit({"topic": topic, "deleted": True}, f"topic {topic} was removed")


def _is_wanted(topic: str) -> bool:
    """Ask whether to remove *topic*; the end of the input means no."""
    try:
        return typer.confirm(f"Remove topic {topic} and all its messages?", err=True)
    except typer.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
    progress(f"\ntopic {topic} was not removed; add --yes to remove it without confirmation")
    return False


def _show(
    node: NodeClient, config: TopicConfig, common: CommonOptions, days: DayReadings | None = None
) -> None:
    record = described_topic(config, node.shard_statistics(config.name))
    stored = []
    if days is not None:
        record["stored"] = days_record(days, config.name)
        stored.append(shown_days(days, config.name))
    columns = ("queueId", "minOffset", "maxOffset", "storeHost", "process")
    head = (
        f"topic {config.name}: {counted(config.queues, 'queue')}, allows {_permission(config)}, "
        f"keeps {_keeps(config)}; filter bitmaps {config.bitmaps}"
        f"{', kept now' if record['bitmapsKept'] else ', none kept now'}; ack {_ack(config)}"
    )
    table = TextTable(columns, [[each[name] for name in columns] for each in record["queueList"]])
    note = "store hosts only make message ids unique; nothing listens there"
    common.emit(record, (head, *stored, table, note))


@usage_error()
def _retention(
    age: str | None, size: str | None, present: RetentionPolicy | None = None
) -> RetentionPolicy:
    """Return the retention of the two options; one that is absent keeps its value of *present*."""
    from rocketray.store.retention import KEEP_ALL

    present = present or KEEP_ALL
    return replace(  # a changelog still compacts
        present,
        max_age_ms=present.max_age_ms if age is None else parse_duration(age),
        max_bytes=present.max_bytes if size is None else parse_bytes(size),
    )


def _keeps(config: TopicConfig) -> str:
    limits = []
    if config.retention.max_age_ms is not None:
        limits.append(format_duration(config.retention.max_age_ms))
    if config.retention.max_bytes is not None:
        limits.append(f"{format_bytes(config.retention.max_bytes)} a queue")
    return " or ".join(limits) or "all messages"


def _ack(config: TopicConfig) -> str:
    return config.default_ack if config.ack else f"{config.default_ack}, as the node"


def _permission(config: TopicConfig) -> str:
    names = (("sending", config.writable), ("consuming", config.readable))
    return " and ".join(name for name, is_allowed in names if is_allowed) or "nothing"

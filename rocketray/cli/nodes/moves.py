"""``rocketray move-queue``, ``drain`` and ``rebalance``: queues go to other disks, on purpose."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.base.quantity import counted
from rocketray.broker.topics.placement import DiskSpace, QueueMove, drained, rebalanced
from rocketray.broker.topics.service_queues import may_move
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import CommonOptions
from rocketray.cli.terminal.output import print_line, progress
from rocketray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rocketray.broker.disks.copy_rounds import RoundProgress
    from rocketray.messaging.api.node_client import NodeClient
    from rocketray.runtime.files.home import Home

_STEP_S = 2.0  # a call returns after it, with how far the copy is
_MB = 1_000_000
_DISK = "UUID of the disk, or its first characters; see: rocketray topology"
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the moves, and make none of them.")
]


def move_queue(
    topic: Annotated[str, typer.Argument(help="Topic of the queue.")],
    queue_id: Annotated[int, typer.Argument(metavar="QUEUE", help="Number of the queue, from 0.")],
    disk: Annotated[str, typer.Argument(help=_DISK)],
    *,
    common: CommonOptions,
) -> None:
    """Move a queue to another disk of the cluster.

    Messages, offsets and message ids stay as they are. The files are copied while the queue is
    used; then it stores nothing for a moment. Producers and groups follow by themselves. If the
    move fails, the queue stays where it is.

    Examples:
        rocketray move-queue Trade 3 5e0c1f
        rocketray --cluster trade move-queue Trade 0 5e0c1f
    """
    with ask(common.data) as connection:
        homes = connection.disks.homes()
        target = _disk(homes, disk)
        source = connection.topics.get(topic)
        source.check_queue(queue_id)
        move = QueueMove(queue_id, source.disk_of(queue_id), target)
        _carry_out(connection, homes, [(topic, move)], common)


def drain(
    disk: Annotated[str, typer.Argument(help=_DISK)],
    *,
    undo: Annotated[
        bool, typer.Option("--undo", help="Give the disk queues again; none is moved back.")
    ] = False,
    dry_run: DryRunOption = False,
    common: CommonOptions,
) -> None:
    """Move all queues from a disk to the others.

    It gets no new ones. After that its node can be stopped for good, once the delayed messages and
    transactions that are left there are done: the command says how many there are. Dead letters,
    changelogs and replies stay on the first disk. Repeat the command after an interruption: it
    continues.

    Examples:
        rocketray drain 5e0c1f --dry-run
        rocketray drain 5e0c1f
    """
    with ask(common.data) as connection:
        homes = connection.disks.homes()
        leaving = _disk(homes, disk)
        if not dry_run:
            connection.disks.set_draining(leaving, not undo)
        if undo:
            print_line(f"disk {homes[leaving].uuid} gets queues again")
            return
        targets = [each for each in _targets(connection) if each.disk != leaving]
        if not targets:
            raise ConfigError("no other disk takes queues now; see: rocketray topology")
        moves = [
            (topic.name, move)
            for topic in connection.topics.all().values()
            if leaving in topic.by_disk() and may_move(topic.name, internal=topic.internal)
            for move in drained(targets, topic.disks or ("",) * topic.queues, leaving)
        ]
        if not moves:
            progress(f"disk {homes[leaving].uuid} has no queues that can be moved")
        _carry_out(connection, homes, moves, common, dry_run=dry_run)
        waiting = connection.delays.waiting(leaving)
        undecided = connection.transactions.undecided(leaving)
        if waiting or undecided:
            progress(
                f"{counted(waiting, 'delayed message')} and {counted(undecided, 'transaction')} are "
                f"left on disk {homes[leaving].uuid}: let its node run until they are done; the "
                "same command says how many there still are"
            )


def rebalance(*, dry_run: DryRunOption = False, common: CommonOptions) -> None:
    """Spread the queues of each topic evenly over the disks.

    They are spread as those of a new topic. As few queues as possible are moved, one by one. Disks
    that do not answer, or are being drained, take no part.

    Examples:
        rocketray rebalance --dry-run
        rocketray rebalance
    """
    with ask(common.data) as connection:
        homes, targets = connection.disks.homes(), _targets(connection)
        moves = [
            (topic.name, move)
            for topic in connection.topics.all().values()
            if not topic.internal
            for move in rebalanced(targets, topic.disks or ("",) * topic.queues)
        ]
        if not moves:
            progress("the queues are spread evenly already; nothing is moved")
        _carry_out(connection, homes, moves, common, dry_run=dry_run)


def _targets(connection: NodeClient) -> list[DiskSpace]:
    """Return the disks that take queues."""
    draining = connection.disks.draining()
    return [
        DiskSpace(name, report.zone, report.free_bytes)
        for name, report in connection.disks.reports().items()
        if name not in draining
    ]


def _disk(homes: Mapping[str, Home], given: str) -> str:
    """Return the name in the catalog of the disk that *given* means."""
    found = [name for name, home in homes.items() if given and home.uuid.startswith(given)]
    if len(found) != 1:
        uuids = ", ".join(sorted(home.uuid for home in homes.values()))
        how_many = "no disk" if not found else f"{len(found)} disks"
        raise ConfigError(f"{given!r:.60} is the beginning of {how_many}; the disks are: {uuids}")
    return found[0]


def _carry_out(
    connection: NodeClient,
    homes: Mapping[str, Home],
    moves: Sequence[tuple[str, QueueMove]],
    common: CommonOptions,
    *,
    dry_run: bool = False,
) -> None:
    for number, (topic, move) in enumerate(moves, 1):
        said: dict[str, Any] = {
            "topic": topic,
            "queue": move.queue_id,
            "from": homes[move.source].uuid,
            "to": homes[move.target].uuid,
        }
        line = f"{topic}/{move.queue_id}: {said['from']} -> {said['to']}"
        if not dry_run:
            what = f"move {number} of {len(moves)}, queue {topic}/{move.queue_id}"
            figures, rest = _move_shown(connection, topic, move, what)
            said, line = {**said, **figures}, f"{line}: {rest}"
        common.emit(said, line)


def _move_shown(
    connection: NodeClient, topic: str, move: QueueMove, what: str
) -> tuple[dict[str, Any], str]:
    from rocketray.cli.terminal.progress import ProgressDisplay  # imports rich

    with ProgressDisplay(sys.stderr) as shown:
        shown.show(what)
        return _move(connection, topic, move, lambda done: shown.show(f"{what}: {_text(done)}"))


def _text(done: RoundProgress) -> str:
    total = done.differing_bytes
    if not total:
        return "comparing with its copy"
    return f"{100 * done.fetched_bytes // total} % of {total / _MB:,.0f} MB copied"


def _move(
    connection: NodeClient,
    topic: str,
    move: QueueMove,
    on_progress: Callable[[RoundProgress], object],
) -> tuple[dict[str, Any], str]:
    """Make a move; return its figures, and a text of them."""
    from rocketray.broker.disks.disks_api import MovedQueue

    moved = connection.disks.move(topic, move.queue_id, move.target, _STEP_S)
    while not isinstance(moved, MovedQueue):
        on_progress(moved)
        moved = connection.disks.move(topic, move.queue_id, move.target, _STEP_S)
    # An empty queue is copied in no measurable time.
    rate = moved.copied_bytes / max(moved.copied_s, 1e-3) / 1e6
    figures = {
        "copiedBytes": moved.copied_bytes,
        "copiedSeconds": round(moved.copied_s, 3),
        "stoppedBytes": moved.stopped_bytes,
        "stoppedSeconds": round(moved.stopped_s, 3),
    }
    megabytes = (moved.copied_bytes + moved.stopped_bytes) / 1e6
    speed = f", {rate:.0f} MB/s" if megabytes >= 1 else ""
    return figures, f"{megabytes:.1f} MB{speed}; nothing was stored for {moved.stopped_s:.2f} s"

"""``rocketray topology``: the disks of a cluster, and where the queues of its topics are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.base.quantity import counted
from rocketray.base.units import format_size
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import CommonOptions
from rocketray.cli.terminal.output import TextTable, print_line
from rocketray.views.node_records import disk_records

from .topology_svg import topology_svg

if TYPE_CHECKING:
    from rocketray.broker.topics.catalog import TopicConfig

_DISK_COLUMNS = ("disk", "machine", "directory", "zone", "state", "free", "queues")


def topology(
    *,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture to FILE, as SVG.")
    ] = None,
    common: CommonOptions,
) -> None:
    """Show the disks of a cluster, and where queues are.

    A disk is a data directory with a node. New queues are placed on disks that answer: over zones
    first, then over the disks of a zone, then where there is most room. With --json, each disk is
    an object with the key "disk", and each topic one with the key "topic" and its queues by disk.
    With --svg, the same is drawn.

    Examples:
        rocketray topology
        rocketray --cluster trade topology --svg trade.svg
    """
    with ask(common.data) as connection:
        topics = connection.topics.all()
        disks = disk_records(connection, topics)
    names = {disk["name"]: disk["disk"] for disk in disks}
    by_topic = {
        name: {names.get(disk, disk): ids for disk, ids in topic.by_disk().items()}
        for name, topic in sorted(topics.items())
    }
    if svg is not None:
        svg.write_text(topology_svg(disks, by_topic), "utf-8")
        print_line(f"{svg}: {counted(len(disks), 'disk')}")
        return
    records = [{key: value for key, value in disk.items() if key != "name"} for disk in disks]
    records += [
        {"topic": name, "internal": topics[name].internal, "queues": queues}
        for name, queues in by_topic.items()
    ]
    common.emit(records, _tables(disks, topics))


def _tables(
    disks: Sequence[Mapping[str, Any]], topics: Mapping[str, TopicConfig]
) -> Iterator[str | TextTable]:
    """Yield a table of the disks, and one of the queues that each has of a user's topics."""
    rows = []
    for disk in disks:
        state = disk["state"] + (", coordinator" if disk["isCoordinator"] else "")
        state += ", takes no queues" if disk["isDrained"] else ""
        free = None if disk["freeBytes"] is None else format_size(disk["freeBytes"])
        places = (disk[name] or None for name in ("machine", "directory", "zone"))
        rows.append((disk["disk"], *places, state, free, disk["queues"]))
    yield TextTable(_DISK_COLUMNS, rows, right=("free",))
    counts = [
        (name, *(len(topic.by_disk().get(disk["name"], ())) for disk in disks))
        for name, topic in sorted(topics.items())
        if not topic.internal
    ]
    if counts:
        yield ""
        yield TextTable(("topic", *(disk["disk"] for disk in disks)), counts)

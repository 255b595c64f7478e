"""``rocketray topology``: the disks of a cluster, and where the queues of its topics are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption, JsonOption
from rocketray.cli.terminal.output import print_json, print_line, print_table
from rocketray.cli.terminal.quantities import format_size
from rocketray.views.node_records import disk_records

from .topology_svg import topology_svg


def topology(
    *,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture to FILE, as SVG.")
    ] = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
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
    with ask(data) as connection:
        topics = connection.topics.all()
        disks = disk_records(connection, topics)
    names = {disk["name"]: disk["disk"] for disk in disks}
    if svg is not None:
        by_topic = {
            name: {names.get(disk, disk): ids for disk, ids in topic.by_disk().items()}
            for name, topic in topics.items()
        }
        svg.write_text(topology_svg(disks, by_topic), "utf-8")
        print_line(f"{svg}: {len(disks)} disks")
        return
    placed = [(topic, topic.by_disk()) for _, topic in sorted(topics.items())]
    if as_json:
        for disk in disks:
            print_json({key: value for key, value in disk.items() if key != "name"})
        for topic, queues in placed:
            by_disk = {names.get(disk, disk): ids for disk, ids in queues.items()}
            print_json({"topic": topic.name, "internal": topic.internal, "queues": by_disk})
        return
    columns = ("disk", "machine", "directory", "zone", "state", "free", "queues")
    for disk in disks:
        disk["state"] += ", coordinator" if disk["isCoordinator"] else ""
        disk["state"] += ", takes no queues" if disk["isDrained"] else ""
    rows = [
        [disk[column] or None for column in columns[:5]]
        + [None if disk["freeBytes"] is None else format_size(disk["freeBytes"]), disk["queues"]]
        for disk in disks
    ]
    print_table(columns, rows, right=("free",))
    shown = [(topic, queues) for topic, queues in placed if not topic.internal]
    if shown:
        print_line("")
        print_table(
            ("topic", *names.values()),
            [
                [topic.name, *(len(queues.get(name, ())) for name in names)]
                for topic, queues in shown
            ],
        )

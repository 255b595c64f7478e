"""``rocketray staged``: what Spark has written and is not in its topics yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import CommonOptions
from rocketray.cli.terminal.output import TextTable

if TYPE_CHECKING:
    from rocketray.messaging.api.node_client import NodeClient
    from rocketray.services.staging.staging_api import StagedOverview

_COLUMNS = ("writer", "batch", "state", "fragments", "bytes", "age s", "waits for")


def staged(
    *,
    most: Annotated[
        int, typer.Option("--max", metavar="N", min=1, max=1000, help="Maximum number of batches.")
    ] = 100,
    common: CommonOptions,
) -> None:
    """Show the batches that Spark is writing.

    A decided batch waits for its queues, and is stored as soon as they are available. A staged one
    waits for its driver; if that never decides it, its files are removed after 24 hours. The sums
    are since the gateway of the node started.

    Examples:
        rocketray staged
        rocketray staged --max 10 --json
    """
    with ask(common.data) as connection:
        found = overview_of(connection, most)
    records = (
        {
            "writer": work.batch.writer,
            "batch": work.batch.number,
            "isDecided": work.is_decided,
            "fragments": work.fragments,
            "bytes": work.size,
            "ageMs": work.age_ms,
            "problem": work.problem,
        }
        for work in found.work
    )
    rows = (
        (
            *(work.batch.writer, work.batch.number, "decided" if work.is_decided else "staged"),
            *(work.fragments, work.size, work.age_ms // 1000, work.problem),
        )
        for work in found.work
    )
    counts = found.counts
    sums = (
        f"decided: {counts.batches}, repeated: {counts.repeated}, messages stored: "
        f"{counts.messages}, fragments dropped: {counts.dropped}, orphans: {counts.orphans}, "
        f"messages lost: {counts.lost}"
    )
    common.emit(records, (TextTable(_COLUMNS, rows), *found.problems, sums))


def overview_of(node: NodeClient, most: int) -> StagedOverview:
    """Return what is staged or decided on the first disk of a node."""
    from rocketray.services.staging.staging_client import StagingClient  # pyarrow

    return StagingClient(node.service.place()).calls.overview(most)

"""``rocketray transactions``: the transactions that producers began and have not decided."""

from __future__ import annotations

from typing import Annotated

import typer

from rocketray.base.names import disk_words
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import CommonOptions
from rocketray.cli.terminal.output import TextTable, as_time, progress
from rocketray.views.message_records import half_record


def transactions(
    *,
    most: Annotated[
        int,
        typer.Option(
            "--max", metavar="N", min=1, max=10_000, help="Maximum number of transactions."
        ),
    ] = 100,
    common: CommonOptions,
) -> None:
    """Show the undecided transactions, oldest first.

    The node asks a producer of the group to check each, and counts the checks; after 15 checks, or
    72 hours, the transaction is abandoned and kept in TRANS_CHECK_MAX_TIME_TOPIC. While no producer
    of the group runs, the node does not check. The unique key finds the message: see "rocketray
    explain". The sums are of transactions that ended since the node started.

    Examples:
        rocketray transactions
        rocketray transactions --max 10 --json
    """
    with ask(common.data) as connection:
        found = connection.transactions.overview(most)
    for disk in found.unknown:
        progress(
            f"the transactions of {disk_words(disk)} are unknown: it does not answer; see: "
            "rocketray status"
        )
    rows = (
        (half.group, half.unique_key, as_time(half.stored_ms), half.checks) for half in found.halves
    )
    counts = found.counts
    sums = (
        f"undecided: {found.undecided}, committed: {counts.committed}, rolled back: "
        f"{counts.rolled_back}, abandoned: {counts.abandoned}, dead letters: {counts.dead_letters}"
    )
    table = TextTable(("producer group", "unique key", "stored", "asked"), rows)
    common.emit(map(half_record, found.halves), (table, sums))

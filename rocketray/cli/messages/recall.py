"""``rocketray recall``: keep a delayed message from being delivered."""

from __future__ import annotations

from typing import Annotated

import typer

from rocketray.cli.arguments.node import connect
from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption
from rocketray.cli.terminal.output import print_line

__all__ = ["recall"]


def recall(
    handle: Annotated[str, typer.Argument(help="The recall handle that the send printed.")],
    data: DataOption = DATA_DEFAULT,
) -> None:
    """Recall a delayed message, so that it is never delivered.

    The exit code is 1 if it is too late: the message was delivered, or recalled before.
    """
    with connect(data) as connection:
        if connection.delays.recall(handle):
            print_line("recalled: it will not be delivered")
            return
    print_line("too late: it was delivered, or recalled before")
    raise typer.Exit(1)

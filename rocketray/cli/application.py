"""The command ``rocketray`` and its sub-commands, and how a failure becomes an exit code."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from rocketray import __version__
from rocketray.errors import StreamError

from .apps import down, scale, status, up
from .bench import bench
from .consume import consume
from .demo import demo
from .dlq import dlq
from .explain import explain
from .filters import filters
from .groups import groups
from .query import query
from .recall import recall
from .send import send
from .start import start
from .store import stores
from .topics import topics
from .transactions import transactions

__all__ = ["application", "main"]

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

application = typer.Typer(
    name="rocketray",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # a frame would wrap the caret under a wrong expression away
    pretty_exceptions_enable=False,
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code; *arguments* are those of the process by default."""
    logging.basicConfig(level=logging.WARNING, format=_LOG_FORMAT, stream=sys.stderr)
    try:
        application(arguments, prog_name="rocketray")
    except (StreamError, OSError) as error:
        sys.stderr.write(f"rocketray: {error}\n")
        sys.exit(1)
    sys.exit(0)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value
    if wanted:
        sys.stdout.write(f"rocketray {__version__}\n")
        raise typer.Exit


@application.callback()
def _root(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Filtered, replayable, queryable message streams on one machine or a Ray cluster.

    Start a node with "rocketray start", then send, consume and query from other terminals; or
    watch everything at work on real data with "rocketray demo".

    Commands find the node by its data directory: --data, else ROCKETRAY_DATA, else
    ./rocketray-data. Exit codes: 0 it worked, 1 it failed, 2 it was asked for wrongly.
    """


application.command()(demo)
application.command()(start)
application.command()(up)
application.command()(status)
application.command()(scale)
application.command()(down)
application.add_typer(topics, name="topics")
application.add_typer(groups, name="groups")
application.add_typer(groups, name="group", hidden=True)  # who thinks of one group writes it so
application.add_typer(dlq, name="dlq")
application.command()(send)
application.command()(recall)
application.command()(consume)
application.command()(query)
application.command()(explain)
application.command()(transactions)
application.add_typer(filters, name="filter")
application.add_typer(stores, name="store")
application.command()(bench)

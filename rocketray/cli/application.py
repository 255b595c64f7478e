"""The command ``rocketray`` and its sub-commands, and the mapping of failures to exit codes."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any, NoReturn

import typer
from typer.main import get_command

from rocketray import __version__
from rocketray.cluster import Cluster, check_cluster
from rocketray.errors import StreamError
from rocketray.meant import meant

from .arguments.node import choose_cluster
from .arguments.options import checked
from .filters.explain import explain
from .filters.filter_commands import filters
from .groups.dlq import dlq
from .groups.group_commands import groups
from .messages.consume import consume
from .messages.query import query
from .messages.send import recall, send
from .messages.staged import staged
from .messages.transactions import transactions
from .nodes.apps import down, scale, status, up
from .nodes.backups import backup, restore
from .nodes.metrics import metrics
from .nodes.moves import drain, move_queue, rebalance
from .nodes.start import disk, start
from .nodes.topics import topics
from .nodes.topology import topology
from .store.store_commands import stores
from .terminal.output import OutputClosedError, drop_output, print_any_text

__all__ = ["application", "main"]

_COMMAND_ERROR: Any = typer.BadParameter.__mro__[2]  # click's ClickException, wherever typer has it
_INTERRUPTED = 128 + signal.SIGINT
_READER_GONE = 128 + signal.SIGPIPE
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

application = typer.Typer(
    name="rocketray",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # a frame would wrap the caret under a wrong expression away
    pretty_exceptions_enable=False,
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code; *arguments* default to those of the process."""
    logging.basicConfig(level=logging.WARNING, format=_LOG_FORMAT, stream=sys.stderr)
    print_any_text()
    try:
        code = _command()(arguments, prog_name="rocketray", standalone_mode=False)
    except _COMMAND_ERROR as error:
        _say_plainly(error)
        error.show()
        sys.exit(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(_INTERRUPTED)
    except OutputClosedError:
        drop_output()
        sys.exit(_READER_GONE)
    except (StreamError, OSError) as error:
        sys.stderr.write(f"rocketray: {_said(error)}\n")
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


@cache
def _command() -> Any:
    """Return the tree of all commands, which takes 40 ms to build."""
    return get_command(application)


def _said(error: Exception) -> str:
    """Return an error's text; for a system error, the file name first and no number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


def _say_plainly(error: Any) -> None:
    """Remove what libraries add to a message; of the options they propose keep the nearest."""
    error.message = error.message.removeprefix("Value error, ")
    error.message = error.message.replace("Input should be", "it has to be", 1)
    if getattr(error, "possibilities", None):
        near = meant(error.option_name, error.possibilities)
        error.possibilities = near or error.possibilities


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value
    if wanted:
        sys.stdout.write(f"rocketray {__version__}\n")
        raise typer.Exit


def _checked_cluster(name: str) -> str:
    check_cluster(name)
    return name


@application.callback()
def _root(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            callback=checked(_checked_cluster),
            help="Use the node of this cluster, from any machine of its Ray. Default: "
            "ROCKETRAY_CLUSTER.",
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The Ray of the cluster. Default: RAY_ADDRESS, else the one of this machine.",
        ),
    ] = None,
) -> None:
    """Send, filter, replay and query message streams on one machine, or a Ray cluster.

    Start a node with "rocketray start", then send, consume and query from other terminals; or run
    everything on real data with "rocketray demo".

    Commands find the node by its data directory: --data, else ROCKETRAY_DATA, else
    ./rocketray-data. From another machine of its Ray, they find it by its cluster's name. Exit
    codes: 0 success, 1 failure, 2 usage error, 130 ended by Ctrl-C, 141 the
    reader of a pipe closed it.
    """
    choose_cluster(None if cluster is None else Cluster(cluster, ray_address))
    if cluster is None and ray_address is not None:
        raise typer.BadParameter("--ray-address before a command needs --cluster NAME, too")


for of_disks in (disk, topology, move_queue, drain, rebalance, backup, restore):
    application.command()(of_disks)
for of_node in (start, up, status, scale, down, metrics):
    application.command()(of_node)
application.add_typer(topics, name="topics")
application.add_typer(groups, name="groups")
application.add_typer(groups, name="group", hidden=True)  # who thinks of one group writes it so
application.add_typer(dlq, name="dlq")
for of_messages in (send, recall, consume, query, explain, transactions, staged):
    application.command()(of_messages)
application.add_typer(filters, name="filter")
application.add_typer(stores, name="store")
for command in sorted(entry_points(group="rocketray.commands"), key=lambda each: each.name):
    application.command(command.name)(command.load())

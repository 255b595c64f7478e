"""The command ``rocketray`` and its sub-commands, and the mapping of failures to exit codes."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

from rocketray import __version__
from rocketray.base.cluster import Cluster, check_cluster
from rocketray.base.environment import process_environ
from rocketray.base.meant import meant
from rocketray.base.settings_file import read_settings
from rocketray.errors import StreamError

from .arguments.completions import completed_words
from .arguments.node import choose_cluster
from .arguments.option_sets import spread
from .arguments.options import checked
from .option_defaults import option_defaults
from .terminal.output import (
    OutputClosedError,
    drop_output,
    open_closed_streams,
    print_any_text,
)
from .verb import Verb

_COMMAND_ERROR: Any = typer.BadParameter.__mro__[2]  # click's ClickException, wherever typer has it
_INTERRUPTED = 128 + signal.SIGINT  # what a shell reports of a process that the signal ended
_READER_GONE = 128 + signal.SIGPIPE
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_SECTIONS = {
    "Run": {
        "start": "nodes.start",
        "status": "nodes.status",
        "logs": "nodes.logs",
        "console": "nodes.console_command",
        "doctor": "doctor.doctor",
        "ping": "nodes.ping",
        "metrics": "nodes.metrics",
    },
    "Messages": {
        "send": "messages.send",
        "consume": "messages.consume",
        "tail": "filters.tail_command",
        "query": "messages.query",
        "explain": "filters.explain",
        "recall": "messages.send",
    },
    "Manage": {
        "topics": "nodes.topics",
        "groups": "groups.group_commands",
        "filter": "filters.filter_commands",
        "dlq": "groups.dlq",
        "producers": "nodes.producers",
        "transactions": "messages.transactions",
        "staged": "messages.staged",
    },
    "Apps": {
        "up": "nodes.apps",
        "scale": "nodes.apps",
        "down": "nodes.apps",
        "tables": "nodes.tables",
    },
    "Cluster and store": {
        "topology": "nodes.topology",
        "move-queue": "nodes.moves",
        "drain": "nodes.moves",
        "rebalance": "nodes.moves",
        "disk": "nodes.start",
        "backup": "nodes.backups",
        "restore": "nodes.backups",
        "store": "store.store_commands",
    },
}
"""The modules of the commands, in the sections and the order of the help.

A command that is named is loaded alone.
"""
_PLACES = {name: module for commands in _SECTIONS.values() for name, module in commands.items()}
_OTHER_NAMES = {"filter": "filters", "store": "stores"}  # of what a module has
_COMPLETE = "_ROCKETRAY_COMPLETE"  # set by the shell's function that wants a word completed
_LOADS_ALL = ("doctor",)  # to check all tables of the settings file
_SIMILAR = 0.7  # "--to" is not "--time"
_OTHER_WORDS = {"--count": "--max", "--limit": "--max"}  # what other programs call an option
_PARSING = re.compile(r", unable to parse string as an? \w+$")  # what pydantic tried
_HOW_TO_STOP = (
    "No such command 'stop'. A node ends with Ctrl-C, or with kill and its process id, which "
    "rocketray start printed; an app with: rocketray down APP"
)
_ROOT_OPTIONS = ("--cluster", "--ray-address")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code; *arguments* default to those of the process."""
    logging.basicConfig(level=logging.WARNING, format=_LOG_FORMAT, stream=sys.stderr)
    open_closed_streams()
    print_any_text()
    try:
        given = sys.argv[1:] if arguments is None else arguments
        environ = process_environ()
        named = _named(completed_words(environ) if _COMPLETE in environ else given)
        tree = command_tree("" if named in _LOADS_ALL else named)
        # Without click's own mode, in which it ends the process and chooses the exit code.
        code = tree(
            arguments,
            prog_name="rocketray",
            standalone_mode=False,
            default_map=_defaults(tree, given),
        )
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
def command_tree(named: str = "") -> Any:
    """Return the commands of :func:`application`, ready to be called."""
    return get_command(application(named))


def application(named: str = "") -> typer.Typer:
    """Return the command with all sub-commands, or with that which is *named* alone, if it exists.

    Loading and building all of them takes longer than most commands.
    """
    tree = typer.Typer(
        name="rocketray",
        cls=_Root,
        add_completion=True,
        no_args_is_help=True,
        rich_markup_mode=None,  # a frame would wrap the caret under a wrong expression away
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    tree.callback()(_root)
    # The hidden name below; the tables know commands by the other one.
    named = {"group": "groups"}.get(named, named)
    for name, module in _PLACES.items():
        if named not in _PLACES or name == named:
            loaded = import_module(f"{__package__}.{module}")
            command = getattr(loaded, _OTHER_NAMES.get(name, name.replace("-", "_")))
            if isinstance(command, typer.Typer):
                for each in command.registered_commands:
                    assert each.callback is not None
                    each.cls, each.callback = Verb, spread(each.callback)
                tree.add_typer(command, name=name)
            else:
                tree.command(name, cls=Verb)(spread(command))
            if name == "groups":  # who thinks of one group writes it so
                tree.add_typer(command, name="group", hidden=True)
    if named not in _PLACES:
        from importlib.metadata import entry_points  # only where plug-ins count

        found = entry_points(group="rocketray.commands")
        for entry in sorted(found, key=lambda each: each.name):
            tree.command(entry.name, cls=Verb)(spread(entry.load()))
    return tree


class _Root(TyperGroup):
    """The commands, in sections and in their order; those of other packages end the first one."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections, with all of their descriptions in one column."""
        named = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        shown = {name: each for name, each in named if each is not None and not each.hidden}
        width = max(map(len, shown), default=0)
        limit = formatter.width - 6 - width  # click's: the indent, and the space between
        others = [name for name in shown if name not in _PLACES]
        for title, places in _SECTIONS.items():
            listed = [name for name in (*places, *others) if name in shown]
            others = []
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), shown[name].get_short_help_str(limit)) for name in listed]
                )


def _defaults(tree: Any, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the defaults of options from the settings file; help needs none."""
    if not arguments or {"--help", "-h", "--version"}.intersection(arguments):
        return {}
    return option_defaults(tree, read_settings(), _PLACES.keys())


def _named(arguments: Sequence[str]) -> str:
    """Return the command that is named first in *arguments*; "" where only the whole tree knows."""
    rest = iter(arguments)
    for each in rest:
        if each in _ROOT_OPTIONS:
            next(rest, None)
        elif not each.startswith("-"):
            return each
        elif not each.startswith(tuple(f"{option}=" for option in _ROOT_OPTIONS)):
            break
    return ""


def _said(error: Exception) -> str:
    """Return an error's text; for a system error, the file name first and no number."""
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return where + error.strerror
    return str(error)


def _say_plainly(error: Any) -> None:
    """Remove what libraries add to a message; propose the nearest option, or else all of them."""
    error.message = error.message.removeprefix("Value error, ")
    error.message = error.message.replace("Input should be", "it has to be", 1)
    error.message = _PARSING.sub("", error.message)
    if error.message.startswith("No such command 'stop'"):
        error.message = _HOW_TO_STOP
    error.message += _set_in_file(error)
    if hasattr(error, "option_name") and error.ctx is not None:
        known = _options_of(error.ctx)
        other = _OTHER_WORDS.get(error.option_name)
        near = [other] if other in known else meant(error.option_name, known, cutoff=_SIMILAR)
        error.possibilities = near or known


def _options_of(context: Any) -> list[str]:
    """Return the options of a command, as they are written in full."""
    shown = (param for param in context.command.params if not getattr(param, "hidden", True))
    return [name for param in shown for name in param.opts if name.startswith("--")]


def _set_in_file(error: Any) -> str:
    """Return which values of the settings file *error* is about, or may be about; "" if none."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None:
        return ""
    # Without a parameter the command itself refused what it was given: any of its options.
    asked = context.command.params if parameter is None else (parameter,)
    table = ".".join(context.command_path.split()[1:])
    keys = [
        max(each.opts, key=len).removeprefix("--")
        for each in asked
        if (source := context.get_parameter_source(each.name)) and source.name == "DEFAULT_MAP"
    ]
    if not keys:
        return ""
    file, places = read_settings().path, f"{', '.join(keys)} in [{table}]"
    return f"; {file} sets {places}" if parameter is None else f"; it is set in {file}: {places}"


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value
    if wanted:
        sys.stdout.write(f"rocketray {__version__}\n")
        raise typer.Exit


def _checked_cluster(name: str) -> str:
    check_cluster(name)
    return name


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

    Commands find the node by its data directory: --data, else ROCKETRAY_DATA, else the settings
    file, else ./rocketray-data. That file, rocketray.toml here or what ROCKETRAY_CONFIG names, has
    defaults of options, too. From another machine of its Ray, they find it by its cluster's name.
    Exit codes: 0 success, 1 failure, 2 usage error, 130 ended by Ctrl-C before completion, 141 the
    reader of a pipe closed it. Ctrl-C is how "consume" and "tail" end: they exit with 0.
    """
    choose_cluster(None if cluster is None else Cluster(cluster, ray_address))
    if cluster is None and ray_address is not None:
        raise typer.BadParameter("--ray-address before a command needs --cluster NAME, too")

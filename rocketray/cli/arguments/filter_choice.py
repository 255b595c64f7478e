"""The choice of a filter: ``--tags``, ``--sql``, ``--where``, or ``--filter`` with a name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.cli.terminal.usage import usage_error
from rocketray.filters.filter_name import FilterName

from .completions import complete_filters
from .node import ask
from .options import chosen_subscription

if TYPE_CHECKING:
    from rocketray.filters.sql92 import Dialect
    from rocketray.filters.subscription import ErrorPolicy, Subscription

    from .node import AskedClient


@usage_error()
def _parse(text: str | FilterName) -> FilterName:
    return text if isinstance(text, FilterName) else FilterName.parse(text)


FilterNameOption = Annotated[
    FilterName | None,
    typer.Option(
        "--filter",
        metavar="NAME[@V]",
        parser=_parse,
        help="A named filter of the topic, and its version; see: rocketray filter list.",
        autocompletion=complete_filters,
    ),
]


def _argument(metavar: str, help_text: str) -> Any:
    return typer.Argument(
        metavar=metavar, parser=_parse, help=help_text, autocompletion=complete_filters
    )


FilterNameArgument = Annotated[FilterName, _argument("NAME", "The filter's name.")]
FilterVersionArgument = Annotated[
    FilterName, _argument("NAME[@V]", "The filter's name, and a version.")
]


def chosen_filter(
    named: FilterName | None,
    tags: str | None,
    sql: str | None,
    where: str | None,
    *,
    on_error: ErrorPolicy = "stop",
    dialect: Dialect | None = None,
) -> Subscription | FilterName:
    """Return the one filter of the options, or its name; all messages if there is none.

    Raises:
        typer.BadParameter: more than one is given, or the expression does not parse.
    """
    if named is None:
        return chosen_subscription(tags, sql, where, on_error, dialect)
    others = {
        "--tags": tags,
        "--sql": sql,
        "--where": where,
        "--dialect": dialect,
        "--on-filter-error": None if on_error == "stop" else on_error,
    }
    given = [option for option, value in others.items() if value is not None]
    if given:
        raise typer.BadParameter(
            f"--filter names a whole filter; leave out {' and '.join(given)}, or leave out --filter"
        )
    return named


def filter_on_node(
    node: AskedClient, topic: str, chosen: Subscription | FilterName
) -> Subscription:
    """Return the filter, which the node looks up if it is a name."""
    if isinstance(chosen, FilterName):
        return node.named_filters.get(topic, chosen).subscription
    return chosen


def filter_in_files(data: Path, topic: str, chosen: Subscription | FilterName) -> Subscription:
    """Return the filter, which is looked up in a node's data directory if it is a name.

    A disk that joined a cluster does not have the filters: then its coordinator is asked.
    """
    if isinstance(chosen, FilterName):
        from rocketray.broker.disks.joined_cluster import read_joined  # noqa: PLC0415 - slow
        from rocketray.broker.named_filters.filter_files import (  # noqa: PLC0415 - not for --help
            filters_in,
        )

        if read_joined(data) is not None:
            with ask(data) as node:
                return filter_on_node(node, topic, chosen)
        return filters_in(data, topic).get(chosen).subscription
    return chosen

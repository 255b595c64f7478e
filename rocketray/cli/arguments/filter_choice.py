"""The choice of a filter: ``--tags``, ``--sql``, ``--where``, or ``--filter`` with a name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.cli.terminal.usage import usage_error
from rocketray.filters.filter_choice import FilterChoice
from rocketray.filters.filter_name import FilterName

from .completions import complete_filters
from .node import ask
from .options import (
    DialectOption,
    OnFilterErrorOption,
    SqlOption,
    TagsOption,
    WhereOption,
    as_options,
    chosen_subscription,
)

if TYPE_CHECKING:
    from rocketray.filters.subscription import Subscription

    from .node import AskedClient


@usage_error()
def _parse(text: str | FilterName) -> FilterName:
    return FilterName.parse(text)


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


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The options that say what a group subscribes to."""

    tags: TagsOption = None
    sql: SqlOption = None
    dialect: DialectOption = None
    where: WhereOption = None
    on_filter_error: OnFilterErrorOption = "stop"
    filter_name: FilterNameOption = None

    @property
    def is_given(self) -> bool:
        """Whether they name a filter."""
        return {self.tags, self.sql, self.where, self.filter_name} != {None}

    def chosen(self) -> Subscription | FilterName:
        """Return the one filter of the options, or its name; all messages if there is none.

        Raises:
            typer.BadParameter: more than one is given, or the expression does not parse.
        """
        choice = FilterChoice(
            self.tags, self.sql, self.where, self.filter_name, self.dialect, self.on_filter_error
        )
        if self.filter_name is None:
            return chosen_subscription(choice)
        if others := choice.all_but_name:
            raise typer.BadParameter(
                f"--filter names a whole filter; leave out {as_options(others)}, or leave out "
                "--filter"
            )
        return self.filter_name


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
        from rocketray.broker.disks.joined_cluster import read_joined  # slow
        from rocketray.broker.named_filters.filter_files import filters_in

        if read_joined(data) is not None:
            with ask(data) as node:
                return filter_on_node(node, topic, chosen)
        return filters_in(data, topic).get(chosen).subscription
    return chosen

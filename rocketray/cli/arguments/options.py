"""Options that several commands share, and the checks of their values.

Here and in the commands, an option is named after its parameter unless it has a name of its own.

An invalid name or expression ends the command with code 2 before anything is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from rocketray.base.data_directory import DATA_VARIABLE, DEFAULT_DATA, data_directory
from rocketray.base.names import check_group, check_queue_count, check_stored_topic, check_topic
from rocketray.cli.terminal.output import Records, Shown, emit, progress
from rocketray.cli.terminal.usage import usage_error
from rocketray.errors import ConfigError, FilterError, NodeElsewhereError

from .completions import complete_groups, complete_topics

if TYPE_CHECKING:
    from rocketray.filters.filter_choice import FilterChoice
    from rocketray.filters.subscription import Subscription
    from rocketray.groups.group_descriptions import GroupDescription

    from .node import AskedClient

DATA_DEFAULT = DEFAULT_DATA
_T = TypeVar("_T")
OptionalGroupArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="GROUP",
        help="The group; without it, all groups.",
        autocompletion=complete_groups,
    ),
]


def checked(check: Callable[[_T], _T]) -> Callable[[_T | None], _T | None]:
    """Return *check* as typer's callback: an error that it raises is a usage error."""
    told = usage_error()(check)
    return lambda value: None if value is None else told(value)


@usage_error()
def _data(given: str | Path) -> Path:
    """Return the directory of --data or the environment; the default is neither."""
    path = data_directory(given if isinstance(given, str) else None)
    if path.exists() and not path.is_dir():
        raise typer.BadParameter(f"{path} is not a directory; name a data directory")
    return path


def _data_option(help_text: str) -> Any:
    return typer.Option("--data", envvar=DATA_VARIABLE, metavar="DIR", parser=_data, help=help_text)


DataOption = Annotated[Path, _data_option("The node's data directory.")]
AnyDataOption = Annotated[
    Path, _data_option("A node's data directory, running or not, or any store directory.")
]
ListenAddressOption = Annotated[
    str, typer.Option(metavar="ADDRESS", help="The address to listen on.")
]
ListenPortOption = Annotated[
    int, typer.Option(metavar="PORT", min=0, max=65535, help="The port; 0 for any free one.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs, an object a line.")
]


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The last options of nearly every command: which node, and in which form it prints."""

    data: DataOption = DATA_DEFAULT
    as_json: JsonOption = False

    def emit(self, found: Records, shown: Shown) -> None:
        """Print what a command *found*; see :func:`rocketray.cli.terminal.output.emit`."""
        emit(found, shown, as_json=self.as_json)


TopicArgument = Annotated[
    str,
    typer.Argument(
        callback=checked(check_topic), help="The topic's name.", autocompletion=complete_topics
    ),
]
StoredTopicArgument = Annotated[
    str,
    typer.Argument(
        callback=checked(check_stored_topic),
        help="The topic's name.",
        autocompletion=complete_topics,
    ),
]


def group_argument(help_text: str, metavar: str | None = None) -> Any:
    return typer.Argument(
        metavar=metavar,
        callback=checked(check_group),
        help=help_text,
        autocompletion=complete_groups,
    )


GroupArgument = Annotated[str, group_argument("The group's name.")]
GroupOption = Annotated[
    str,
    typer.Option(
        metavar="GROUP",
        callback=checked(check_group),
        help="The consumer group; its members share the messages, and its offsets are saved.",
        autocompletion=complete_groups,
    ),
]
OnlyQueueOption = Annotated[
    int | None, typer.Option("--queue", metavar="N", min=0, help="Only this queue.")
]
MaxOption = Annotated[
    int | None,
    typer.Option("--max", metavar="N", min=1, help="End after this number of messages."),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="S",
        min=0,
        help="End after this number of seconds without a message.",
    ),
]
SCAN_DEFAULT = 10_000_000
MaxScanOption = Annotated[
    int, typer.Option(metavar="N", min=1, help="Maximum number of messages to scan.")
]
QueuesOption = Annotated[
    int, typer.Option(metavar="N", callback=checked(check_queue_count), help="Number of queues.")
]
TagsOption = Annotated[
    str | None, typer.Option(metavar="EXPR", help='Messages with these tags: "pay || order".')
]
SqlOption = Annotated[
    str | None,
    typer.Option(metavar="SQL92", help='Messages whose properties match: "amount > 100".'),
]
DialectOption = Annotated[
    Literal["rocketmq", "rocketray"] | None,
    typer.Option(
        help='The SQL dialect: "rocketray", the default, accepts numbers in any form, "names", '
        'LIKE and IN with numbers; "rocketmq" is the one of a broker, down to its errors.'
    ),
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:CALLABLE", help="Messages for which a Python predicate returns True."
    ),
]
OnFilterErrorOption = Annotated[
    Literal["stop", "skip", "deliver"],
    typer.Option(help="The action for a message on which the predicate fails."),
]


def chosen_subscription(choice: FilterChoice) -> Subscription:
    """Return the one filter of the options, of which none is a name; all messages for none.

    Raises:
        typer.BadParameter: more than one is given, or the expression does not parse.
    """
    kinds = as_options(choice.kinds)
    if len(choice.kinds) > 1:
        raise typer.BadParameter(f"{kinds} exclude each other; give one")
    with usage_error(FilterError, ConfigError, hint=kinds or None):
        return choice.subscription()


def as_options(names: Iterable[str]) -> str:
    """Return the options of those names, as in ``--tags and --sql``."""
    return " and ".join(f"--{name.replace('_', '-')}" for name in names)


def chosen_groups(groups: Sequence[GroupDescription], group: str | None) -> list[GroupDescription]:
    """Return the entries of *group*, or of all if it is None, by name and topic."""
    found = sorted(groups, key=lambda each: (each.group, each.topic))
    chosen = [each for each in found if group is None or each.group == group]
    if group is not None and not chosen:
        from rocketray.services.explaining.suggestions import like

        meant = like(group, {each.group for each in groups})
        raise ConfigError(f"there is no group {group!r}{meant or '; see: rocketray groups list'}")
    return chosen


def tell_doubts(data: Path, topics: Iterable[str], subscription: Subscription) -> None:
    """Warn on stderr if *subscription* probably rejects messages of *topics* that are wanted."""
    from rocketray.broker.filtering.filter_advice import doubts

    for line in doubts(data, topics, subscription):
        progress(f"warning: {line}")


def tell_note(note: str) -> None:
    """Warn of what is left out, if anything is."""
    if note:
        progress(f"warning: {note}")


def tell_doubts_of(node: AskedClient, topics: Iterable[str], subscription: Subscription) -> None:
    """Do the same on the node's machine; on others the messages are not at hand."""
    from rocketray.actors.client.connected_client import LocalClient

    if isinstance(node, LocalClient):
        for line in node.doubts([*topics], subscription):
            progress(f"warning: {line}")
        return
    with suppress(NodeElsewhereError):
        tell_doubts(node.files("comparing a filter with messages"), topics, subscription)

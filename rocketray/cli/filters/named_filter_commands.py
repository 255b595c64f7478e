"""``rocketray filter save``, ``list``, ``show`` and ``remove``: the named filters of a topic."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.base.quantity import counted
from rocketray.cli.arguments.filter_choice import FilterNameArgument, FilterVersionArgument
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import (
    CommonOptions,
    DialectOption,
    OnFilterErrorOption,
    SqlOption,
    TagsOption,
    TopicArgument,
    WhereOption,
    chosen_subscription,
)
from rocketray.cli.terminal.output import TextTable, as_time, print_line, progress
from rocketray.errors import NodeElsewhereError, StoreError
from rocketray.filters.filter_choice import FilterChoice
from rocketray.runtime.machine import user_name

if TYPE_CHECKING:
    from rocketray.broker.named_filters.filter_book import NamedFilter
    from rocketray.broker.named_filters.named_filters_api import FilterUse
    from rocketray.cli.arguments.node import AskedClient
    from rocketray.filters.sql92.advice import Advice
    from rocketray.filters.subscription import Subscription


def save(
    topic: TopicArgument,
    name: FilterNameArgument,
    *,
    tags: TagsOption = None,
    sql: SqlOption = None,
    where: WhereOption = None,
    dialect: DialectOption = None,
    on_filter_error: OnFilterErrorOption = "stop",
    note: Annotated[
        str, typer.Option(metavar="TEXT", help="What it is for, or what has changed.")
    ] = "",
    common: CommonOptions,
) -> None:
    """Save a filter of a topic under a name, as its next version.

    No group changes by it: one that reads with an earlier version keeps that, until "groups
    migrate" switches it, or all of its members have ended and start again. A filter that does not
    parse is refused, and warnings are those of "filter check". If the latest version is the same
    filter, nothing is saved.

    Examples:
        rocketray filter save Trade large --sql "amount > 100" --note "for the audit"
        rocketray filter save Trade paid --tags pay
    """
    if name.version is not None:
        raise typer.BadParameter(f"versions are numbered by the node; give the name {name.name!r}")
    choice = FilterChoice(tags, sql, where, None, dialect, on_filter_error)
    if not choice.kinds:
        raise typer.BadParameter("give the filter with --tags, --sql or --where")
    subscription = chosen_subscription(choice)
    who = f"{user_name()} on {socket.gethostname()}"
    from rocketray.views.filter_records import named_filter_record, warning_records

    with ask(common.data) as node:
        saved, is_new = node.named_filters.save(topic, name.name, subscription, note, who)
        uses = [each for each in node.named_filters.uses(topic) if each.name == name.name]
        warnings = _warnings(node, topic, saved.subscription)
    record = named_filter_record(saved, uses)
    record |= {"isNew": is_new, "warnings": warning_records(warnings)}
    for each in () if common.as_json else warnings:
        progress(f"warning: {each}")
    common.emit(record, _saved_lines(saved, uses, is_new=is_new))


def _saved_lines(saved: NamedFilter, uses: Iterable[FilterUse], *, is_new: bool) -> Iterator[str]:
    """Yield what was saved, and which groups with members read with another version."""
    topic, named = saved.topic, saved.subscription.named
    is_there = f"is {named} of topic {topic} already, from {as_time(saved.created_ms)}"
    yield (
        f"{named} of topic {topic} is saved: {saved.text}"
        if is_new
        else f"{saved.text} {is_there}; nothing was saved"
    )
    for use in uses:
        if use.members and use.version != saved.version and not use.is_coming:
            yield (
                f"group {use.group} reads with {use.name}@{use.version} "
                f"({counted(use.members, 'member')}); to switch it: rocketray groups migrate "
                f"{use.group} {topic} --filter {named}"
            )


def list_filters(topic: TopicArgument, *, common: CommonOptions) -> None:
    """List the named filters of a topic.

    Each is shown with its latest version, and with the groups that use any of its versions. --json
    prints an object a line, with the filter as "groups list" has it.

    Examples:
        rocketray filter list Trade
        rocketray filter list Trade --json
    """
    with ask(common.data) as node:
        found, uses = node.named_filters.all(topic), node.named_filters.uses(topic)
    if common.as_json or found:
        _print(found, uses, common)
    else:
        print_line(f"topic {topic} has no named filter; save one with: rocketray filter save")


def show(topic: TopicArgument, name: FilterVersionArgument, *, common: CommonOptions) -> None:
    """Show all versions of a named filter, or one of them.

    They are shown oldest first, each with the groups that use it.

    Examples:
        rocketray filter show Trade large
        rocketray filter show Trade large@2
    """
    with ask(common.data) as node:
        filters = node.named_filters
        found = (
            filters.versions(topic, name.name)
            if name.version is None
            else [filters.get(topic, name)]
        )
        uses = filters.uses(topic)
    _print(found, uses, common, by_version=True)


def remove(
    topic: TopicArgument,
    name: FilterNameArgument,
    *,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also if groups use it: they keep the filter that they have."),
    ] = False,
    common: CommonOptions,
) -> None:
    """Remove a named filter of a topic, with all its versions.

    Refused while a group uses it. Numbers of versions are not used again: a filter that is saved
    under the name later begins behind them. Whether Spark queries or apps that do not run name it
    is not known.

    Examples:
        rocketray filter remove Trade large
        rocketray filter remove Trade large --force
    """
    if name.version is not None:
        raise typer.BadParameter(
            f"single versions stay; to remove filter {name.name!r} with all its versions, leave out "
            f"@{name.version}"
        )
    with ask(common.data) as node:
        count = len(node.named_filters.versions(topic, name.name))
        uses = node.named_filters.remove(topic, name.name, force=force)
    groups = sorted({use.group for use in uses})
    record = {"topic": topic, "name": name.name, "versions": count, "groups": groups}
    text = f"filter {name.name} of topic {topic} is removed, with {counted(count, 'version')}"
    kept = f"; groups {', '.join(groups)} keep what they have" if groups else ""
    common.emit(record, f"{text}{kept}")


def _print(
    found: Iterable[NamedFilter],
    uses: Sequence[FilterUse],
    common: CommonOptions,
    *,
    by_version: bool = False,
) -> None:
    """Print filters with the groups that use them, or *by_version* just that version."""
    from rocketray.views.filter_records import named_filter_record

    records, rows = [], []
    for one in found:
        of_it = [
            use
            for use in uses
            if use.name == one.name and (not by_version or use.version == one.version)
        ]
        records.append(named_filter_record(one, of_it))
        groups = ", ".join(
            f"{use.group} ({'changes to ' if use.is_coming else ''}@{use.version})" for use in of_it
        )
        times = as_time(one.created_ms), one.created_by or None
        rows.append((one.name, one.version, one.text, groups or None, *times, one.note or None))
    columns = ("name", "version", "filter", "groups", "saved", "by", "note")
    common.emit(records, TextTable(columns, rows))


def _warnings(node: AskedClient, topic: str, subscription: Subscription) -> tuple[Advice, ...]:
    """Return the warnings of ``filter check``, with recent messages where they are at hand."""
    from rocketray.views.filter_records import checked_filter

    try:
        data = node.files("comparing a filter with messages")
        return checked_filter(subscription, data, topic).warnings
    except (NodeElsewhereError, StoreError):
        progress("the filter was not compared with messages: their files are on another machine")
        return checked_filter(subscription).warnings

"""``rocketray status``: apps, rates, lag, what is on disk, and problems; once, or repeatedly."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.base.settings_file import read_settings
from rocketray.cli.arguments.completions import complete_apps
from rocketray.cli.arguments.found_hosts import apps_of
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import CommonOptions
from rocketray.cli.terminal.output import as_time, print_line
from rocketray.cli.terminal.waiting import waiting
from rocketray.errors import StoreError

from .app_status import (
    groups_of,
    show_groups,
    show_hosts,
    show_problems,
    show_scrubs,
    show_unflushed,
    without_hosts,
)
from .flow_status import FlowSample, flows_between, sample, show_flows

if TYPE_CHECKING:
    from rocketray.cli.arguments.node import AskedClient
    from rocketray.groups.group_descriptions import GroupDescription
    from rocketray.messaging.api.node_client import NodeClient

_WATCHED_EVERY_S = 2.0  # two reports of each member
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"  # to the first cell, clear the screen, and what was scrolled off


def status(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="APP", help="An app's id; default: all apps.", autocompletion=complete_apps
        ),
    ] = None,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every --over seconds, until Ctrl-C.")
    ] = False,
    over: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=3600,
            help="Measure rates over so long; 0: no lag either. Default: at once, without "
            "rates; with --watch 2.",
        ),
    ] = None,
    common: CommonOptions,
) -> None:
    """Show apps, rates, lag, what is on disk, and problems.

    With --over there are rates, from two samples so many seconds apart: messages stored in each
    topic, and finished by each group, in a second. A member reports what it finished each second,
    so a longer time is more exact. The lag counts messages that match the filter of the group, as
    "groups lag" does. What is unknown says why, and is not 0.

    A table has the app's sinks: the last micro-batch of each, its rows, the rows that it wrote in a
    second, and behind, the messages that it has not read yet.

    Below the tables are the last failure of each host and of each agent, with the message, and the
    number of failures to decode a message. The counts are of the host's process: they begin at 0
    after a restart. Failures are exceptions of the handler, and of the steps before it. Sent back
    counts failed messages that are redelivered later, dead letters those that are not: "rocketray
    explain" shows what happened to one.

    A line "group ..." names the message at which a queue is held, because its member retries it
    before any other, or the number of messages on which the group's filter failed since the
    coordinator started. These are all groups, or those of APP, and with --json objects with the key
    "group".

    A table shows for each topic the queue whose oldest message that is not on disk has waited
    longest. A flush is due every 0.5 s; a greater age says that a disk is slow, or that its flush
    hangs. --json has all such queues in one object with the key "unflushed".

    Another table shows when all complete log files of a topic were last read again and verified,
    and how much of the pass under way is done; a pass begins once a day (rocketray start
    --scrub-rate). --json has all queues in one object with the key "verified", and each damaged
    place.

    A line "problem: ..." says what is wrong with the node and what to do about it, such as damaged
    messages, a damaged file of its state, or a flush that hangs; with --json it is an object with
    the key "problem". If consumer groups are closed because of it, the exit code is 1.

    Examples:
        rocketray status
        rocketray status shop --watch --over 5
    """
    if watch and over is None:
        over = _WATCHED_EVERY_S
    if watch and not over:
        raise typer.BadParameter("--watch needs --over of more than 0 seconds")
    with ask(common.data) as node:
        view = _View(node, app, common)
        is_open = view.show(over, clears=watch)
        while watch:
            is_open = view.show(over, clears=watch)
    if not is_open:
        raise typer.Exit(1)


class _View:
    """The status of a node, as often as it is wanted; its rates are those since the last time."""

    def __init__(self, node: AskedClient, app: str | None, common: CommonOptions) -> None:
        self._node, self._app, self._common = node, app, common
        self._before: FlowSample | None = None

    def show(self, over_s: float | None, *, clears: bool) -> bool:
        """Show it once, after *over_s*; return whether consumer groups are open.

        With None it is shown at once, without rates; with 0 without lags, too.
        """
        node, app, as_json = self._node, self._app, self._common.as_json
        if over_s:
            if self._before is None:
                groups = _groups_unless_closed(node, node.problems())
                self._before = sample(node, groups, with_lag=False)
            time.sleep(over_s)
        with waiting("querying the node and the hosts of apps"):
            problems = node.problems()
            unflushed, scrubs = node.unflushed(), node.scrubs()
            groups = _groups_unless_closed(node, problems)
            after = None if over_s == 0 else sample(node, groups, with_lag=True)
            hosts = apps_of(node).hosts(app)
        chosen = groups if app is None or groups is None else groups_of(hosts, groups)
        if clears:
            self._begin_page()
        if hosts or as_json:
            show_hosts(hosts, as_json=as_json)
        else:
            print_line(without_hosts(groups))
        if chosen is not None:
            show_groups(chosen, as_json=as_json)
        if after is not None:
            flows = flows_between(self._before, after)
            show_flows(flows if app is None else flows.of(chosen or ()), as_json=as_json)
            self._before = after
        show_unflushed(unflushed, as_json=as_json)
        show_scrubs(scrubs, as_json=as_json)
        show_problems(problems, as_json=as_json)
        self._show_settings()
        return groups is not None

    def _show_settings(self) -> None:
        """Name the settings file, if one was read."""
        path = read_settings().path
        if path is not None:
            record = {"settings": str(path)}
            self._common.emit(record, f"\nsettings were read from {path}")

    def _begin_page(self) -> None:
        """Clear a terminal; elsewhere, a line with the time divides one page from the next."""
        if self._common.as_json:
            return
        when = as_time(time.time_ns() // 1_000_000)
        print_line(f"{_CLEAR}{when}\n" if sys.stdout.isatty() else f"\n{when}\n")


def _groups_unless_closed(node: NodeClient, problems: list[str]) -> list[GroupDescription] | None:
    """Return the node's groups; None if they are closed, which is one of its *problems*."""
    try:
        return node.groups.all()
    except StoreError as error:
        if str(error) not in problems:
            raise
        return None

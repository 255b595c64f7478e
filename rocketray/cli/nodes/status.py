"""``rocketray status``: apps, rates, lag, what is on disk, and problems; once, or repeatedly."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.base.settings_file import read_settings
from rocketray.cli.arguments.completions import complete_apps
from rocketray.cli.arguments.found_hosts import apps_of
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import CommonOptions
from rocketray.cli.terminal.output import as_time, print_line
from rocketray.cli.terminal.waiting import waiting
from rocketray.errors import ConfigError, StoreError
from rocketray.services.health.day_totals import DayReadings, read_days

from .app_status import (
    groups_of,
    groups_of_program,
    living,
    show_groups,
    show_hosts,
    show_problems,
    show_program,
    show_scrubs,
    show_unflushed,
    without_hosts,
)
from .flow_status import Flows, FlowSample, flows_between, growth_between, sample_of, show_flows
from .trouble_status import show_troubles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketray.broker.shards.shard_api import ScrubState
    from rocketray.cli.arguments.node import AskedClient
    from rocketray.groups.group_descriptions import GroupDescription
    from rocketray.hosting.host_status import Host
    from rocketray.messaging.api.node_client import NodeClient
    from rocketray.services.health.troubles import HealthReadings

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
            help="Measure rates over so long; 0: no lag either, and no list of what is wrong. "
            "Default: at once, without rates; with --watch 2.",
        ),
    ] = None,
    common: CommonOptions,
) -> None:
    """Show what is wrong, apps, rates, lag, and what is on disk.

    It begins with what is wrong, the worst first, each with the next step: a part that does not
    answer, problems of the node, hosts of apps that fail, held groups, lags that grow, messages
    without a reader, dead letters, filters that fail. The console's overview is the same list. With
    --json each is an object with the key "trouble". Whether a lag grows is known with --over.

    With --over there are rates, from two samples so many seconds apart: messages stored in each
    topic, and finished by each group, in a second. A member reports what it finished each second,
    so a longer time is more exact. The lag counts messages that match the filter of the group, as
    "groups lag" does. What is unknown says why, and is not 0.

    A topic also has the messages that it stored today and yesterday, since midnight in the zone of
    the node; "at least" says that retention may have removed some. --json has them in one object
    with the key "stored".

    A table has the app's sinks: the last micro-batch of each, its rows, the rows that it wrote in a
    second, and behind, the messages that it has not read yet.

    Below the tables are the last failure of each host and of each agent, with the message, and the
    number of failures to decode a message. The counts are of the host's process: they begin at 0
    after a restart. Failures are exceptions of the handler, and of the steps before it. Sent back
    counts failed messages that are redelivered later, dead letters those that are not: "rocketray
    explain" shows what happened to one.

    With --over 0 a line "group ..." names the message at which a queue is held, because its member
    retries it before any other, or the number of messages on which the group's filter failed since
    the coordinator started. These are all groups, or those of APP, and always with --json, as
    objects with the key "group".

    A table shows for each topic the queue whose oldest message that is not on disk has waited
    longest. A flush is due every 0.5 s; a greater age says that a disk is slow, or that its flush
    hangs. --json has all such queues in one object with the key "unflushed".

    Another table shows when all complete log files of a topic were last read again and verified,
    and how much of the pass under way is done; a pass begins once a day (rocketray start
    --scrub-rate). --json has all queues in one object with the key "verified", and each damaged
    place.

    Problems of the node are damaged messages, a damaged file of its state, or a flush that hangs;
    with --json each is also an object with the key "problem". If consumer groups are closed because
    of one, the exit code is 1.

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


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the node and the hosts of apps answered.

    ``groups`` is None if they are closed; ``chosen`` are those of the app, if one is named, and
    ``program`` those of one that runs as a program. ``health`` is None if lags are not wanted.
    """

    problems: list[str]
    groups: list[GroupDescription] | None
    chosen: list[GroupDescription] | None
    hosts: list[Host]
    program: list[GroupDescription]
    unflushed: Mapping[str, int | None]
    scrubs: Mapping[str, ScrubState | None]
    health: HealthReadings | None


class _View:
    """The status of a node, as often as it is wanted; its rates are those since the last time."""

    def __init__(self, node: AskedClient, app: str | None, common: CommonOptions) -> None:
        self._node, self._app, self._common = node, app, common
        self._before: FlowSample | None = None

    def show(self, over_s: float | None, *, clears: bool) -> bool:
        """Show it once, after *over_s*; return whether consumer groups are open.

        With None it is shown at once, without rates; with 0 without lags, too.
        """
        as_json = self._common.as_json
        self._wait(over_s)
        with waiting("querying the node and the hosts of apps"):
            answer = self._ask(with_lag=over_s != 0)
        if clears:
            self._begin_page()
        flows = self._show_troubles(answer)
        if self._app is not None and answer.program:
            show_program(self._app, answer.program, as_json=as_json)
        elif answer.hosts or as_json:
            show_hosts(answer.hosts, as_json=as_json)
        else:
            print_line(without_hosts(answer.groups))
        if as_json or answer.health is None:  # else they are among the troubles
            show_groups(answer.chosen or (), as_json=as_json)
        if flows is not None:
            chosen = answer.chosen or ()
            shown = flows if self._app is None else flows.of(chosen)
            show_flows(shown, self._days(shown), as_json=as_json)
        show_unflushed(answer.unflushed, as_json=as_json)
        show_scrubs(answer.scrubs, as_json=as_json)
        if as_json or answer.health is None:
            show_problems(answer.problems, as_json=as_json)
        self._show_settings()
        return answer.groups is not None

    def _wait(self, over_s: float | None) -> None:
        """Wait *over_s* after the last sample; the first one is taken now."""
        from rocketray.services.health.node_readings import read_node  # NumPy

        if over_s:
            if self._before is None:
                self._before = sample_of(read_node(self._node), time.monotonic())
            time.sleep(over_s)

    def _ask(self, *, with_lag: bool) -> _Answer:
        from rocketray.services.health.health import read_health  # NumPy

        node = self._node
        health = read_health(node) if with_lag else None
        # What the list of troubles says and what is shown below it are from one answer.
        problems = health.problems if health is not None else None
        problems = node.problems() if problems is None else [*problems]
        groups = health.node.groups if health is not None else None
        groups = _groups_unless_closed(node, problems) if groups is None else [*groups]
        hosts, program = self._hosts_or_program(groups or ())
        chosen = groups
        if self._app is not None and groups is not None:
            chosen = program or groups_of(hosts, groups)
        ages, scrubs = node.unflushed(), node.scrubs()
        return _Answer(problems, groups, chosen, hosts, program, ages, scrubs, health)

    def _show_troubles(self, answer: _Answer) -> Flows | None:
        """Show what is wrong; return what flowed since the last sample, None without a sample."""
        if answer.health is None:
            return None
        after = sample_of(answer.health.node, time.monotonic())
        before, self._before = self._before, after
        health = replace(answer.health, growth=growth_between(before, after))
        only = None if self._app is None else answer.chosen or ()
        show_troubles(health, answer.hosts, only, as_json=self._common.as_json)
        return flows_between(before, after)

    def _days(self, flows: Flows) -> DayReadings:
        """Return what the topics of *flows* stored today and yesterday."""
        shown = {each.topic for each in flows.topics}
        topics = self._node.topics.all().items()
        return read_days(self._node, {name: topic for name, topic in topics if name in shown})

    def _hosts_or_program(
        self, groups: Sequence[GroupDescription]
    ) -> tuple[list[Host], list[GroupDescription]]:
        """Return the hosts of apps; or the groups of one that runs as a program of its own."""
        try:
            return apps_of(self._node).hosts(self._app), []
        except ConfigError as error:  # it is not up
            if found := groups_of_program(self._app or "", groups):
                return [], found
            # A group with a name of its own does not tell whose it is.
            names = ", ".join(sorted({each.group for each in living(groups)}))
            if not names:
                raise
            raise ConfigError(
                f"{error}; if it runs as a program, look at the groups that have members: {names}"
            ) from None

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

"""``rocketray tail``: the messages of a topic as they arrive, with a filter's verdict on each."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.base.quantity import counted
from rocketray.cli.arguments.filter_choice import (
    FilterNameOption,
    FilterOptions,
    filter_on_node,
)
from rocketray.cli.arguments.lookup_options import parse_bound
from rocketray.cli.arguments.message_format import FormatOption
from rocketray.cli.arguments.messages import message_printer, one_line
from rocketray.cli.arguments.node import node_connections
from rocketray.cli.arguments.options import (
    CommonOptions,
    DialectOption,
    MaxOption,
    SqlOption,
    TagsOption,
    TimeoutOption,
    TopicArgument,
    WhereOption,
    tell_doubts_of,
)
from rocketray.cli.terminal.output import print_json, print_line, progress
from rocketray.runtime.signal_handlers import stop_signals
from rocketray.views.message_records import seen_record, why_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from rocketray.broker.filtering.seen_messages import SeenMessage
    from rocketray.broker.filtering.tail import TailCounts, TailStart
    from rocketray.message import StoredMessage
    from rocketray.messaging.remote.disks_tail import DisksTail, UnreadQueues

_PAUSE_S = 0.05  # between two looks at a queue without new messages
_LOOK_FOR_QUEUES_S = 2.0  # it asks the node for the topic; queues are added rarely
_HINT_S = 3.0  # of silence at the start; then a line says what is waited for
_GRACE_S = 1.0  # an answer from another machine takes no longer, once its service runs


def tail(
    topic: TopicArgument,
    *,
    tags: TagsOption = None,
    sql: SqlOption = None,
    dialect: DialectOption = None,
    where: WhereOption = None,
    filter_name: FilterNameOption = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHEN",
            help="Where to begin: latest, earliest, a time, or an offset of each queue.",
        ),
    ] = "latest",
    rejected: Annotated[
        bool,
        typer.Option("--rejected", help="Also show what the filter rejects, and the reason."),
    ] = False,
    max_count: MaxOption = None,
    timeout_s: TimeoutOption = None,
    output_format: FormatOption = None,
    common: CommonOptions,
) -> None:
    """Show messages as they arrive, without a group.

    The command reads the files of the node, and changes nothing: no group takes part and no offset
    moves. Queues on disks of other machines are fetched from there, filtered; a disk that does not
    answer is named on stderr, and its queues continue when it does.

    With --rejected each line begins with the verdict, and ends with the part of the filter that
    rejected the message. --json prints each message as "store scan" does, and verdict and why. A
    predicate (--where) is imported and run by this command, on the machine that has all queues.

    WHEN is ISO 8601, or a number: up to 11 digits are an offset, more are milliseconds since 1970.

    At the end, stderr has the number of messages that were scanned, and what each stage of the
    filter rejected. What was stored before the start is shown completely. Of what arrives later, a
    reader that falls more than 65536 messages behind in a queue gets only the newest; the others
    are counted. Messages are in the order of their times as far as they arrive together.

    Examples:
        rocketray tail Trade --sql "amount > 100" --rejected
        rocketray tail Trade --tags pay --from 2026-11-21T08:30:00Z --max 10
    """
    if rejected and output_format is not None:
        raise typer.BadParameter("--format has no verdicts; leave out --rejected, or use --json")
    begin, show = parse_start(start), message_printer(output_format, as_json=common.as_json)
    chosen = FilterOptions(tags, sql, dialect, where, filter_name=filter_name).chosen()
    with stop_signals() as signals, closing(node_connections(common.data)) as connections:
        subscription = connections.ask(lambda node: filter_on_node(node, topic, chosen))
        connections.ask(lambda node: tell_doubts_of(node, [topic], subscription))
        from rocketray.messaging.remote.disks_tail import DisksTail  # NumPy and Arrow
        from rocketray.messaging.remote.tail_api import TailQuery  # the same

        hint = f"waiting for messages of topic {topic} that match {subscription}; Ctrl-C stops"
        query = TailQuery(topic, subscription, begin, with_rejected=rejected)
        reader = DisksTail(connections.ask, query)
        printer = _TailPrinter(reader, show, with_verdict=rejected, as_json=common.as_json)
        try:
            _follow(
                reader, printer, signals.event, max_count=max_count, timeout_s=timeout_s, hint=hint
            )
        finally:
            for line in summary(reader.counts):
                progress(line)
            if max_count is None or printer.count < max_count:
                for unread in reader.unread:
                    progress(f"incomplete: {unread}")
            reader.close()


def parse_start(text: str) -> TailStart:
    """Return where a tail begins; raises :class:`typer.BadParameter`."""
    from rocketray.broker.filtering.tail import TailStart  # imports NumPy and Arrow

    if text in ("latest", "earliest"):
        return TailStart("latest" if text == "latest" else "earliest")
    bound = parse_bound(text, "latest, earliest, an offset or a time")
    return TailStart("time" if bound.is_time else "offset", bound.number)


class _TailPrinter:
    """Prints what a tail reads, and counts the lines."""

    def __init__(
        self,
        tail: DisksTail,
        show: Callable[[StoredMessage], None],
        *,
        with_verdict: bool,
        as_json: bool,
    ) -> None:
        self.count = 0
        self._tail = tail
        self._show = show
        self._with_verdict = with_verdict
        self._as_json = as_json

    def print(self, most: int | None) -> int:
        """Print what is new, at most *most* messages; return their number."""
        before = self.count
        for seen in self._tail.read():
            if most is not None and self.count - before >= most:
                break
            self.count += 1
            if self._as_json:
                print_json(seen_record(seen))
            elif self._with_verdict:
                print_line(_with_verdict(seen))
            else:
                self._show(seen.message)
        return self.count - before


def _with_verdict(seen: SeenMessage) -> str:
    reason = why_of(seen)
    why = "" if reason is None else f"  <- {reason}"
    return f"{seen.reason.value:12}  {one_line(seen.message)}{why}"


def _follow(
    tail: DisksTail,
    printer: _TailPrinter,
    signalled: threading.Event,
    *,
    max_count: int | None,
    timeout_s: float | None,
    hint: str,
) -> None:
    """Print until a signal, *max_count* messages, or *timeout_s* seconds without one."""
    last_s = looked_s = time.monotonic()
    notices = Notices(hint)
    while not signalled.is_set():
        left = None if max_count is None else max_count - printer.count
        if left == 0:
            return
        now_s = time.monotonic()
        scanned = tail.counts.filter.scanned
        if printer.print(left):
            last_s = now_s
            notices.hint = ""
        elif tail.has_more:  # another machine has not answered yet
            last_s = now_s
        elif timeout_s is not None and now_s - last_s > timeout_s:
            return
        notices.tell(tail.unread, now_s, is_late=now_s - last_s > _HINT_S)
        if now_s - looked_s > _LOOK_FOR_QUEUES_S:
            tail.look_for_queues()
            looked_s = now_s
        if tail.counts.filter.scanned == scanned:
            signalled.wait(_PAUSE_S)


class Notices:
    """Says on stderr, once each, why nothing comes: of all queues, or of those of a disk."""

    def __init__(self, hint: str) -> None:
        self.hint = hint
        """What is said once if nothing comes at first."""
        self._since_s: dict[str, float] = {}
        self._told: set[str] = set()

    def tell(self, unread: Sequence[UnreadQueues], now_s: float, *, is_late: bool) -> None:
        """Say what has changed; *now_s* is monotonic."""
        if is_late and self.hint:
            progress(self.hint)
            self.hint = ""
        now = {each.named(): each for each in unread}
        for name, each in now.items():
            since_s = self._since_s.setdefault(name, now_s)
            if name not in self._told and now_s - since_s > _GRACE_S:
                progress(f"warning: {each}")
                self._told.add(name)
        for name in self._since_s.keys() - now.keys():
            del self._since_s[name]
            if name in self._told:
                progress(f"{name}: read again")
                self._told.remove(name)


def summary(counts: TailCounts) -> list[str]:
    """Return the lines on what each stage of the filter did, and on what was not read."""
    found = counts.filter
    stages = {
        "by tag": found.tag_rejected,
        "by the tag's text": found.collisions,
        "by SQL": found.sql_rejected,
        "by the predicate": found.class_rejected,
    }
    rejected = [f"{count:,} rejected {stage}" for stage, count in stages.items() if count]
    failed = [f"the filter failed on {found.errors:,}"] if found.errors else []
    parts = [f"scanned {found.scanned:,}", *rejected, *failed, f"matched {found.delivered:,}"]
    lines = [", ".join(parts)]
    if counts.error:
        lines.append(f"the first failure: {counts.error}")
    if counts.skipped:
        lines.append(
            f"{counted(counts.skipped, 'message')} not read, because the reader was slower than "
            "the producers"
        )
    if found.missed:
        lines.append(
            f"missed {counted(found.missed, 'message')}, deleted before the tail read them"
        )
    return lines

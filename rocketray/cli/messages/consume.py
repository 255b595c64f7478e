"""``rocketray consume``: join a group as a member, and print its messages."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.cli.arguments.filter_choice import FilterOptions
from rocketray.cli.arguments.lookup_options import parse_place
from rocketray.cli.arguments.message_format import FormatOption
from rocketray.cli.arguments.messages import message_printer
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import (
    CommonOptions,
    GroupOption,
    MaxOption,
    TimeoutOption,
    TopicArgument,
    tell_doubts_of,
)
from rocketray.cli.terminal.output import OutputReader, progress
from rocketray.runtime.signal_handlers import stop_signals

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from rocketray.broker.topics.consumed_batch import ConsumedBatch
    from rocketray.filters.subscription import Subscription
    from rocketray.groups.group_descriptions import GroupDescription
    from rocketray.groups.member_options import MemberOptions
    from rocketray.message import StoredMessage
    from rocketray.messaging.consumers.member import GroupConsumer

_HINT_S = 3.0  # without a message; then who waits is told so, once
_POLL_S = 0.25  # how long a signal may go unseen


def consume(
    topic: TopicArgument,
    *,
    group: GroupOption,
    subscribed: FilterOptions,
    start: Annotated[
        str,
        typer.Option(metavar="WHEN", help="Where a new group begins: earliest, latest, or a time."),
    ] = "earliest",
    broadcast: Annotated[
        bool,
        typer.Option(
            "--broadcast",
            help="Get all messages of all queues, and keep the offsets in a local file.",
        ),
    ] = False,
    client_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The member's name in the group; with --broadcast the host's name by default.",
        ),
    ] = None,
    max_count: MaxOption = None,
    timeout_s: TimeoutOption = None,
    output_format: FormatOption = None,
    common: CommonOptions,
) -> None:
    """Consume messages as a member of a group, and print them.

    A line has the place, tag, keys and text of a message; with --json it is an object as "store
    scan" prints it, and with --format what that says, as for kcat. If the group has no members and
    another subscription, it takes the new one, and stderr shows the old one.

    Ends after --max messages, after --timeout seconds without one, when the reader of a pipe closes
    it, or with Ctrl-C. Without --tags, --sql, --where and --filter it gets all messages. A --filter
    without a version is that of the group's members, if they read it too, else the latest.

    A message is committed after it was printed, and the group continues after it. Into a pipe,
    messages are written one at a time, and each is committed when the reader has read it: "consume
    ... | head -2" commits two, and what was not read from the pipe is redelivered. A message that a
    program reads and then loses is committed: a program that must not lose any has to be a member
    itself, with Client.consumer, and commit when its work is done. If the process is killed, the
    next one may print the last messages again.

    With --broadcast each member gets all messages, and resumes at the offsets of its client id,
    which are in DATA/broadcast/ID/GROUP/TOPIC.json. Each of several members on one host needs its
    own id.

    Examples:
        rocketray consume Trade --group audit
        rocketray consume Trade --group large --sql "amount > 100" --max 10 --json
    """
    begin, show = parse_place(start), message_printer(output_format, as_json=common.as_json)
    chosen = subscribed.chosen()
    options: MemberOptions = {"start": begin, "client_id": client_id}
    if broadcast:
        options["broadcast"] = True
        options["client_id"] = client_id or platform.node()
    with ask(common.data, stays=True) as connection, stop_signals() as signals:
        before = _subscribed(connection.groups.all(), group, topic)
        with connection.consumer(group, topic, chosen, **options) as consumer:
            subscription = consumer.subscription
            if before not in (None, subscription):
                progress(f"group {group} had the subscription {before} before")
            tell_doubts_of(connection, [topic], subscription)
            hint = f"waiting for messages of topic {topic} that match {subscription}; Ctrl-C stops"
            printer = _Printer(consumer, signals.event, show)
            _print_all(printer, max_count, timeout_s, hint)


def _subscribed(groups: Sequence[GroupDescription], group: str, topic: str) -> Subscription | None:
    """Return what *group* subscribes to, unless it is about to change; None for a new group."""
    found = (each for each in groups if (each.group, each.topic) == (group, topic))
    return next((each.subscription for each in found if each.plan is None), None)


def _print_all(
    printer: _Printer, max_count: int | None, timeout_s: float | None, hint: str
) -> None:
    last = time.monotonic()
    while not printer.signalled.is_set() and (max_count is None or printer.count < max_count):
        waited_s = time.monotonic() - last
        if timeout_s is not None and waited_s > timeout_s:
            return
        if hint and waited_s > _HINT_S:
            progress(hint)
            hint = ""
        for batch in printer.consumer.poll(_POLL_S):
            before = printer.count
            printer.print(batch, len(batch) if max_count is None else max_count - before)
            last = last if printer.count == before else time.monotonic()


class _Printer:
    """Prints messages, and commits those that the reader of stdout has read."""

    def __init__(
        self,
        consumer: GroupConsumer,
        signalled: threading.Event,
        show: Callable[[StoredMessage], None],
    ) -> None:
        self.count = 0
        self.consumer = consumer
        self.signalled = signalled
        self._show = show
        self._reader = OutputReader()

    def print(self, batch: ConsumedBatch, room: int) -> None:
        """Print up to *room* messages; commit behind the last one read, also on a closed pipe."""
        finished = 0
        shown = batch.messages()[:room]
        try:
            for message in shown:
                self._show(message)
                if not self._reader.has_read(self.signalled):
                    break
                finished += 1
        finally:
            self.count += finished
            # Behind the whole batch, which includes what the filter rejected after its last
            # message.
            if finished == len(batch):
                self._commit(batch, batch.next_queue_offset)
            elif finished:
                self._commit(batch, shown[finished - 1].queue_offset + 1)

    def _commit(self, batch: ConsumedBatch, next_queue_offset: int) -> None:
        self.consumer.commit(batch.topic, batch.queue_id, next_queue_offset)

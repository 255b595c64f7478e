"""``rocketray store import``: copy messages of a broker's store to topics of a running node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.base.json_fields import json_fields
from rocketray.cli.arguments.node import connect
from rocketray.cli.arguments.options import CommonOptions
from rocketray.cli.arguments.store_directory import DirectoryArgument, foreign_settings
from rocketray.cli.terminal.output import TextTable, progress
from rocketray.errors import StoreError
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.signal_handlers import stop_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketray.services.admin.importer import Importer, ImportReport
    from rocketray.store.importing.import_source import ImportSource


def import_messages(
    directory: DirectoryArgument,
    *,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="A topic to import; may be repeated."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all", help="Import every topic but RocketMQ's own system topics.")
    ] = False,
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="Count and skip records that cannot be read."),
    ] = False,
    common: CommonOptions,
) -> None:
    """Import a store directory's messages into a running node.

    DIR is the store directory of a RocketMQ broker, or any other store. It is only read. Missing
    topics are created; existing ones must be empty.

    A message keeps its queue, its order, body, keys, tag, properties, flags, and the times and the
    host it was born and stored with. Queue offsets begin at 0. Its old offset id becomes the
    property IMPORTED_OFFSET_ID, by which "rocketray query --id" finds it, too.

    Ctrl-C stops the import. The same command, run again, resumes after the last imported message:
    no message is lost or duplicated. --all leaves out topics that a node cannot have, for example
    because their names are too long, and names them. The exit code is 0 when all is imported.

    Examples:
        rocketray store import ./store --topic Trade
        rocketray store import ./store --all --data /srv/stream
    """
    from rocketray.services.admin.importer import Importer  # imports NumPy
    from rocketray.store.importing.import_source import ImportSource  # Arrow

    if bool(topics) == all_topics:
        raise typer.BadParameter("give --topic, once or more, or --all")
    foreign = foreign_settings(directory)
    config = foreign.config if foreign else None
    with (
        connect(common.data) as connection,
        ImportSource(directory, config, clock_ms=system_clock_ms) as source,
    ):
        importer = Importer(source, connection, skip_damaged=skip_damaged)
        chosen = sorted(set(topics)) if topics else None
        importer.prepare(chosen, _queue_counts(directory))
        report = _run(importer, source)
    common.emit(json_fields(report), _shown(report))
    for topic, reason in report.left_out.items():
        progress(f"topic {topic!r} was left out: {reason}")
    if not report.complete:
        progress("stopped; run the same command again to resume")
    if report.left_out or not report.complete:
        raise typer.Exit(1)


def _run(importer: Importer, source: ImportSource) -> ImportReport:
    from rocketray.cli.terminal.progress import ProgressDisplay  # imports rich

    size = max(source.end - source.begin, 1)
    with stop_signals() as signals, ProgressDisplay(sys.stderr) as shown:
        return importer.run(
            on_progress=lambda position, imported: shown.show(
                f"{100 * (position - source.begin) // size} % of the log, {imported:,} imported"
            ),
            should_stop=signals.event.is_set,
        )


def _queue_counts(directory: Path) -> dict[str, int]:
    """Return the queues of each topic with files, by the broker's ``config/topics.json``."""
    from rocketray.runtime.files.state_files import read_json  # imports orjson

    path = directory / "config" / "topics.json"
    with_files = {topic.name for topic in (directory / "consumequeue").glob("*") if topic.is_dir()}
    try:
        table = (read_json(path) or {}).get("topicConfigTable", {})
        return {
            topic: int(entry.get("readQueueNums", 0))
            for topic, entry in table.items()
            if topic in with_files
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise StoreError(
            f"{path} is not a broker's table of topics ({error}); restore it from a copy"
        ) from None


def _shown(report: ImportReport) -> Iterator[str | TextTable]:
    columns = ("topic", "queue", "read", "imported", "already imported", "skipped")
    rows = [
        (
            queue.topic,
            queue.queue_id,
            queue.read,
            queue.imported,
            queue.already_there,
            sum(queue.skipped.values()),
        )
        for queue in report.queues
    ]
    yield TextTable(columns, rows)
    skipped = sum(report.skipped.values())
    yield (
        f"read {report.read:,}: imported {report.imported:,}, already imported "
        f"{report.already_there:,}, skipped {skipped:,}"
    )
    for reason, count in report.skipped.items():
        yield f"  {reason}: {count:,}"
    if report.retimed:
        yield (
            f"{report.retimed:,} of them got the store time of the message before them, because "
            "the broker's clock went back"
        )

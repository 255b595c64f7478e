"""``rocketray store verify``, ``recover`` and ``upgrade``: check a store, and repair it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.base.quantity import counted
from rocketray.cli.arguments.options import JsonOption
from rocketray.cli.arguments.store_directory import (
    DirectoryArgument,
    SlotsOption,
    open_stores,
    store_directories,
    told_settings,
)
from rocketray.cli.terminal.output import TextTable, as_time, emit
from rocketray.cli.terminal.quantities import parse_bytes
from rocketray.errors import CorruptRecordError
from rocketray.runtime.clock import system_clock_ms

from .store_scrub import SCRUB_RATE_DEFAULT, scrub_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketray.store.message_store import MessageStore
    from rocketray.store.recovery.recovery import PastRecovery, RecoveryReport
    from rocketray.store.recovery.verify import Verification


def verify(
    directory: DirectoryArgument,
    *,
    index_hash_slots: SlotsOption = None,
    scrub: Annotated[
        bool,
        typer.Option("--scrub", help="Read complete log files from the disk, beside a node."),
    ] = False,
    rate: Annotated[
        str,
        typer.Option(metavar="BYTES", help="With --scrub: how much is read a second, or none."),
    ] = SCRUB_RATE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Verify a store, and list its problems. Nothing is changed.

    \b
    Checks every record of the log, with its checksum; every queue entry and every key against the
    records, and every record against them; the chains of the index, and the checkpoint. Also shows
    what the last recovery of the store did; lastRecovery is null if there was none, and for a
    RocketMQ directory, for which only "store recover" shows it.

    DIR is a node's data directory, a shard's, or the store directory of a RocketMQ broker; no
    process may write to it meanwhile. The exit code is 1 if there is a problem.

    \b
    With --scrub, a process may write to it, and the node continues. It reads log files that are
    complete, and on disk; of a store that was closed, all of the log. It reads what the disk
    has, not what is in memory, and leaves the system's page cache alone. It checks every record,
    with its checksums, and the queue entry that points to it; keys are not checked. Progress is
    shown on stderr. A node does the same by itself, once a day: see rocketray start --scrub-rate,
    and rocketray status.

    Examples:
        rocketray store verify ./rocketray-data
        rocketray store verify ./rocketray-data --scrub --rate 4MiB
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    from rocketray.store.recovery.recovery import read_past_recovery  # NumPy

    problems = 0
    for path in store_directories(directory):
        try:
            if scrub:
                found = scrub_store(path, index_hash_slots, parse_bytes(rate) or 0)
                problems += _shown_problems(found, as_json=as_json)
                continue
            with open_stores(path, index_hash_slots=index_hash_slots) as (opened,):
                verification = opened.store.verify()
            found = _verification_record(path, verification, read_past_recovery(path))
        except CorruptRecordError as error:
            # The store could not even be opened; those after it are still verified.
            record = {"file": error.path, "offset": error.physical_offset, "problem": error.reason}
            found = {"directory": str(path), "problems": [record]}
        problems += _shown_problems(found, as_json=as_json)
    if problems:
        raise typer.Exit(1)


def _shown_problems(found: dict[str, Any], *, as_json: bool) -> int:
    """Print what was *found* in a store; return the number of problems."""
    emit(found, _shown_verification(found), as_json=as_json)
    return len(found["problems"])


def recover(
    directory: DirectoryArgument,
    *,
    index_hash_slots: SlotsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Repair a store: its log, its queues and its index.

    \b
    What follows the first bad record is cut off the log, and kept in commitlog/broken. If good
    records that were on disk follow a bad one, it is skipped and reported, and nothing is cut.
    Queue entries and keys are rebuilt from the log, and good ConsumeQueueExt units are kept.

    DIR is a node's data directory, a shard's, or the store directory of a RocketMQ broker, which
    can continue with it afterwards. No process may have it open. The command may be repeated at any
    time.

    Examples:
        rocketray store recover ./rocketray-data
        rocketray store recover ./store --json
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    from rocketray.store.files.store_settings import Salvage  # imports NumPy
    from rocketray.store.message_store import MessageStore  # NumPy and Arrow

    for path in store_directories(directory):
        foreign = told_settings(path, index_hash_slots)
        config = foreign.config if foreign else None
        is_index_known = foreign is None or foreign.slots_from != "unknown"
        salvage = Salvage.ALL if is_index_known else Salvage.ALL_BUT_INDEX
        with MessageStore(path, config, salvage=salvage, clock_ms=system_clock_ms) as store:
            assert store.recovery is not None
            found = _recovery_record(path, store, store.recovery)
        emit(found, TextTable(("what", "value"), _rows(found)), as_json=as_json)


def upgrade(directory: DirectoryArgument, *, as_json: JsonOption = False) -> None:
    """Upgrade stores of an older rocketray to this version.

    Older versions cannot write them any more. DIR is a node's data directory or a shard's; the node
    must be stopped. A store that is up to date is not changed.

    Examples:
        rocketray store upgrade ./rocketray-data
        rocketray store upgrade ./rocketray-data --json
    """
    from rocketray.store.files.store_settings import upgrade_store  # imports NumPy

    for path in store_directories(directory):
        had = upgrade_store(path)
        record = {"directory": str(path), "hadVersion": had}
        emit(record, f"{path}: was version {had}", as_json=as_json)


def _verification_record(
    path: Path, found: Verification, past: PastRecovery | None
) -> dict[str, Any]:
    return {
        "directory": str(path),
        "files": {
            "commitlog": found.log_files,
            "consumequeue": found.queue_files,
            "index": found.index_files,
        },
        "records": found.records,
        "queueEntries": found.queue_entries,
        "keys": found.keys,
        "lastRecovery": past and {"time": past.time_ms, **_report_record(past.report)},
        "problems": [
            {"file": one.file, "offset": one.offset, "problem": one.what} for one in found.problems
        ],
    }


def _shown_verification(found: dict[str, Any]) -> Iterator[str | TextTable]:
    shown = {name: value for name, value in found.items() if name != "problems"}
    if past := found.get("lastRecovery"):
        shown["lastRecovery"] = {**past, "time": as_time(past["time"], exact=True)}
    yield TextTable(("what", "value"), _rows(shown))
    for problem in found["problems"]:
        yield f"{problem['file']}: at {problem['offset']}: {problem['problem']}"
    yield counted(len(found["problems"]), "problem") if found["problems"] else "no problems"


def _recovery_record(path: Path, store: MessageStore, report: RecoveryReport) -> dict[str, Any]:
    return {
        "directory": str(path),
        "minPhyOffset": store.reads.min_physical_offset,
        "maxPhyOffset": store.reads.max_physical_offset,
        "messages": report.records_read,
        "queues": {
            f"{topic}/{queue_id}": [
                store.reads.min_queue_offset(topic, queue_id),
                store.reads.max_queue_offset(topic, queue_id),
            ]
            for topic, queue_id in store.reads.queues()
        },
        **_report_record(report),
    }


def _report_record(report: RecoveryReport) -> dict[str, Any]:
    return {
        "cause": report.cause,
        "files": report.files_read,
        "records": report.records_read,
        "filesRepaired": report.files_repaired,
        "bytesCut": report.bytes_kept_aside,
        "rebuiltEntries": report.queue_entries_put,
        "entriesCut": report.queue_entries_cut,
        "rebuiltKeys": report.keys_put,
        "holes": [
            {"start": hole.start, "end": hole.end, "reason": hole.reason} for hole in report.holes
        ],
        "seconds": report.elapsed_ms / 1000,
    }


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, _shown(value)) for name, value in found.items()]


def _shown(value: object) -> str:
    """Return a value for people, without brackets and quotes."""
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_shown(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list):  # of numbers: from the first to behind the last
        between = " to " if all(isinstance(each, int) for each in value) else ", "
        return between.join(map(_shown, value)) or "none"
    return str(value)

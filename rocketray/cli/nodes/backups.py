"""``rocketray backup`` and ``restore``: a data directory's copy, and a data directory from it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.base.quantity import counted
from rocketray.broker.disks.joined_cluster import read_joined
from rocketray.cli.arguments.directories import refuse_cluster
from rocketray.cli.arguments.options import DATA_DEFAULT, CommonOptions, DataOption, JsonOption
from rocketray.cli.terminal.output import as_time, emit
from rocketray.runtime.clock import system_clock_ms

if TYPE_CHECKING:
    from rocketray.broker.backups.backup import OnProgress
    from rocketray.broker.backups.manifest import Manifest
    from rocketray.cli.terminal.progress import ProgressDisplay

_MB = 1_000_000  # as disks are sold, and copies timed


def backup(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new or empty directory for the backup.")
    ],
    *,
    common: CommonOptions,
) -> None:
    """Copy a node's data directory while it is used.

    The copy has every message that was acknowledged before the start, and no group's offset is
    beyond its queue. Each file is read again and verified. The last one written is manifest.json;
    without it DIR is no backup. An interrupted backup begins again if the command is repeated.

    A cluster of several disks has a backup of each, made on its machine. A stopped node cannot be
    started meanwhile.

    Examples:
        rocketray backup ./monday
        rocketray backup ./monday --data /srv/stream --json
    """
    from rocketray.broker.backups.backup import back_up  # imports NumPy
    from rocketray.cli.terminal.progress import ProgressDisplay  # imports rich

    refuse_cluster("backup", common.data)
    begun = time.monotonic()
    with ProgressDisplay(sys.stderr) as shown:
        made = back_up(
            common.data, directory, clock_ms=system_clock_ms, on_progress=_on_progress(shown)
        )
    record = {"backup": str(directory.resolve()), **_record(made, time.monotonic() - begun)}
    text = f"{directory}: {_summary(made, time.monotonic() - begun)}"
    common.emit(record, text)


def restore(
    directory: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="The directory of a backup.", exists=True)
    ],
    *,
    data: DataOption = DATA_DEFAULT,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The name of the restored cluster, if it has several disks; the same for all.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a new data directory from a backup.

    --data has to be missing or empty. Each file is compared with the backup's manifest, each queue
    is read and its index made, and the directory gets a UUID of its own. So a node can be started
    there beside the original, on a Ray of its own, or on the same with another --cluster name.

    The disks of a cluster are restored one by one, each where it is to be used.

    Examples:
        rocketray restore ./monday --data ./restored
        rocketray restore ./monday --data ./restored --cluster trial
    """
    from rocketray.broker.backups import restore as restoration  # imports NumPy
    from rocketray.cli.terminal.progress import ProgressDisplay  # imports rich

    begun = time.monotonic()
    with ProgressDisplay(sys.stderr) as shown:
        disk, made = restoration.restore(
            directory,
            data,
            clock_ms=system_clock_ms,
            cluster=cluster,
            on_progress=_on_progress(shown),
        )
    elapsed_s = time.monotonic() - begun
    record = {"data": str(data.resolve()), "backupOf": made.disk, **_record(made, elapsed_s)}
    text = (
        f"{data}: {_summary(made, elapsed_s)}, of {as_time(made.begun_ms)}; start it with: "
        f"rocketray start {_options(data, cluster)}--data {data}"
    )
    emit({**record, "disk": disk}, text, as_json=as_json)


def _options(data: Path, cluster: str | None) -> str:
    """Return the options with which a restored disk of several is started."""
    if cluster is None:
        return ""
    joins = "" if read_joined(data) is None else "--join "
    return f"--cluster {cluster} {joins}--ray-address HOST:PORT "


def _on_progress(shown: ProgressDisplay) -> OnProgress:
    return lambda what, done, total: shown.show(
        f"{100 * done // max(total, 1)} % of {total / _MB:,.0f} MB, {what}"
    )


def _record(made: Manifest, elapsed_s: float) -> dict[str, object]:
    return {
        "disk": made.disk,
        "cluster": made.cluster,
        "begunMs": made.begun_ms,
        "queues": dict(made.queues),
        "files": len(made.files),
        "bytes": made.used_bytes,
        "seconds": round(elapsed_s, 3),
    }


def _summary(made: Manifest, elapsed_s: float) -> str:
    queues, files = counted(len(made.queues), "queue"), counted(len(made.files), "file")
    return f"{queues}, {files}, {made.used_bytes / _MB:,.1f} MB in {elapsed_s:.1f} s"

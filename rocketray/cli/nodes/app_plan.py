"""The plan of ``rocketray up``: the machines that an app's hosts run on, and the code they get."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rocketray.cli.terminal.output import counted, progress
from rocketray.environment import process_environ
from rocketray.errors import ConfigError
from rocketray.topology.hosting.app_path import load_app, source_of
from rocketray.topology.hosting.code_archive import CodeArchive, pack_code
from rocketray.topology.hosting.host_plan import HostPlan

if TYPE_CHECKING:
    from rocketray.actors.client.connection import Connection

__all__ = ["Labels", "parse_labels", "plan_of"]

_LARGE_BYTES = 1 << 20
_IGNORES_GITIGNORE = "RAY_RUNTIME_ENV_IGNORE_GITIGNORE"  # Ray's own variable, for its uploads
Labels = tuple[tuple[str, str], ...]


def parse_labels(texts: Iterable[str]) -> Labels:
    """Return the labels of KEY=VALUE; raises :class:`typer.BadParameter`."""
    pairs = []
    for text in texts:
        key, separator, value = text.partition("=")
        if not (key and separator and value):
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--label")
        pairs.append((key, value))
    return tuple(pairs)


def plan_of(
    connection: Connection, path: str, labels: Labels
) -> tuple[HostPlan, CodeArchive | None]:
    """Return the plan for the app at *path*, and its code if it is to be uploaded.

    Raises:
        ConfigError: there is no such app, or its code cannot be uploaded, or *labels* are given for
            an app that stays on this machine.
    """
    cluster = connection.cluster
    if connection.node is not None:  # found by its data directory
        if labels:
            raise ConfigError(
                f"--label chooses among the machines of a cluster; name the cluster, too: "
                f"rocketray --cluster {cluster} up {path} --label …"
            )
        return HostPlan.here(path, cluster, str(Path.cwd()), connection.node.get("data")), None
    app = load_app(path)
    source = source_of(path)
    code = None
    if source is not None:
        heeds = process_environ().get(_IGNORES_GITIGNORE) != "1"
        tables = Path(app.conf.datadir)
        code = pack_code(source.directory, source.file, [tables], heeds_gitignore=heeds)
        _tell(code)
    return HostPlan(path, cluster, labels=labels), code


def _tell(code: CodeArchive) -> None:
    """Say on stderr what is uploaded if it is large, and what is left out."""
    if code.size > _LARGE_BYTES:
        size = code.size / (1 << 20)
        progress(
            f"uploading {counted(code.file_count, 'file')} of {code.directory} ({size:.1f} MiB)"
        )
    if code.left_out:
        progress(f"left out of the upload, with messages or tables: {', '.join(code.left_out)}")

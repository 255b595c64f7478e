"""The data directories that a command reads on this machine: the one that is named, or a cluster's.

Where a cluster is named and no directory is, ``./rocketray-data`` would be a guess. A command that
can ask the cluster reads the directories of its disks here; one that cannot is refused.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rocketray.base.cluster import Cluster
from rocketray.base.data_directory import DEFAULT_DATA
from rocketray.errors import ConfigError, StoreError

from .node import chosen_cluster, chosen_place

if TYPE_CHECKING:
    from rocketray.runtime.files.home import Home


def named_cluster(data: Path) -> Cluster | None:
    """Return the cluster that is named where no directory is, by an option or otherwise.

    None if *data* is to be read: it is an option, or named by the environment or the settings file,
    and the cluster is no option; or neither is named.

    Raises:
        ConfigError: --data and --cluster are both given.
    """
    place = chosen_place(data)
    if isinstance(place, Path) or (chosen_cluster() is None and data is not DEFAULT_DATA):
        return None
    return place


def refuse_cluster(use: str, data: Path) -> None:
    """Raise ConfigError if a cluster is named, and no directory that *use* could read."""
    cluster = named_cluster(data)
    if cluster is not None:
        raise ConfigError(
            f"{use} reads a directory, and cluster {cluster.name} names none: give --data DIR "
            "instead of --cluster, on the machine that has it (see: rocketray topology)"
        )


def directories_here(homes: Iterable[Home]) -> list[Path]:
    """Return the data directories of those *homes* that are on this machine."""
    return [Path(home.data) for home in homes if _is_here(home)]


def none_here(cluster: Cluster, homes: Iterable[Home]) -> str:
    """Return that no disk of the cluster is on this machine, and where its disks are."""
    there = ", ".join(f"{home.data} on {home.machine}" for home in homes)
    return (
        f"no disk of cluster {cluster.name!r} is on this machine, {socket.gethostname()}; it has "
        f"{there}"
    )


def _is_here(home: Home) -> bool:
    from rocketray.runtime.files.home import has_identity

    try:
        return has_identity(Path(home.data), home.uuid)
    except (StoreError, OSError):  # damaged, or another user's
        return home.machine == socket.gethostname()

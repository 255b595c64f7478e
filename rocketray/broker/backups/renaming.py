"""Another name for a cluster of several disks, in the files of one of them.

The files of each disk name the cluster and the UUIDs of all its disks. The new UUID of a disk
follows from its old one and from the new name. So each disk is restored by itself, on its own
machine, and the disks find each other again.
"""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path

from rocketray.broker.disks.disk_register import rename_disks
from rocketray.broker.disks.joined_cluster import JoinedCluster, read_joined, write_joined
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.runtime.files.paths import config_directory
from rocketray.runtime.files.state_files import remove_state

from .manifest import Manifest


def is_of_several(manifest: Manifest) -> bool:
    """Return whether a backup is of a disk of a cluster that has several."""
    return not manifest.files.keys().isdisjoint({"config/joined.json", "config/disks.json"})


def renamed_disk(cluster: str, disk: str) -> str:
    """Return the UUID of a disk in the cluster of the new name; "" for the coordinator's own."""
    return str(uuid.uuid5(uuid.UUID(disk), cluster)) if disk else ""


def rename_cluster(data: Path, cluster: str) -> None:
    """Rename the cluster and its disks in the files of one disk, which no process uses.

    Moves that were under way are forgotten: a backup has the files of a queue from the disk that
    the catalog names, and no others.

    Raises:
        StoreError: a file is damaged, or of another version.
    """
    renamed = partial(renamed_disk, cluster)
    TopicCatalog.load(data).with_disks_renamed(renamed).save(data)
    remove_state(config_directory(data) / "moves.json")
    joined = read_joined(data)
    if joined is not None:
        write_joined(data, JoinedCluster(cluster, renamed(joined.id)))
    else:
        rename_disks(data, cluster, renamed)

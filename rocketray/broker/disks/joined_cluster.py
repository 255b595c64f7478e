"""The record, on a disk, of the cluster that it joined: it never becomes another cluster by itself.

    DATA/config/joined.json     {"version": 1, "cluster": NAME, "id": UUID}

If the coordinator is unavailable, a node that is started on such a disk waits for it. A
coordinator of its own would begin an empty catalog beside that of the cluster.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocketray.base.cluster import check_cluster
from rocketray.base.file_form import FileForm
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import ConfigError
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.paths import config_directory
from rocketray.runtime.files.state_files import read_state, write_json

_FORM = FileForm("config/joined.json")


@dataclass(frozen=True, slots=True)
class JoinedCluster:
    """The cluster that a disk joined: its name, and the UUID of the directory where it began."""

    cluster: str
    id: str


def read_joined(data: Path) -> JoinedCluster | None:
    """Return the cluster that the disk joined, or None.

    Raises:
        StoreError: the record and its copy are damaged.
    """
    return read_state(_file(data), _parsed, owns=False)


def note_joined(home: Home, coordinator: Home) -> None:
    """Record that the disk of *home* joins a cluster; the holder of its lock calls this.

    Raises:
        ConfigError: it joined another cluster before, or has topics of its own.
    """
    data = Path(home.data)
    cluster = JoinedCluster(home.cluster, coordinator.cluster_id or coordinator.uuid)
    before = read_joined(data)
    if before == cluster:
        return
    target = f"cluster {cluster.cluster!r} ({coordinator.data} on {coordinator.machine})"
    if before is not None:
        raise ConfigError(
            f"{data} joined another cluster {before.cluster!r}, which began on "
            f"directory {before.id}; it cannot join {target}: use an empty directory"
        )
    topics = TopicCatalog.load(data).topics
    if topics:
        raise ConfigError(
            f"{data} has topics of its own ({', '.join(sorted(topics)[:5])}), so it cannot join "
            f"{target}: give it another name with --cluster, or join with an empty directory"
        )
    write_joined(data, cluster)


def write_joined(data: Path, cluster: JoinedCluster) -> None:
    """Write the record of the cluster that a disk joined; durable on return."""
    write_json(_file(data), _FORM.of(asdict(cluster)))


def _file(data: Path) -> Path:
    return config_directory(data) / "joined.json"


def _parsed(value: dict[str, Any]) -> JoinedCluster:
    value = _FORM.content(value)
    check_cluster(value["cluster"])
    return JoinedCluster(value["cluster"], str(uuid.UUID(value["id"])))

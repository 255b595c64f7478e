"""The coordinator's register of the disks of a cluster: where each is, and its last report.

    disks       {"version": 1, "cluster": NAME, "id": UUID, "disks": {UUID: {"data": …}},
                 "draining": [UUID]}

It has the disks that joined. The disk of the coordinator itself is not among them; if it is being
drained, "draining" has an empty name. "id" is the UUID of the directory on which the cluster began:
with a register, another directory may have its coordinator by now.

Invariants
  1. A disk that joined stays in the register: the catalog may have queues there.
  2. New queues are placed on disks that answered the last question about their state, and are not
     being drained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from rocketray.base.file_form import FileForm
from rocketray.broker.topics.placement import DiskSpace, spread_over
from rocketray.errors import ConfigError
from rocketray.runtime.files.file_documents import Documents, FileDocuments, SavedDocuments
from rocketray.runtime.files.home import Home

from .disks_api import DiskReport

_NAME = "disks"
_FORM = FileForm("config/disks.json")


@dataclass(frozen=True, slots=True)
class SavedDisks:
    """The document: the name and the id of the cluster, and the disks that joined it."""

    cluster: str
    cluster_id: str
    joined: Mapping[str, Home]
    draining: frozenset[str]


class DiskRegister:
    """All disks of a cluster. For several threads: values are replaced, never changed."""

    def __init__(self, home: Home, documents: Documents) -> None:
        """Load the disks that joined from *documents*; *home* is that of the coordinator.

        Raises:
            StoreError: the file is damaged, or of another version.
            ConfigError: the disks joined a cluster of another name.
        """
        self._documents = documents
        saved = saved_disks(documents) or SavedDisks(home.cluster, home.uuid, {}, frozenset())
        joined = saved.joined
        for disk in joined.values():
            if disk.cluster != home.cluster:
                raise ConfigError(
                    f"{home.data} is of cluster {disk.cluster!r}, which {len(joined)} other disks "
                    f"joined by that name; start it with: --cluster {disk.cluster}"
                )
        self.homes: Mapping[str, Home] = {"": home, **joined}
        self.reports: Mapping[str, DiskReport] = {}
        """The last report of each disk that answers, by name."""
        self.draining: frozenset[str] = saved.draining
        """The disks that get no further queues."""
        self._cluster_id = saved.cluster_id

    def add(self, home: Home) -> None:
        """Save a disk that joins, or is somewhere else now."""
        homes = {**self.homes, home.disk: home}
        if homes != self.homes:
            self._save(homes, self.draining)

    def set_draining(self, disk: str, *, draining: bool) -> None:
        """Save that a disk gets no further queues, or some again.

        Raises:
            ConfigError: there is no such disk, or none would be left that takes queues.
        """
        if disk not in self.homes:
            raise ConfigError(f"the cluster has no disk {disk!r:.60}; see: rocketray topology")
        changed = self.draining | {disk} if draining else self.draining - {disk}
        if not self.homes.keys() - changed:
            raise ConfigError("no disk would be left that takes queues: let another one join first")
        self._save(self.homes, changed)

    def save_in(self, documents: Documents) -> None:
        """Save the disks in other documents, also if there are none."""
        joined = {name: each for name, each in self.homes.items() if name}
        _write(
            documents, SavedDisks(self.homes[""].cluster, self._cluster_id, joined, self.draining)
        )

    def _save(self, homes: Mapping[str, Home], draining: frozenset[str]) -> None:
        joined = {name: each for name, each in homes.items() if name}
        value = SavedDisks(homes[""].cluster, self._cluster_id, joined, draining)
        _write(self._documents, value)
        self.homes, self.draining = homes, draining

    def awaits(self, disk: str) -> bool:
        """Return whether a disk was restored from a backup, and has not joined since then."""
        return disk != "" and disk in self.homes and not self.homes[disk].machine

    def take_report(self, disk: str, report: DiskReport | None) -> bool:
        """Take a disk's report, None if it did not answer; return whether its agent is new."""
        before = self.reports.get(disk)
        others = {name: each for name, each in self.reports.items() if name != disk}
        self.reports = others if report is None else {**others, disk: report}
        return report is not None and (before is None or before.incarnation != report.incarnation)

    def spread(self, present: Sequence[str], queues: int) -> tuple[str, ...]:
        """Return the disks of *queues* queues of a topic; see :func:`spread_over`."""
        reports = self.reports
        disks = [
            DiskSpace(name, reports[name].zone, reports[name].free_bytes)
            for name in self.taking()
            if name in reports
        ]
        # Without a report, as at the start, there is the coordinator's own disk.
        return spread_over(disks or [DiskSpace("", "", 0)], present, queues)

    def taking(self) -> list[str]:
        """Return the disks that take new queues, the first one first; at least one."""
        reports, draining = self.reports, self.draining
        # Before the first reports there is the coordinator's own disk, whose name sorts first.
        return sorted(reports.keys() - draining) or [""]


def saved_disks(documents: SavedDocuments) -> SavedDisks | None:
    """Return the saved disks of a cluster, None if none were saved.

    Raises:
        StoreError: the document is damaged, or of another version.
    """
    return documents.load(_NAME, _parsed)


def rename_disks(data: Path, cluster: str, renamed: Callable[[str], str]) -> None:
    """Rename a cluster, and its disks as *renamed* returns, in a register that no process uses.

    Raises:
        StoreError: the file is damaged, or of another version.
    """
    documents = FileDocuments(data)
    saved = saved_disks(documents)
    if saved is None:
        return
    # Without a machine, the new coordinator knows that a disk has yet to join (awaits).
    homes = {
        renamed(name): replace(home, uuid=renamed(name), cluster=cluster, machine="", ray_node="")
        for name, home in saved.joined.items()
    }
    draining = frozenset(map(renamed, saved.draining))
    _write(documents, SavedDisks(cluster, renamed(saved.cluster_id), homes, draining))


def _write(documents: Documents, saved: SavedDisks) -> None:
    content = {
        "cluster": saved.cluster,
        "id": saved.cluster_id,
        "disks": {name: _to_json(each) for name, each in saved.joined.items()},
        "draining": sorted(saved.draining),
    }
    documents.save(_NAME, _FORM.of(content))


def _to_json(home: Home) -> dict[str, Any]:
    kept = asdict(home)
    del kept["uuid"], kept["is_joined"], kept["cluster_id"]
    return kept


def _parsed(value: dict[str, Any]) -> SavedDisks:
    value = _FORM.content(value)
    homes = {}
    for uuid, kept in value["disks"].items():
        data, machine, node, cluster = (
            str(kept[name]) for name in ("data", "machine", "ray_node", "cluster")
        )
        homes[uuid] = Home(data, uuid, machine, node, cluster, is_joined=True)
    draining = frozenset(map(str, value["draining"]))
    return SavedDisks(str(value["cluster"]), str(UUID(value["id"])), homes, draining)

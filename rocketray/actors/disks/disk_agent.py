"""The agent of one disk: what the coordinator, on another machine, asks of the disk's files."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from rocketray.actors.topics.catalog import TopicCatalog, TopicConfig
from rocketray.actors.topics.topic_files import remove_files

from .disks_api import DiskReport

__all__ = ["DiskAgent"]


class DiskAgent:
    """The object behind ``DiskApi``."""

    def __init__(self, data: Path, zone: str = "") -> None:
        """Take the data directory, and the zone of its machine."""
        self._data = data
        self._zone = zone
        self._incarnation = uuid.uuid4().hex

    def report(self) -> DiskReport:
        """Return the state of the disk."""
        usage = shutil.disk_usage(self._data)
        return DiskReport(self._incarnation, self._zone, usage.free, usage.total)

    def keep_catalog(self, catalog: TopicCatalog) -> None:
        """Keep the catalog of the disk's topics: its shard processes read it at their start."""
        catalog.save(self._data)

    def remove_files(self, topic: TopicConfig) -> None:
        """Remove the files of a deleted topic; raises as ``topic_files.remove_files``."""
        remove_files(self._data, topic)

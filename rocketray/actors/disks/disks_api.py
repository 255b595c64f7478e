"""The calls about the disks of a cluster: to the coordinator, and to the agent on each disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rocketray.actors.calls.endpoint import (
    COORDINATOR_NAME,
    FILTER_NAME,
    Endpoint,
    on_disk,
    waits,
)
from rocketray.actors.files.home import Home
from rocketray.actors.filtering.filter_rules import FilterRules
from rocketray.actors.topics.catalog import TopicCatalog, TopicConfig

__all__ = ["DISKS", "DiskApi", "DiskReport", "DisksApi", "agent_of"]


@dataclass(frozen=True, slots=True)
class DiskReport:
    """What a disk's agent says of it: ``incarnation`` is another one after each start of it."""

    incarnation: str
    zone: str
    free_bytes: int
    total_bytes: int


class DiskApi(Protocol):
    """The calls of a disk's agent; see ``DiskAgent``."""

    def report(self) -> DiskReport:
        """Return the state of the disk."""

    def keep_catalog(self, catalog: TopicCatalog) -> None:
        """Keep the catalog of the disk's topics: its shard processes read it at their start."""

    def remove_files(self, topic: TopicConfig) -> None:
        """Remove the files of a deleted topic; raises as ``topic_files.remove_files``."""


class DisksApi(Protocol):
    """The coordinator's calls about disks; see ``DiskService``."""

    def homes(self) -> dict[str, Home]:
        """Return the homes of all disks by name; the coordinator's own has an empty name."""

    def reports(self) -> dict[str, DiskReport]:
        """Return the last report of each disk that answers, by name."""

    def rules(self) -> FilterRules:
        """Return the filter rules of the cluster."""

    @waits
    def join(self, home: Home) -> None:
        """Take a disk into the cluster, or back; return when its shards answer."""


DISKS = Endpoint(COORDINATOR_NAME, DisksApi)


def agent_of(disk: str) -> Endpoint[DiskApi]:
    """Return the endpoint of a disk's agent, which is in the process of its filter actor."""
    return Endpoint(on_disk(FILTER_NAME, disk), DiskApi)

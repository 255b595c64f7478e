"""The disks of a cluster as JSON records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketray.broker.topics.catalog import TopicConfig
    from rocketray.messaging.api.node_client import NodeClient


def disk_records(node: NodeClient, topics: Mapping[str, TopicConfig]) -> list[dict[str, Any]]:
    """Return the disks, the first one of the cluster first; ``name`` is the one in the catalog."""
    reports, draining = node.disks.reports(), node.disks.draining()
    place = node.disks.coordinator_place()
    disks = []
    for name, home in sorted(node.disks.homes().items()):
        report = reports.get(name)
        disks.append(
            {
                "name": name,
                "disk": home.uuid,
                "machine": home.machine,
                "directory": home.data,
                "zone": "" if report is None else report.zone,
                "state": "answers" if report is not None else "does not answer",
                "isDrained": name in draining,
                "isCoordinator": home.uuid == place.uuid,
                "freeBytes": None if report is None else report.free_bytes,
                "totalBytes": None if report is None else report.total_bytes,
                "queues": sum(len(topic.by_disk().get(name, ())) for topic in topics.values()),
            }
        )
    return disks

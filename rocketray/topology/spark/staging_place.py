"""Where a write stages its rows: the first disk of a node, with the address of its fetch service.

A driver looks it up once for each write or micro-batch, in a process of its own. So it does not
join Ray where it need not: on the node's machine a running service is found by its file.
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path

from rocketray.actors.fetching.read_plan import DiskPlace, FetchService
from rocketray.actors.fetching.service_identity import kept_service
from rocketray.actors.files.home import identity_of
from rocketray.actors.files.node_description import read_description
from rocketray.actors.runtime.machine import whereabouts
from rocketray.actors.staging.staging_client import StagingClient
from rocketray.cluster import Cluster
from rocketray.errors import StreamError

__all__ = ["find_staging"]

_LOG = logging.getLogger(__name__)


def find_staging(node: Path | Cluster) -> DiskPlace:
    """Return the place of the first disk of a running node, whose fetch service answers.

    Raises:
        NodeNotRunningError: it does not run. ShardUnavailableError: its gateway does not start.
    """
    if isinstance(node, Path):
        found = _running_service(node.resolve())
        if found is not None:
            return found
    from rocketray.actors.client.connection import Connection  # noqa: PLC0415 - loads Ray

    connection = Connection.to(node)
    try:
        return connection.ranges.look([]).place
    finally:
        connection.close()


def _running_service(data: Path) -> DiskPlace | None:
    """Return the service of the node on *data*, if that has the first disk and answers."""
    description, kept = read_description(data), kept_service(data)
    if description is None or whereabouts(description) != "here" or kept is None or not kept.port:
        return None
    if Path(str(description.get("coordinatorData", data))) != data:
        return None
    service = FetchService(kept.host, kept.port, kept.token, kept.certificate.encode())
    place = DiskPlace(data, identity_of(data), socket.gethostname(), service)
    try:
        StagingClient(place).calls.overview(0)
    except StreamError as error:
        _LOG.warning("the fetch service of %s is looked up again: %s", data, error)
        return None
    return place

"""Where a write stages its rows: the first disk of a node, with the address of its fetch service.

A driver looks it up twice for each write or micro-batch, in processes that Spark uses again. So
they do not join Ray where they need not: on the node's machine a running service is found by its
file. What was found over Ray is kept in the process for as long as that service answers: it is the
same one when it starts again, and a disk that is elsewhere then has another.
"""

from __future__ import annotations

import logging
import socket
from contextlib import closing
from pathlib import Path

from rocketray.actors.client.connected_client import open_client
from rocketray.base.cluster import Cluster
from rocketray.broker.fetching.read_plan import DiskPlace, FetchService
from rocketray.broker.fetching.service_identity import kept_service
from rocketray.errors import StreamError
from rocketray.runtime.files.home import identity_of
from rocketray.runtime.files.node_description import read_description
from rocketray.runtime.machine import whereabouts
from rocketray.services.staging.staging_client import StagingClient

_LOG = logging.getLogger(__name__)
_KEPT: dict[Path | Cluster, DiskPlace] = {}
"""The places that were found over Ray. One thread of a process uses it."""


def find_staging(node: Path | Cluster) -> DiskPlace:
    """Return the place of the first disk of a running node, whose fetch service answers.

    Raises:
        NodeNotRunningError: it does not run. ShardUnavailableError: its gateway does not start.
    """
    if isinstance(node, Path):
        found = _running_service(node.resolve())
        if found is not None:
            return found
    kept = _KEPT.pop(node, None)
    if kept is not None and _answers(kept):
        _KEPT[node] = kept
        return kept
    with closing(open_client(node)) as client:
        _KEPT[node] = client.ranges.look([]).place
    return _KEPT[node]


def _running_service(data: Path) -> DiskPlace | None:
    """Return the service of the node on *data*, if that has the first disk and answers."""
    description, kept = read_description(data), kept_service(data)
    if description is None or whereabouts(description) != "here" or kept is None or not kept.port:
        return None
    if Path(str(description.get("coordinatorData", data))) != data:
        return None
    service = FetchService(kept.host, kept.port, kept.token, kept.certificate.encode())
    place = DiskPlace(data, identity_of(data), socket.gethostname(), service)
    return place if _answers(place) else None


def _answers(place: DiskPlace) -> bool:
    try:
        # Any answer will do: 0 asks for none of the batches.
        StagingClient(place).calls.overview(0)
    except StreamError as error:
        _LOG.warning("the fetch service of %s is looked up again: %s", place.data, error)
        return False
    return True

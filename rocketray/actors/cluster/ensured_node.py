"""The node of a program that needs one: that which runs, else one of its own for a block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketray.actors.client.connected_client import ConnectedClient, open_client
from rocketray.base.cluster import Cluster, chosen_node
from rocketray.errors import NodeNotRunningError

from .node_options import NodeOptions

_LOG = logging.getLogger(__name__)


@contextmanager
def ensure_node(
    place: Path | str | Cluster | None,
    options: NodeOptions | None = None,
    connect: Callable[[Path | Cluster], ConnectedClient] = open_client,
) -> Iterator[ConnectedClient]:
    """Yield a client of the node of a data directory or a cluster (rocketray/base/cluster.py).

    A node is started for the block if none runs on the directory; that of a cluster has to run.
    *connect* connects to one that runs.

    Raises:
        NodeElsewhereError: it runs on another machine; a second one would fork its log.
    """
    chosen = place if isinstance(place, Cluster) else chosen_node(place)
    try:
        client = connect(chosen)
    except NodeNotRunningError:
        if isinstance(chosen, Cluster):
            raise
    else:
        if isinstance(chosen, Path):
            _LOG.info("a node runs on %s already", client.data)
        with client:
            yield client
        return
    # Only here: a program beside a node that runs needs no Ray, which takes a second to load.
    from rocketray.runtime.ray_process.ray_runtime import logs_directory  # noqa: PLC0415

    from .node import Node  # noqa: PLC0415

    _LOG.info("no node runs on %s: starting one", chosen.resolve())
    with Node(chosen, options) as node, node.connection() as connection:
        _LOG.info("the node on %s is ready; its logs are in %s", node.data, logs_directory())
        yield connection

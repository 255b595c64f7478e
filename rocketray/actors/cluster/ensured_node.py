"""The node of a program that needs one: that which runs, else one of its own for a block."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketray.actors.client.connection import Connection
from rocketray.base.cluster import Cluster, chosen_node
from rocketray.errors import NodeNotRunningError
from rocketray.runtime.ray_process.ray_runtime import logs_directory

from .node import Node
from .node_options import NodeOptions

_LOG = logging.getLogger(__name__)


@contextmanager
def ensure_node(
    place: Path | str | Cluster | None, options: NodeOptions | None = None
) -> Iterator[Connection]:
    """Yield a connection to the node of a data directory or a cluster (rocketray/base/cluster.py).

    A node is started for the block if none runs on the directory; that of a cluster has to run.

    Raises:
        NodeElsewhereError: it runs on another machine; a second one would fork its log.
    """
    data = place if isinstance(place, Cluster) else chosen_node(place)
    if isinstance(data, Cluster):
        with Connection.to(data) as connection:
            yield connection
        return
    try:
        connection = Connection.to(data)
    except NodeNotRunningError:
        _LOG.info("no node runs on %s: starting one", data.resolve())
        with Node(data, options) as node, node.connection() as connection:
            _LOG.info("the node on %s is ready; its logs are in %s", node.data, logs_directory())
            yield connection
    else:
        _LOG.info("a node runs on %s already", connection.data)
        with connection:
            yield connection

"""Stock Faust apps in tests, over a node in this process."""

from __future__ import annotations

from typing import Any

import faust
from faust.transport.drivers import TRANSPORTS
from support.nodes.local_node import LocalNode

# What the installed package says by its entry point.
TRANSPORTS.aliases.setdefault("rocketray", "rocketray.topology.stock.transport:Transport")


def stock_app(node: LocalNode, name: str = "stock", **options: Any) -> Any:
    """A ``faust.App`` whose only setting that matters is its broker."""
    settings: dict[str, Any] = {
        "broker_commit_interval": 0.1,
        "topic_partitions": 2,
        "topic_disable_leader": True,
        "web_enabled": False,
        "datadir": str(node.data / "faust"),
        **options,
    }
    app = faust.App(name, broker="rocketray://", **settings)
    app.transport.connection.node = node
    return app

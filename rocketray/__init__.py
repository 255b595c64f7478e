"""Filtered, replayable, queryable message streams: RocketMQ on Ray, Faust and Spark.

The names below are loaded when they are first used, so that importing ``rocketray`` imports
neither Ray nor Faust nor Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import BatchError, StreamError
from .message import Message, StoredMessage

if TYPE_CHECKING:
    from faust import Record

    from .actors.node import Node
    from .actors.standalone import Client, Producer, TransactionProducer
    from .filters.class_filter import predicate
    from .filters.subscription import Subscription
    from .topology.app import App
    from .topology.flow import FlowLimits

__all__ = [
    "App",
    "BatchError",
    "Client",
    "FlowLimits",
    "Message",
    "Node",
    "Producer",
    "Record",
    "StoredMessage",
    "StreamError",
    "Subscription",
    "TransactionProducer",
    "__version__",
    "predicate",
]

__version__ = "0.1.0"

_LOADED_FROM = {
    "App": "rocketray.topology.app",
    "Client": "rocketray.actors.standalone",
    "FlowLimits": "rocketray.topology.flow",
    "Node": "rocketray.actors.node",
    "Producer": "rocketray.actors.standalone",
    "Record": "faust",
    "Subscription": "rocketray.filters.subscription",
    "TransactionProducer": "rocketray.actors.standalone",
    "predicate": "rocketray.filters.class_filter",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_FROM:
        raise AttributeError(f"module 'rocketray' has no attribute {name!r}")
    return getattr(import_module(_LOADED_FROM[name]), name)


def __dir__() -> list[str]:
    return __all__

"""Filtered, replayable, queryable message streams: RocketMQ on Ray, Faust and Spark.

The names below are loaded on first use, so importing ``rocketray`` imports neither Ray nor Faust
nor Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import errors
from .base.interpreter import name_interpreter as _name_interpreter
from .errors import BatchError, StreamError

if TYPE_CHECKING:
    from .actors.cluster.node import Node
    from .broker.topics.consumed_batch import ConsumedBatch
    from .client import AsyncProducer, Client, Producer
    from .filters.class_filter import predicate
    from .filters.filter_name import FilterName
    from .filters.subscription import Subscription
    from .message import Message, StoredMessage
    from .messaging.producers.batch import SendResult, SendResults
    from .messaging.producers.send_future import SendFuture
    from .messaging.producers.transactional_sends import Transaction
    from .queries import ray_data, spark
    from .queries.spark.sink import SinkHost
    from .topology.app.app import App
    from .topology.app.stream import Stream
    from .topology.delivery.flow import FlowLimits
    from .topology.values.topic import Topic
    from .topology.values.typed_record import Record

__all__ = [
    "App",
    "AsyncProducer",
    "BatchError",
    "Client",
    "ConsumedBatch",
    "FilterName",
    "FlowLimits",
    "Message",
    "Node",
    "Producer",
    "Record",
    "SendFuture",
    "SendResult",
    "SendResults",
    "SinkHost",
    "StoredMessage",
    "Stream",
    "StreamError",
    "Subscription",
    "Topic",
    "Transaction",
    "__version__",
    "predicate",
    "ray_data",
    "spark",
]

__version__ = "0.1.0"

_name_interpreter()  # must run before a Spark session starts; see there

_LOADED_FROM = {
    "App": "rocketray.topology.app.app",
    "AsyncProducer": "rocketray.client",
    "Client": "rocketray.client",
    "ConsumedBatch": "rocketray.broker.topics.consumed_batch",
    "FilterName": "rocketray.filters.filter_name",
    "FlowLimits": "rocketray.topology.delivery.flow",
    "Message": "rocketray.message",
    "Node": "rocketray.actors.cluster.node",
    "Producer": "rocketray.client",
    "Record": "rocketray.topology.values.typed_record",
    "SendFuture": "rocketray.messaging.producers.send_future",
    "SendResult": "rocketray.messaging.producers.batch",
    "SendResults": "rocketray.messaging.producers.batch",
    "SinkHost": "rocketray.queries.spark.sink",
    "StoredMessage": "rocketray.message",
    "Stream": "rocketray.topology.app.stream",
    "Subscription": "rocketray.filters.subscription",
    "Topic": "rocketray.topology.values.topic",
    "Transaction": "rocketray.messaging.producers.transactional_sends",
    "predicate": "rocketray.filters.class_filter",
}


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name in ("ray_data", "spark"):
            value: Any = import_module(f"rocketray.queries.{name}")
        elif name in _LOADED_FROM:
            value = getattr(import_module(_LOADED_FROM[name]), name)
        else:
            raise AttributeError(f"module 'rocketray' has no attribute {name!r}{_meant(name)}")
        globals()[name] = value  # a loop that says rr.Message for each message asks here once
        return value


def __dir__() -> list[str]:
    return __all__


def _meant(name: str) -> str:
    from rocketray.base.meant import meant  # noqa: PLC0415  # loaded only for a mistyped name

    if name in errors.__all__:
        return f"; did you mean 'rocketray.errors.{name}'?"
    near = meant(name, __all__)
    return f"; did you mean {near[0]!r}?" if near else ""

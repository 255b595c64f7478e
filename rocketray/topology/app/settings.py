"""The Faust settings of a rocketray app: our defaults, and the refused ones.

A setting without effect is worse than an error, so a setting that we do not support is refused when
the app is configured, with the reason and an alternative.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import faust

from rocketray.base.meant import refuse_unknown
from rocketray.errors import ConfigError
from rocketray.topology.faust.routes import KeyRouter
from rocketray.topology.faust.table_manager import FeedTableManager
from rocketray.topology.tables.collections import GlobalTable, SetGlobalTable, SetTable, Table
from rocketray.topology.tables.disk import check_store
from rocketray.topology.values.codec import refuse_pickle
from rocketray.topology.values.topic import Topic
from rocketray.topology.values.typed_fields import Serializers

from .agent import Agent
from .stream import Stream

_DEFAULTS: Mapping[str, Any] = {
    "broker": "rocketray://",
    "Stream": Stream,
    "Agent": Agent,
    "Topic": Topic,
    "TableManager": FeedTableManager,
    "Table": Table,
    "GlobalTable": GlobalTable,
    "SetTable": SetTable,
    "SetGlobalTable": SetGlobalTable,
    "Router": KeyRouter,
    "Serializers": Serializers,
    "table_standby_replicas": 0,  # Faust's default is 1, and any is refused below
    "broker_commit_interval": 0.5,  # Faust's is 2.8 s; what is younger is repeated after a crash
    "topic_partitions": 4,  # Faust's default is 8
    "topic_disable_leader": True,  # leadership is a partition of a Kafka topic
    "web_enabled": False,  # two apps on one node would use the same port
}


_OLD_NAMES: Mapping[str, str] = {
    "client_id": "broker_client_id",
    "commit_interval": "broker_commit_interval",
    "create_reply_topic": "reply_create_topic",
    "default_partitions": "topic_partitions",
    "num_standby_replicas": "table_standby_replicas",
    "replication_factor": "topic_replication_factor",
}
"""Deprecated names that Faust still accepts, but not together with the new ones."""


def with_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return *options* over our defaults; raise :class:`ConfigError` for unsupported ones."""
    _check_names(options)
    check_options(options)
    old = {_OLD_NAMES[name] for name in options if name in _OLD_NAMES}
    return {**{name: value for name, value in _DEFAULTS.items() if name not in old}, **options}


def check_settings(conf: Any) -> None:
    """Check settings from any source: arguments, an object or the environment."""
    names = (
        "broker",
        "processing_guarantee",
        "consumer_auto_offset_reset",
        "stream_publish_on_commit",
        "producer_threaded",
        "producer_partitioner",
        "table_standby_replicas",
        "key_serializer",
        "value_serializer",
        "store",
    )
    check_options({name: getattr(conf, name) for name in names})


def check_options(options: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` when one of *options* is unsupported."""
    _check_broker(options.get("broker"))
    guarantee = options.get("processing_guarantee")
    if "exactly_once" in str(getattr(guarantee, "value", guarantee)):
        raise ConfigError(
            "processing_guarantee='exactly_once' needs Kafka's transactions, and Faust itself "
            "ignores it outside its own worker; agents of rocketray are at-least-once: make "
            "handlers idempotent by message id, or write through @app.sink, which is exactly-once"
        )
    start = options.get("consumer_auto_offset_reset", "earliest")
    if start not in ("earliest", "latest"):
        raise ConfigError(
            f"consumer_auto_offset_reset is {start!r}; a new group starts at 'earliest' or 'latest'"
        )
    for name, instead in _REFUSED.items():
        if options.get(name):
            raise ConfigError(f"{name} is not supported: {instead}")
    for name in ("key_serializer", "value_serializer"):
        refuse_pickle(name, options.get(name))
    check_store("store", options.get("store"))


def _check_names(options: Mapping[str, Any]) -> None:
    known = {
        *faust.Settings.SETTINGS,
        *inspect.signature(faust.Settings.on_init).parameters,
        *inspect.signature(faust.App.__init__).parameters,
        *_OLD_NAMES,
        "env",  # in place of the process's environment; only Faust's code names it
    } - {"self", "options", "kwargs"}
    own = {"data", "cluster", "connection", "flow"}
    what, otherwise = "rocketray.App has no setting", "see docs/reference/faust.md for those"
    refuse_unknown(what, options, known | own, otherwise)


def _check_broker(broker: Any) -> None:
    urls = broker if isinstance(broker, Iterable) and not isinstance(broker, str) else [broker]
    for url in urls:
        if url is not None and str(url).rstrip("/") != "rocketray:":
            raise ConfigError(
                f"broker={str(url)!r:.100}: an app of rocketray.App runs on a rocketray node; "
                "leave broker= out, and name the node's data directory with data="
            )


_REFUSED = {
    "agent_supervisor": (
        "a message is redelivered if its handler raises, with any supervisor; to stop the agent or "
        "the app instead, give the agent a supervisor_strategy="
    ),
    "stream_publish_on_commit": (
        "sends are stored before the input is committed, so leave the setting out"
    ),
    "producer_threaded": "a thread always does the sends, so leave the setting out",
    "producer_partitioner": (
        "RocketMQ's hash of a key chooses its queue; to choose another, send with partition="
    ),
    "table_standby_replicas": (
        "a table is rebuilt from its compacted changelog on the same node; for a copy in every "
        "instance declare an app.GlobalTable"
    ),
    "PartitionAssignor": (
        "the node's coordinator assigns queues; give an agent a strategy=, but not in an app with "
        "tables, where all agents own the same queue numbers"
    ),
    "LeaderAssignor": "the node's coordinator chooses the leader",
}


def arguments_of(function: Callable[..., Any]) -> list[str]:
    """Return the keyword arguments of *function*, without itself."""
    parameters = inspect.signature(function).parameters.values()
    named = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [each.name for each in parameters if each.kind in named and each.name != "self"]


def refuse_unknown_options(what: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise :class:`ConfigError` for an option that is none of *known*."""
    names = [*dict.fromkeys(known)]
    refuse_unknown(f"{what} has no option", options, names, f"its options are {', '.join(names)}")

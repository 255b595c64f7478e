"""The options of a node: which of them a joined disk may have, and which of them are kept."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rocketray.base.ack_mode import AckMode, check_ack
from rocketray.base.cluster import check_cluster
from rocketray.base.config import SCRUB_RATE
from rocketray.base.names import QueuesPerProcess, check_queues_per_process
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.errors import ConfigError
from rocketray.runtime.files.private_files import DATA_MODE

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The options of a node.

    ``ray_address``: a Ray to join; without it the node starts one of its own on loopback.
    ``cluster``: the name by which programs find the node from every machine of that Ray. If the
    coordinator of a cluster of that name runs there, on another directory, the node joins it as a
    further disk. Without a name it is ``default``, and joins none.
    ``joins``: whether the directory is only to be a further disk of that cluster. The node then
    waits for the coordinator, and never starts one: machines of a cluster start in any order.
    ``register``: the URL of the register that keeps the state of the coordinator
    (rocketray/runtime/register/register.py). Without one it is in the first disk's directory alone.
    The node of a further disk with it starts the coordinator when the first disk's machine is lost
    (standby.py).
    ``fetch_port``: the port of the disk's fetch service; None takes any free one.
    ``shard_sizes``: fields of :class:`~rocketray.base.config.StoreConfig` for new shards.
    ``allow_predicates``: the modules and ``module:callable`` paths from which groups may name
    predicates.
    ``predicate_time_limit_ms``: how long a predicate may take for a batch of messages.
    ``property_filter``: whether groups may subscribe by SQL92, at first True.
    ``own_predicates``: predicates of the program that starts the node, allowed while this node
    runs.
    ``queues_per_process``: how many queues of a new topic share a process of its own, or
    ``shared``; None has as many processes as cores for all topics (see placement.py).
    ``scrub_rate``: how many bytes a second each shard process reads again of its stored messages,
    to find damage (see rocketray/store/recovery/scrub.py); with 0 none.
    ``data_mode``: the permissions of a new data directory; an existing one keeps its own.
    ``ack``: when a message counts as stored if neither its sender nor its topic says, at first
    "memory" (see rocketray/base/ack_mode.py).

    ``allow_predicates``, ``predicate_time_limit_ms``, ``property_filter`` and ``ack`` are kept for
    the next start; None keeps the last value.
    """

    ray_address: str | None = None
    cluster: str | None = None
    joins: bool = False
    register: str | None = None
    fetch_port: int | None = None
    num_cpus: int | None = None
    shard_sizes: tuple[tuple[str, int], ...] = ()
    allow_predicates: tuple[str, ...] | None = None
    predicate_time_limit_ms: int | None = None
    property_filter: bool | None = None
    own_predicates: tuple[str, ...] = ()
    queues_per_process: QueuesPerProcess = None
    scrub_rate: int = SCRUB_RATE
    data_mode: int = DATA_MODE
    ack: AckMode | None = None

    def __post_init__(self) -> None:
        check_queues_per_process(self.queues_per_process)
        check_ack(self.ack)
        if self.scrub_rate < 0:
            raise ConfigError(f"scrub rate {self.scrub_rate} is negative; give 0 to turn it off")
        if self.cluster is not None:
            check_cluster(self.cluster)
        if self.joins and (self.cluster is None or self.ray_address is None):
            raise ConfigError(
                "to join a cluster, a node needs its name and its Ray: --cluster NAME and "
                "--ray-address HOST:PORT"
            )
        if self.fetch_port is not None and not 0 < self.fetch_port < 2**16:
            raise ConfigError(f"fetch port {self.fetch_port} is not 1 to 65535")
        if not 0o700 <= self.data_mode <= 0o777:
            raise ConfigError(
                f"data mode {self.data_mode:o} is not 700 to 777: the node itself needs all three"
            )

    def check_joining(self) -> None:
        """Raise :class:`ConfigError` for an option that is the whole cluster's."""
        given = {
            "--allow-predicates": self.allow_predicates,
            "--predicate-time-limit-ms": self.predicate_time_limit_ms,
            "--property-filter": self.property_filter,
            "--queues-per-process": self.queues_per_process,
            "--ack": self.ack,
            "--scrub-rate": None if self.scrub_rate == SCRUB_RATE else self.scrub_rate,
        }
        named = [name for name, value in given.items() if value is not None]
        if named or self.shard_sizes or self.own_predicates:
            raise ConfigError(
                f"{', '.join(named) or 'these options'}: a disk that joins cluster "
                f"{self.cluster!r} takes the cluster's; give them to the node of its coordinator"
            )


def settle_rules(data: Path, options: NodeOptions) -> FilterRules:
    """Return the saved rules with the changes of the options, and save the changes."""
    kept = FilterRules.load(data)
    said: dict[str, Any] = {
        "allowed": options.allow_predicates,
        "time_limit_ms": options.predicate_time_limit_ms,
        "property_filter": options.property_filter,
    }
    rules = replace(kept, **{name: value for name, value in said.items() if value is not None})
    if rules != kept:
        rules.save(data)
    for line in rules.doubts():
        _LOG.warning("%s", line)
    return rules.allowing(options.own_predicates)

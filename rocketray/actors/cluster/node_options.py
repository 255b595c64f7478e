"""The options of a node: which of them a joined disk may have, and which of them are kept."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rocketray.base.ack_mode import ACK_PROMISES, AckMode, check_ack
from rocketray.base.cluster import check_cluster
from rocketray.base.config import SCRUB_RATE
from rocketray.base.names import QueuesPerProcess, check_queues_per_process
from rocketray.base.option import option, option_of
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.errors import ConfigError
from rocketray.runtime.files.private_files import DATA_MODE
from rocketray.runtime.register.register_url import REGISTER_URLS

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The options of a node; ``rocketray start`` takes those with a help as they are.

    ``ray_address``: a Ray to join; without it the node starts one of its own on loopback.
    ``cluster``: the name by which programs find the node from every machine of that Ray. If the
    coordinator of a cluster of that name runs there, on another directory, the node joins it as a
    further disk. Without a name it is ``default``, and joins none.
    ``joins``: whether the directory is only to be a further disk of that cluster. The node then
    waits for the coordinator, and never starts one: machines of a cluster start in any order.
    ``register``: see rocketray/runtime/register/register.py, and standby.py for a further disk.
    ``shard_sizes``: fields of :class:`~rocketray.base.config.StoreConfig` for new shards.
    ``own_predicates``: predicates of the program that starts the node, allowed while this node
    runs.
    ``queues_per_process``: see placement.py. ``ack``: see rocketray/base/ack_mode.py.
    ``scrub_rate``: in bytes a second; see rocketray/store/recovery/scrub.py.
    ``data_mode``: the permissions of a new data directory; an existing one keeps its own.

    ``allow_predicates``, ``predicate_time_limit_ms``, ``property_filter`` and ``ack`` are kept for
    the next start; None keeps the last value.
    """

    ray_address: str | None = None
    cluster: str | None = None
    joins: bool = False
    register: str | None = option(
        None,
        "Keep the cluster's topics, groups, offsets and disks there, not on this disk: "
        f"{REGISTER_URLS}. Later starts need the same. With --join: start the coordinator here "
        "when its machine is lost.",
        "URL",
    )
    fetch_port: int | None = option(
        None,
        "The port from which programs on other machines, and Spark, read messages of this "
        "disk, for a firewall.  [default: any free one]",
        "PORT",
        min=1,
        max=65535,
    )
    allow_predicates: tuple[str, ...] | None = option(
        None,
        "A module, or one module:callable, that groups may use as predicates; may be "
        "repeated. [default: as at the last start]",
        "MODULE",
        is_of_cluster=True,
    )
    predicate_time_limit_ms: int | None = option(
        None,
        "Time limit of a predicate for a batch of messages. [default: as at the last "
        "start, at first 1000]",
        "MS",
        is_of_cluster=True,
    )
    property_filter: bool | None = option(
        None,
        "Let groups subscribe by SQL92.  [default: as at the last start, at first yes]",
        is_of_cluster=True,
    )
    queues_per_process: QueuesPerProcess = option(
        None,
        "How many queues of a new topic share a process of its own, or shared, for the "
        "process of the system topics.  [default: as many processes as cores for all topics]",
        "N",
        written="queues",
        is_of_cluster=True,
    )
    ack: AckMode | None = option(
        None,
        "When a message is acknowledged, if neither its sender nor its topic says: "
        f"{ACK_PROMISES}.  [default: as at the last start, at first memory]",
        is_of_cluster=True,
    )
    scrub_rate: int = option(
        SCRUB_RATE,
        "How much each shard process reads again a second of its stored messages, to "
        "find damage; 0 turns it off.",
        "BYTES",
        written="rate",
        is_of_cluster=True,
    )
    data_mode: int = DATA_MODE
    num_cpus: int | None = None
    shard_sizes: tuple[tuple[str, int], ...] = ()
    own_predicates: tuple[str, ...] = ()

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
        given = [
            f"--{each.name.replace('_', '-')}"
            for each in fields(self)
            if getattr(self, each.name) != each.default
            and (said := option_of(each)) is not None
            and said.is_of_cluster
        ]
        if given or self.shard_sizes or self.own_predicates:
            raise ConfigError(
                f"{', '.join(given) or 'these options'}: a disk that joins cluster "
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

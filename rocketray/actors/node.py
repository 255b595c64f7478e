"""A node: one data directory, one Ray, and the actors over it.

start   lock DATA/node.lock, start or join Ray, then filter actor, coordinator, shards;
        last of all DATA/node.json, so who finds it finds a node that answers
stop    the same backwards; all that was acknowledged is on disk when it returns
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from rocketray.errors import NodeNotRunningError, StoreLockedError

from .client import FILTER_NAME, Connection
from .clock import system_clock_ms
from .coordinator import COORDINATOR_NAME, CoordinatorActor
from .files import write_json
from .filter import FilterActor
from .filter_rules import FilterRules
from .layout import node_file
from .ray_runtime import NAMESPACE, auth_mode, join_ray, ray, start_ray
from .runtime_lock import RuntimeLock, remove_abandoned, remove_runtime

__all__ = ["Node", "NodeOptions", "ensure_node"]

_LOG = logging.getLogger(__name__)
_FILTER_THREADS = 4
_COORDINATOR_THREADS = 16


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """``ray_address``: a Ray to join; without it the node starts one of its own on loopback.

    ``shard_sizes`` are fields of :class:`~rocketray.config.StoreConfig` for new shards.

    ``allow_predicates`` are the modules and ``module:callable`` paths from which groups may name
    predicates, ``predicate_time_limit_ms`` is how long one may take for a batch of messages, and
    ``property_filter`` is whether groups may subscribe by SQL92 (at first they may); all are kept
    for the next start, and None is what was said last. ``own_predicates`` are those
    of the program that starts the node: allowed while this node runs.
    """

    ray_address: str | None = None
    num_cpus: int | None = None
    shard_sizes: tuple[tuple[str, int], ...] = ()
    allow_predicates: tuple[str, ...] | None = None
    predicate_time_limit_ms: int | None = None
    property_filter: bool | None = None
    own_predicates: tuple[str, ...] = ()


class Node:
    """A running node, owned by this process."""

    def __init__(self, data: Path | str, options: NodeOptions | None = None) -> None:
        """Start the node; returns when it answers.

        Raises:
            StoreLockedError: another process runs a node on the directory.
        """
        self.data = Path(data).resolve()
        self._options = options or NodeOptions()
        self._lock = _lock(self.data)
        self._owns_ray = not ray.is_initialized()
        self._runtime: RuntimeLock | None = None
        try:
            self._start()
        except BaseException:
            self._release()
            raise

    def _start(self) -> None:
        if self._owns_ray:
            _start_ray(self._options)
        remove_runtime(self.data)
        self._runtime = RuntimeLock(self.data)
        for path in remove_abandoned():
            _LOG.info("removed %s, of a node that is gone", path)
        rules = _settle_rules(self.data, self._options)
        self._filter = _start(FilterActor, FILTER_NAME, _FILTER_THREADS, str(self.data), rules)
        self._coordinator = _start(
            CoordinatorActor,
            COORDINATOR_NAME,
            _COORDINATOR_THREADS,
            str(self.data),
            dict(self._options.shard_sizes),
            rules,
        )
        ray.get([self._filter.statistics.remote(), self._coordinator.topics.remote()])
        write_json(node_file(self.data), self.description())

    def description(self) -> dict[str, Any]:
        """What stands in node.json."""
        return {
            "version": 1,
            "address": ray.get_runtime_context().gcs_address,
            "namespace": NAMESPACE,
            "authMode": auth_mode(),
            "nodeId": ray.get_runtime_context().get_node_id(),
            "pid": os.getpid(),
            "data": str(self.data),
            "startedMs": system_clock_ms(),
        }

    def connection(self) -> Connection:
        """A connection of this process to the node."""
        return Connection(self.data)

    def stop(self) -> None:
        """Stop all actors; everything they held is on disk when this returns."""
        node_file(self.data).unlink(missing_ok=True)
        try:
            ray.get(self._coordinator.stop.remote())
            ray.get(self._filter.stop.remote())
            for actor in (self._coordinator, self._filter):
                ray.kill(actor)
        finally:
            self._release()

    def _release(self) -> None:
        if self._runtime is not None:
            self._runtime.close()
        remove_runtime(self.data)
        if self._owns_ray and ray.is_initialized():
            ray.shutdown()
        os.close(self._lock)

    def __enter__(self) -> Self:
        """The node itself; stopped at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()


@contextmanager
def ensure_node(data: Path | str, options: NodeOptions | None = None) -> Iterator[Connection]:
    """A connection to the node on *data*; one is started for the block when none runs."""
    try:
        connection = Connection.open(data)
    except NodeNotRunningError:
        with Node(data, options) as node, node.connection() as connection:
            yield connection
    else:
        with connection:
            yield connection


def _lock(data: Path) -> int:
    data.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(data / "node.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StoreLockedError(
            f"another process runs a node on {data}; stop it, or use another --data"
        ) from None
    return descriptor


def _settle_rules(data: Path, options: NodeOptions) -> FilterRules:
    """The rules that the options say, over those that were kept; what is said is kept."""
    kept = FilterRules.load(data)
    said: dict[str, Any] = {
        "allowed": options.allow_predicates,
        "time_limit_ms": options.predicate_time_limit_ms,
        "property_filter": options.property_filter,
    }
    rules = replace(kept, **{name: value for name, value in said.items() if value is not None})
    if rules != kept:
        rules.save(data)
    return rules.allowing(options.own_predicates)


def _start_ray(options: NodeOptions) -> None:
    if options.ray_address is None:
        start_ray(options.num_cpus)
    else:
        join_ray(options.ray_address)


def _start(actor: type, name: str, threads: int, *arguments: Any) -> Any:
    options = {
        "name": name,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": -1,
        "max_concurrency": threads,
    }
    return ray.remote(actor).options(**options).remote(*arguments)

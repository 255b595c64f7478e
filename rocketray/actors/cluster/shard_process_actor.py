"""The actor of a shard process: the Ray shell of ``ShardProcess`` (shards/shard_process.py).

The actor of a disk's shared process also runs its system services (system_services.py), whose
deliveries have some more threads.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rocketray.actors.client.ray_transport import RayTransport
from rocketray.base.config import StoreConfig
from rocketray.broker.shards.shard_api import (
    ExpiryOrder,
    LookupApi,
    ScrubState,
    ShardApi,
    ShardProcessApi,
)
from rocketray.broker.shards.shard_process import Opened, ShardProcess, remove_old_files
from rocketray.broker.shards.shard_threads import ShardThreads
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.process_names import has_services
from rocketray.kernels import compile_once
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.calls.endpoint import ServedObjects
from rocketray.runtime.clock import steady_clock_ms, system_clock_ms
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import ray
from rocketray.store.age_clock import AgeClock

from .actor_log import show_log
from .system_services import SystemServices

DELIVERIES_AT_ONCE = 8
"""How many targets the services may wait for at the same time."""
_OPENINGS_AT_ONCE = 8  # more are no faster on two cores: an opening computes for 2 ms


class ShardProcessActor(ServedObjects):
    """The owner of the shards of one process."""

    def __init__(self, home: Home, name: str, sizes: dict[str, int], scrub_rate: int) -> None:
        super().__init__()
        show_log(home)
        compile_once()
        data = home.directory()
        _allow_many_files()
        clock = AgeClock(system_clock_ms, steady_clock_ms)
        self._process = ShardProcess(data, name, sizes, clock_ms=clock, at_once=_OPENINGS_AT_ONCE)
        self.serve(ShardApi, self._process.shard)
        self.serve(ShardProcessApi, lambda _: self._process.reports)
        self.serve(LookupApi, lambda *place: self._process.shard(*place).lookups)
        self._services: SystemServices | None = None
        if has_services(name):
            self._deliveries = ThreadPoolExecutor(
                DELIVERIES_AT_ONCE, thread_name_prefix="deliveries"
            )
            services = self._services = SystemServices(
                self._process,
                lambda: NodeClient(
                    data, RayTransport(data, home.cluster), cluster=home.cluster, disk=home.disk
                ),
                clock_ms=clock,
                submit=self._deliveries.submit,
            )
            services.serve(self)
            services.start()
        # Last, as the first message that they store wakes the services.
        self._threads = ShardThreads(
            self._process,
            flush_interval_s=StoreConfig().flush_interval_ms / 1000,
            scrub_rate=scrub_rate,
            on_failure=_end_process,
            on_stored=self._wake_services,
        )

    def open(self, wanted: Sequence[tuple[TopicConfig, Sequence[int]]]) -> Opened:
        return self._process.open(wanted)

    def hand_over(self, topic: str, queue_id: int) -> None:
        self._process.hand_over(topic, queue_id)

    def take_back(self, topic: TopicConfig, queue_id: int) -> None:
        self._process.take_back(topic, queue_id)

    def closed(self) -> dict[str, str]:
        return self._process.closed()

    def expire(self, orders: Sequence[ExpiryOrder]) -> dict[str, str]:
        return remove_old_files(self._process, orders)

    def unflushed(self) -> dict[str, int]:
        return self._process.reports.unflushed()

    def scrubs(self) -> dict[str, ScrubState]:
        return self._process.reports.scrubs()

    def problems(self) -> dict[str, str]:
        return self._process.problems()

    # Ray may repeat the other calls; repeating one of these would store twice.
    @ray.method(max_task_retries=0)  # type: ignore[untyped-decorator]  # Ray's has no type
    def call_once(self, *call: Any, **options: Any) -> Any:
        """Do the same as :meth:`call` for methods that are declared ``endpoint.once``."""
        return self.call(*call, **options)

    def remove(self, topic: str) -> None:
        self._process.remove(topic)

    def stop(self) -> None:
        """Store the content of the rings, flush and release all directories."""
        self._threads.stop()
        if self._services is not None:  # before the shards: it syncs those of its own topics
            self._services.close()
        self._process.close()
        if self._services is not None:
            self._deliveries.shutdown()

    def _wake_services(self) -> None:
        if self._services is not None:
            self._services.wake()


def _allow_many_files() -> None:
    """Raise the soft limit of open files to the hard one: there may be thousands of shards."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _end_process() -> None:
    # Without any clean-up, which would run beside a thread whose state is unknown. Ray starts the
    # process again, and that recovers its shards and takes over their rings.
    os._exit(1)

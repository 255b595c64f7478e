"""The shard host's actor: threads and an address for ``ShardHost`` (system/shard_host.py).

It has three threads beside Ray's own: one drains rings, one prepares files and flushes, one calls
the services, whose deliveries have some more threads. A thread that fails ends the process: Ray
starts a new one, which recovers all shards and takes over their rings.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rocketray.actors.client.connection import Connection
from rocketray.actors.files.home import Home
from rocketray.actors.ipc.ring import Ack
from rocketray.actors.ray_process.ray_runtime import ray
from rocketray.actors.runtime.clock import system_clock_ms
from rocketray.actors.shards.owned_shard import Question
from rocketray.actors.system.host_services import Services
from rocketray.actors.system.node_link import HostNode
from rocketray.actors.system.shard_host import ShardHost
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.actors.transactions.transaction_state import TransactionOverview
from rocketray.config import StoreConfig
from rocketray.errors import StreamError
from rocketray.message import StoredMessage
from rocketray.transaction import Decision, Verdict

from .system_services import Hosting

__all__ = ["DELIVERIES_AT_ONCE", "HostThreads", "ShardHostActor"]

_LOG = logging.getLogger(__name__)
DELIVERIES_AT_ONCE = 8
"""How many targets the services may wait for at the same time."""
_IDLE_WAIT_S = 0.5
_PREPARE_INTERVAL_S = 0.1
_DISK_INTERVAL_S = 10.0
_LOOK_S = 1.0  # services read the clock again: it may have been set


class HostThreads:
    """The threads of a host, until :meth:`stop`."""

    def __init__(
        self,
        host: ShardHost,
        services: Services,
        *,
        clock_ms: Callable[[], int],
        flush_interval_s: float,
        on_failure: Callable[[], None],
    ) -> None:
        """Start the threads; *on_failure* is called in one that fails, its error logged."""
        self._host = host
        self._services = services
        self._clock_ms = clock_ms
        self._flush_interval_s = flush_interval_s
        self._on_failure = on_failure
        self._stop = threading.Event()
        self._stored = threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=(run,), name=name, daemon=True)
            for name, run in (
                ("writer", self._write),
                ("house", self._keep_house),
                ("services", self._serve),
            )
        ]
        for thread in self._threads:
            thread.start()

    def serve_soon(self) -> None:
        """Wake the services: a message for them was stored that did not come through a ring."""
        self._stored.set()

    def stop(self) -> None:
        """End the threads; return when they have finished their current work."""
        self._stop.set()
        self._stored.set()
        self._host.doorbell.ring()
        for thread in self._threads:
            thread.join()

    def _guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException:  # noqa: BLE001 - a thread that fails ends the process
            _LOG.exception("the shard host ends")
            self._on_failure()

    def _write(self) -> None:
        doorbell = self._host.doorbell
        while not self._stop.is_set():
            rung = doorbell.count()
            if self._host.drain():
                self._stored.set()
            else:
                doorbell.wait(rung, _IDLE_WAIT_S)

    def _keep_house(self) -> None:
        flushed = watched = time.monotonic()
        while not self._stop.wait(_PREPARE_INTERVAL_S):
            self._host.prepare_next()
            if time.monotonic() - flushed >= self._flush_interval_s:
                self._host.flush()
                flushed = time.monotonic()
            if time.monotonic() - watched >= _DISK_INTERVAL_S:
                self._host.watch_disk()
                self._open_all()
                watched = time.monotonic()

    def _open_all(self) -> None:
        try:
            self._host.open_all()
        except (StreamError, OSError):
            _LOG.exception("it is not known which topics there are; trying again")

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._stored.clear()
            wakeup_ms = self._services.step(self._clock_ms())
            wait_s = (wakeup_ms - self._clock_ms()) / 1000
            self._stored.wait(min(max(wait_s, 0), _LOOK_S))


class ShardHostActor:
    """The owner of all hosted shards of a node."""

    def __init__(self, home: Home, sizes: dict[str, int]) -> None:
        data = home.directory()
        self._deliveries = ThreadPoolExecutor(DELIVERIES_AT_ONCE, thread_name_prefix="deliveries")
        self._hosting = Hosting(
            data,
            sizes,
            lambda: _connect(data),
            clock_ms=system_clock_ms,
            submit=self._deliveries.submit,
        )
        self._host = self._hosting.host
        self._threads = HostThreads(
            self._host,
            self._hosting.services,
            clock_ms=system_clock_ms,
            flush_interval_s=StoreConfig().flush_interval_ms / 1000,
            on_failure=_end_process,
        )

    def open(self, topic: TopicConfig) -> None:
        """See :meth:`ShardHost.open`."""
        self._host.open(topic)

    # Ray may repeat the other calls; repeating this one would store twice.
    @ray.method(max_task_retries=0)  # type: ignore[untyped-decorator]
    def append(
        self,
        topic: str,
        queue_id: int,
        payload: bytes,
        durability: int,
        *,
        attempt: int,
        not_after_ms: int,
    ) -> Ack:
        """See :meth:`ShardHost.append`."""
        return self._host.append(
            topic, queue_id, payload, durability, attempt=attempt, not_after_ms=not_after_ms
        )

    def ask(self, topic: str, queue_id: int, question: Question, *arguments: Any) -> Any:
        """See :meth:`OwnedShard.answer`."""
        return self._host.shard(topic, queue_id).answer(question, *arguments)

    def transaction_checks(self, group: str) -> list[StoredMessage]:
        """See :meth:`TransactionService.checks`."""
        return self._hosting.transactions.checks(group)

    def decide_transaction(self, wanted: Decision, *, to_disk: bool) -> Verdict:
        """See :meth:`TransactionHost.decide`."""
        verdict = self._hosting.transactions.decide(wanted, to_disk=to_disk)
        self._threads.serve_soon()
        return verdict

    def transactions(self, most: int) -> TransactionOverview:
        """See :meth:`TransactionService.overview`."""
        return self._hosting.transactions.overview(most)

    def recall(self, handle: str) -> bool:
        """See :meth:`ScheduleHost.recall`."""
        return self._hosting.schedule.recall(handle)

    def is_waiting(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """See :meth:`ScheduleHost.is_waiting`."""
        return self._hosting.schedule.is_waiting(topic, queue_id, queue_offset)

    def remove(self, topic: str) -> None:
        """See :meth:`ShardHost.remove`."""
        self._host.remove(topic)

    def pid(self) -> int:
        """Return the process id, for tests that end it."""
        return os.getpid()

    def stop(self) -> None:
        """Store the content of the rings, flush and release all directories."""
        self._threads.stop()
        self._hosting.close()
        self._deliveries.shutdown()


def _connect(data: Path) -> HostNode:
    return Connection(data)


def _end_process() -> None:
    os._exit(1)

"""The actor of a shard process: the Ray shell of ``ShardProcess`` (shards/shard_process.py).

The actor of the shared process also runs the system services (system_services.py), whose deliveries
have some more threads.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rocketray.actors.client.connection import Connection
from rocketray.actors.files.home import Home
from rocketray.actors.ipc.ring import Ack
from rocketray.actors.ray_process.ray_runtime import ray
from rocketray.actors.runtime.clock import system_clock_ms
from rocketray.actors.shards.owned_shard import Question
from rocketray.actors.shards.shard_process import Opened, ShardProcess
from rocketray.actors.shards.shard_threads import ShardThreads
from rocketray.actors.system.node_link import ServiceNode
from rocketray.actors.topics.catalog import SHARED_PROCESS, TopicConfig
from rocketray.actors.transactions.transaction_state import TransactionOverview
from rocketray.config import StoreConfig
from rocketray.message import StoredMessage
from rocketray.transaction import Decision, Verdict

from .system_services import SystemServices

__all__ = ["DELIVERIES_AT_ONCE", "ShardProcessActor"]

DELIVERIES_AT_ONCE = 8
"""How many targets the services may wait for at the same time."""


class ShardProcessActor:
    """The owner of the shards of one process."""

    def __init__(self, home: Home, name: str, sizes: dict[str, int]) -> None:
        data = home.directory()
        _allow_many_files()
        self._process = ShardProcess(data, name, sizes, clock_ms=system_clock_ms)
        self._services: SystemServices | None = None
        if name == SHARED_PROCESS:
            self._deliveries = ThreadPoolExecutor(
                DELIVERIES_AT_ONCE, thread_name_prefix="deliveries"
            )
            self._services = SystemServices(
                self._process,
                lambda: _connect(data),
                clock_ms=system_clock_ms,
                submit=self._deliveries.submit,
            )
            self._services.start()
        self._threads = ShardThreads(
            self._process,
            flush_interval_s=StoreConfig().flush_interval_ms / 1000,
            on_failure=_end_process,
            on_stored=self._wake_services,
        )

    def open(self, topic: TopicConfig, queues: Sequence[int]) -> Opened:
        """See :meth:`ShardProcess.open`."""
        return self._process.open(topic, queues)

    def closed(self) -> dict[str, str]:
        """See :meth:`ShardProcess.closed`."""
        return self._process.closed()

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
        """See :meth:`ShardProcess.append`."""
        return self._process.append(
            topic, queue_id, payload, durability, attempt=attempt, not_after_ms=not_after_ms
        )

    def ask(self, topic: str, queue_id: int, question: Question, *arguments: Any) -> Any:
        """See :meth:`OwnedShard.answer`."""
        return self._process.shard(topic, queue_id).answer(question, *arguments)

    def transaction_checks(self, group: str) -> list[StoredMessage]:
        """See :meth:`TransactionService.checks`."""
        return self._system.transactions.checks(group)

    def decide_transaction(self, wanted: Decision, *, to_disk: bool) -> Verdict:
        """See :meth:`TransactionHost.decide`."""
        verdict = self._system.transactions.decide(wanted, to_disk=to_disk)
        self._wake_services()
        return verdict

    def transactions(self, most: int) -> TransactionOverview:
        """See :meth:`TransactionService.overview`."""
        return self._system.transactions.overview(most)

    def recall(self, handle: str) -> bool:
        """See :meth:`DelayService.recall`."""
        return self._system.schedule.recall(handle)

    def is_waiting(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """See :meth:`DelayService.is_waiting`."""
        return self._system.schedule.is_waiting(topic, queue_id, queue_offset)

    def remove(self, topic: str) -> None:
        """See :meth:`ShardProcess.remove`."""
        self._process.remove(topic)

    def pid(self) -> int:
        """Return the process id, for tests that end it."""
        return os.getpid()

    def stop(self) -> None:
        """Store the content of the rings, flush and release all directories."""
        self._threads.stop()
        if self._services is not None:
            self._services.close()
        self._process.close()
        if self._services is not None:
            self._deliveries.shutdown()

    @property
    def _system(self) -> SystemServices:
        assert self._services is not None, f"process {self._process.name} has no system services"
        return self._services

    def _wake_services(self) -> None:
        if self._services is not None:
            self._services.wake()


def _allow_many_files() -> None:
    """Raise the soft limit of open files: an idle shard has some ten, one that is read has more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _connect(data: Path) -> ServiceNode:
    return Connection(data)


def _end_process() -> None:
    os._exit(1)

"""Transactions, in the shard host: the service with the logs, the progress file and a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from rocketray.message import ForwardedMessage, Message, StoredMessage
from rocketray.transaction import HALF_TOPIC

from .files import read_json, write_json
from .hosted_log import HostedLog
from .lane import Shards
from .layout import config_directory
from .producer import Producer
from .transactions import TransactionService

__all__ = ["HostNode", "TransactionHost"]

_IDLE_MS = 60_000
_SAVE_INTERVAL_MS = 5_000


class HostNode(Shards, Protocol):
    """What services need of the node beyond their own host."""

    def query(self, topic: str, key: str) -> list[StoredMessage]:
        """The messages of a topic with that key."""


class _HostPlaces:
    """Where transactions are stored: the host's own topics, and those of others."""

    def __init__(self, log: HostedLog, node: Callable[[], HostNode]) -> None:
        self._log = log
        self._find_node = node
        self._node: HostNode | None = None
        self._producer: Producer | None = None

    def read(self, topic: str, queue_offset: int, max_count: int) -> Sequence[StoredMessage]:
        return self._log.read(topic, queue_offset, max_count)

    def store(self, message: Message) -> int:
        return self._log.store(message)

    def forward(self, queue_id: int, messages: Sequence[ForwardedMessage]) -> None:
        if self._producer is None:
            self._producer = Producer(self._connect())
        self._producer.forward(messages[0].topic, queue_id, messages)

    def is_stored(self, topic: str, queue_id: int, unique_key: str) -> bool:
        return any(
            found.queue_id == queue_id and found.unique_key == unique_key
            for found in self._connect().query(topic, unique_key)
        )

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()

    def _connect(self) -> HostNode:
        if self._node is None:
            self._node = self._find_node()
        return self._node


class TransactionHost:
    """A service of the shard host (host_services.py) that answers questions as well."""

    def __init__(
        self,
        log: HostedLog,
        node: Callable[[], HostNode],
        *,
        data: Path,
        clock_ms: Callable[[], int],
    ) -> None:
        """*node* is asked for when something is committed, not before."""
        self._log = log
        self._places = _HostPlaces(log, node)
        self._path = config_directory(data) / "transactions.json"
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._service: TransactionService | None = None
        self._saved: dict[str, Any] | None = None
        self._saved_ms = 0

    def step(self, now_ms: int) -> int:
        """Carry out what was decided; when to call again."""
        with self._lock:
            if not self._log.exists(HALF_TOPIC):
                return now_ms + _IDLE_MS
            if self._service is None:
                self._service = TransactionService(self._places, read_json(self._path))
            wakeup_ms = self._service.step(now_ms)
            if abs(now_ms - self._saved_ms) >= _SAVE_INTERVAL_MS:
                self._save(now_ms)
            return wakeup_ms or now_ms + _IDLE_MS

    def checks(self, group: str) -> list[StoredMessage]:
        """See :meth:`TransactionService.checks`."""
        with self._lock:
            return self._service.checks(group, self._clock_ms()) if self._service else []

    def close(self) -> None:
        """Save the progress; the last thing before the shards are closed."""
        with self._lock:
            if self._service is not None:
                self._save(self._clock_ms())
            self._places.close()

    def _save(self, now_ms: int) -> None:
        assert self._service is not None
        progress = self._service.progress()
        if progress != self._saved:
            write_json(self._path, progress)
            self._saved = progress
        self._saved_ms = now_ms

"""Transactions in the shared process: their engine, with its logs, progress file and a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from rocketray.base.system_topics import END_TOPIC, HALF_TOPIC, OP_TOPIC
from rocketray.base.transaction import Decision, Verdict
from rocketray.broker.retries.deliveries import Submit, at_once
from rocketray.broker.topics.system_retention import DECIDED
from rocketray.errors import ShardUnavailableError
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.api.system_api import TransactionOverview
from rocketray.runtime.files.paths import config_directory
from rocketray.runtime.files.state_files import read_state, write_json
from rocketray.services.system.node_link import NodeLinks
from rocketray.services.system.system_log import SystemLog
from rocketray.store.age_clock import AgeClock

from .transaction_engine import TransactionEngine
from .transaction_state import TransactionProgress

# What is not saved is read again at the next start, from the logs: some seconds of messages.
_SAVE_INTERVAL_MS = 5_000
_EXPIRE_INTERVAL_MS = 60_000  # whole files are removed, three days after their last message


class TransactionService:
    """A service (stepping.py) that is also the object behind ``TransactionsApi``."""

    def __init__(
        self,
        log: SystemLog,
        node: Callable[[], NodeClient],
        *,
        data: Path,
        clock_ms: Callable[[], int],
        submit: Submit = at_once,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """Take *node*, called only when a message is committed, and *submit*, which runs that.

        *clock_ms* gives the messages of *log* their store times. *wake* has :meth:`step` called
        soon.
        """
        self._wake = wake
        self._log = log
        self._links = NodeLinks(node)
        self._path = config_directory(data) / "transactions.json"
        self._clock = AgeClock.of(clock_ms)
        self._submit = submit
        self._lock = threading.Lock()
        self._engine: TransactionEngine | None = None
        self._saved: TransactionProgress | None = None
        self._saved_ms = self._expired_ms = 0

    def step(self, now_ms: int) -> int | None:
        with self._lock:
            if not self._log.exists(HALF_TOPIC):
                return None
            engine = self._begun()
            try:
                wakeup_ms = engine.step(now_ms)
            except BaseException:
                self._engine = None  # the logs have all of its state
                engine.abandon()
                raise
            if abs(now_ms - self._saved_ms) >= _SAVE_INTERVAL_MS:
                self._save(now_ms)
            return wakeup_ms

    def decide(self, wanted: Decision, *, to_disk: bool) -> Verdict:
        """See :meth:`TransactionEngine.decide`; with *to_disk* the verdict is on disk as well."""
        with self._lock:
            for topic in (HALF_TOPIC, END_TOPIC):
                if not self._log.exists(topic):  # earlier decisions are not known then
                    raise ShardUnavailableError(f"shard {topic}/0", "it is not open")
            verdict = self._begun().decide(wanted)
        if to_disk:  # without the lock, so that other decisions do not wait for the disk
            self._log.flush(END_TOPIC)
        self._wake()
        return verdict

    def checks(self, group: str) -> list[StoredMessage]:
        with self._lock:
            return self._engine.checks(group) if self._engine else []

    def overview(self, most: int) -> TransactionOverview:
        with self._lock:
            return self._engine.overview(most) if self._engine else TransactionOverview()

    def close(self) -> None:
        """Save the progress; the last call before the shards are closed."""
        with self._lock:
            if self._engine is not None:
                self._engine.settle(self._clock())
                self._save(self._clock())
            self._links.close()

    def _begun(self) -> TransactionEngine:
        if self._engine is None:
            progress = read_state(self._path, TransactionProgress.from_json, owns=True)
            self._engine = TransactionEngine(
                self._log, self._links, progress, clock=self._clock, submit=self._submit
            )
        return self._engine

    def _save(self, now_ms: int) -> None:
        assert self._engine is not None
        progress = self._engine.progress()
        if progress != self._saved:
            self._log.flush(HALF_TOPIC, END_TOPIC, OP_TOPIC)  # so it is never ahead of the logs
            write_json(self._path, progress.to_json())
            self._saved = progress
        self._saved_ms = now_ms
        if abs(now_ms - self._expired_ms) >= _EXPIRE_INTERVAL_MS:
            self._expired_ms = now_ms
            needed = {
                HALF_TOPIC: progress.half_next,
                END_TOPIC: progress.end_next,
                OP_TOPIC: progress.op_next,
            }
            self._log.expire(needed, DECIDED)

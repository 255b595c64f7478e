"""Staged batches in a process of the node: their engine, with its files and a lock."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocketray.broker.retries.deliveries import Submit, at_once
from rocketray.errors import StreamError
from rocketray.runtime.files.half_file import BatchName, Half
from rocketray.runtime.files.paths import staged_directory, writers_directory
from rocketray.runtime.files.state_files import disk_error
from rocketray.store.age_clock import AgeClock

from .staging_api import StagedBatch, StagedOverview, StagingVerdict
from .staging_engine import HalfTargets, StagingEngine
from .writer_ledger import WriterLedger

_LOG = logging.getLogger(__name__)
_IDLE_MS = 60_000  # a decision wakes the thread
_FAILED_MS = 1000
_LOOK_S = 1.0  # the thread reads the clock again: it may have been set
_TOLD_MAX = 3  # lines of a node's status; ``rocketray staged`` has all


def has_staged(data: Path) -> bool:
    """Return whether a data directory has halves, decided or not."""
    directory = staged_directory(data)
    return directory.is_dir() and any(directory.iterdir())


class StagingService:
    """The object behind ``StagingApi``: one process of a node has it, and steps it."""

    def __init__(
        self,
        data: Path,
        targets: HalfTargets,
        *,
        clock_ms: Callable[[], int],
        submit: Submit = at_once,
    ) -> None:
        """Take the data directory; nothing is read before the first call."""
        self._data = data
        self._targets = targets
        self._clock = AgeClock.of(clock_ms)
        self._submit = submit
        self._lock = threading.Lock()
        self._engine: StagingEngine | None = None
        self._woken = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._keep_stepping, name="staging", daemon=True)

    def step(self, now_ms: int) -> int:
        """Store what is decided; return when to call again."""
        with self._lock:
            if self._engine is None and not has_staged(self._data):
                return now_ms + _IDLE_MS
            with self._begun() as engine:
                return engine.step(now_ms) or now_ms + _IDLE_MS

    def decide(self, wanted: StagedBatch) -> StagingVerdict:
        """See ``StagingApi``."""
        with self._lock, self._begun() as engine:
            verdict = engine.decide(wanted)
        self._woken.set()
        return verdict

    def publish(self, name: BatchName, halves: Sequence[Half]) -> None:
        """See ``StagingApi``."""
        with self._lock, self._begun() as engine:
            engine.publish(name, halves)
        self._woken.set()

    def is_applied(self, batch: BatchName) -> bool:
        """See ``StagingApi``."""
        with self._lock, self._begun() as engine:
            return engine.is_applied(batch)

    def drop(self, batch: BatchName, names: Sequence[str]) -> None:
        """See ``StagingApi``."""
        with self._lock, self._begun() as engine:
            engine.drop(batch, names)

    def overview(self, most: int) -> StagedOverview:
        """See ``StagingApi``."""
        with self._lock, self._begun() as engine:
            return engine.overview(most)

    def problems(self) -> list[str]:
        """Return what is wrong, a line each, if this process steps the engine."""
        with self._lock:
            return [] if self._engine is None else self._engine.problems(_TOLD_MAX)

    def start(self) -> None:
        """Store what is decided in a thread from now on, until :meth:`close`."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, once what is being stored is stored."""
        self._is_closed = True
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            if self._engine is not None:
                self._engine.abandon()

    @contextmanager
    def _begun(self) -> Iterator[StagingEngine]:
        """Return the engine; after an unexpected error the next one begins with the files."""
        if self._engine is None:
            ledger = WriterLedger(writers_directory(self._data))
            self._engine = StagingEngine(
                *(staged_directory(self._data), ledger, self._targets),
                clock=self._clock,
                submit=self._submit,
            )
        try:
            yield self._engine
        except StreamError:
            raise
        except BaseException as error:
            self._engine.abandon()
            self._engine = None
            if isinstance(error, OSError):
                raise disk_error(self._data, error) from error
            raise

    def _keep_stepping(self) -> None:
        while not self._is_closed:
            self._woken.clear()
            now_ms = self._clock()
            try:
                wakeup_ms = self.step(now_ms)
            except Exception:  # noqa: BLE001 - the next step begins with the files
                _LOG.exception("staged batches are not stored; trying again")
                wakeup_ms = now_ms + _FAILED_MS
            wait_s = (wakeup_ms - self._clock()) / 1000
            if not self._is_closed:
                self._woken.wait(min(max(wait_s, 0), _LOOK_S))

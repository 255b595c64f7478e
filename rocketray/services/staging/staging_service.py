"""Staged batches in a process of the node: their engine, with its files and a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocketray.broker.retries.deliveries import Submit, at_once
from rocketray.errors import StreamError
from rocketray.runtime.files.fragment_file import BatchName, Fragment
from rocketray.runtime.files.paths import staged_directory, writers_directory
from rocketray.runtime.files.state_files import disk_error
from rocketray.store.age_clock import AgeClock

from .staging_api import StagedBatch, StagedOverview, StagingVerdict
from .staging_engine import FragmentTargets, StagingEngine
from .writer_ledger import WriterLedger

_TOLD_MAX = 3  # lines of a node's status; ``rocketray staged`` has all


def has_staged(data: Path) -> bool:
    """Return whether a data directory has fragments, decided or not."""
    directory = staged_directory(data)
    return directory.is_dir() and any(directory.iterdir())


class StagingService:
    """A service (stepping.py) that is also the object behind ``StagingApi``.

    One process of a node has it, and steps it.
    """

    def __init__(
        self,
        data: Path,
        targets: FragmentTargets,
        *,
        clock_ms: Callable[[], int],
        submit: Submit = at_once,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the data directory; nothing is read before the first call.

        *wake* has :meth:`step` called soon.
        """
        self._wake = wake
        self._data = data
        self._targets = targets
        self._clock = AgeClock.of(clock_ms)
        self._submit = submit
        self._lock = threading.Lock()
        self._engine: StagingEngine | None = None

    def step(self, now_ms: int) -> int | None:
        with self._lock:
            if self._engine is None and not has_staged(self._data):
                return None
            with self._begun() as engine:
                return engine.step(now_ms)

    def decide(self, wanted: StagedBatch) -> StagingVerdict:
        with self._lock, self._begun() as engine:
            verdict = engine.decide(wanted)
        self._wake()
        return verdict

    def publish(self, name: BatchName, fragments: Sequence[Fragment]) -> None:
        with self._lock, self._begun() as engine:
            engine.publish(name, fragments)
        self._wake()

    def is_applied(self, batch: BatchName) -> bool:
        with self._lock, self._begun() as engine:
            return engine.is_applied(batch)

    def drop(self, batch: BatchName, names: Sequence[str]) -> None:
        with self._lock, self._begun() as engine:
            engine.drop(batch, names)

    def overview(self, most: int) -> StagedOverview:
        with self._lock, self._begun() as engine:
            return engine.overview(most)

    def problems(self) -> list[str]:
        """Return what is wrong, a line each, if this process steps the engine."""
        with self._lock:
            return [] if self._engine is None else self._engine.problems(_TOLD_MAX)

    def close(self) -> None:
        """Wait until what is being stored is stored."""
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

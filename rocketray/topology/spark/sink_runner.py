"""One streaming query that is kept running: started, watched, restarted from its checkpoint.

Invariants
  1. At most one query runs on a checkpoint.
  2. A failure is never lost: it is logged when the query is restarted, and kept when it is not.
  3. After ``stop`` returns, nothing of the query runs any more; where Spark does not end it in
     time, ``stop`` raises.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from rocketray.errors import ConfigError, StreamError

from .failures import describe_failure

__all__ = ["BatchFunction", "Query", "QueryProgress", "RestartPolicy", "SinkRunner", "SinkState"]

_STOP_TIMEOUT_S = 60.0
_SETTLE_TIMEOUT_S = 30.0  # for the function of a micro-batch in progress
_WAY_OUT = "stop its Spark session, or end the process"

logger = logging.getLogger(__name__)


Settle = Callable[[Callable[[], int | None], float], None]
"""Takes a function that returns the last batch Spark has reported, and a timeout in seconds."""
_REPORT_S = 5.0  # Spark commits a batch, and reports it, some 0.1 s after the function returned
_POLL_S = 0.01


class BatchFunction:
    """A sink's function as Spark gets it: called in one thread, closed in another.

    Spark ends a query by interrupting it. An interrupted function fails with pages of Java output,
    on which Spark's own check for interruptions overflows its stack, and prints all of it. So
    before a query is stopped:

    - a running call completes;
    - Spark completes its micro-batch, which is then not repeated;
    - no further call begins.
    """

    def __init__(self, function: Callable[[Any, int], Any]) -> None:
        self._function = function
        self._is_running = threading.Lock()
        self._is_closed = False
        self._done: int | None = None

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Process a micro-batch.

        Raises:
            StreamError: it is closed; Spark does not commit the batch, and the next run repeats it.
        """
        with self._is_running:
            if self._is_closed:
                raise StreamError(
                    f"the sink is being stopped; its next run processes batch {batch_id}"
                )
            self._function(frame, batch_id)
            self._done = batch_id

    def open(self) -> None:
        """Allow calls."""
        self._is_closed, self._done = False, None

    def close(self, reported: Callable[[], int | None], timeout_s: float) -> None:
        """Refuse further calls; wait until the last one has ended and *reported* gives its batch.

        Returns some time after *timeout_s* in any case: Spark reports a function that hangs.
        """
        self._is_closed = True
        if not self._is_running.acquire(timeout=timeout_s):
            return
        self._is_running.release()
        deadline = time.monotonic() + _REPORT_S
        while self._is_ahead_of(reported()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _is_ahead_of(self, batch_id: int | None) -> bool:
        return self._done is not None and (batch_id is None or batch_id < self._done)


class SinkState(Enum):
    """The state of a sink. FINISHED is the successful end of a run over what was available."""

    IDLE = "idle"
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class Query(Protocol):
    """The part of Spark's ``StreamingQuery`` that a runner needs."""

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        """The last micro-batch's report, or None."""

    def awaitTermination(self) -> Any:  # noqa: N802 - Spark's name
        """Block until the query ends; raise its error if it failed."""

    def stop(self) -> None:
        """End the query."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The limit of restarts without a finished batch in between, and the delay before each."""

    limit: int = 5
    first_delay_s: float = 1.0
    factor: float = 2.0
    max_delay_s: float = 30.0

    def __post_init__(self) -> None:
        if self.limit < 0 or self.first_delay_s < 0 or self.factor < 1 or self.max_delay_s < 0:
            raise ConfigError(
                f"{self}: the limit and the delays must be 0 or more, the factor 1 or more"
            )

    def delay_s(self, failures: int) -> float:
        """Return how long to wait after that many consecutive failures."""
        grown = self.first_delay_s * self.factor ** min(failures - 1, 64)
        return min(self.max_delay_s, grown)


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A micro-batch: its number, the rows it read, and the position in each queue after it."""

    batch_id: int
    input_rows: int
    end_offset: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, query: Query) -> QueryProgress | None:
        """Return the query's last micro-batch, or None before the first."""
        progress = query.lastProgress
        if progress is None or not progress["sources"]:
            return None
        end = progress["sources"][0]["endOffset"]
        if isinstance(end, str):
            end = json.loads(end)
        return cls(int(progress["batchId"]), int(progress["numInputRows"] or 0), end or {})


class SinkRunner:
    """Runs the queries that *open_query* starts, one after the other, in a thread of its own.

    ``open_query`` gets the arguments of Spark's trigger and returns a started query. ``settle`` is
    called before a query is stopped: it waits for calls that must not be interrupted
    (:class:`BatchFunction`).
    """

    def __init__(
        self,
        name: str,
        open_query: Callable[[Mapping[str, Any]], Query],
        policy: RestartPolicy,
        settle: Settle | None = None,
    ) -> None:
        self.name = name
        self._settle = settle
        self._open_query = open_query
        self._policy = policy
        self._lock = threading.Lock()  # over the fields below
        self._query: Query | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._progress: QueryProgress | None = None
        self.state = SinkState.IDLE
        self.restarts = 0
        """How often a query was restarted after a failure."""
        self.error: BaseException | None = None
        """The sink's last error."""

    def progress(self) -> QueryProgress | None:
        """Return the last micro-batch of this or an earlier query; None before the first."""
        with self._lock:
            self._note_progress()
            return self._progress

    def start(self, trigger: Mapping[str, Any]) -> None:
        """Start the query; raise errors of its definition here, later ones lead to restarts."""
        assert self._thread is None
        self._stopping.clear()
        self.error = None
        self._query = self._open_query(trigger)
        self.state = SinkState.RUNNING
        self._thread = threading.Thread(
            target=self._supervise, args=(trigger,), name=f"sink-{self.name}", daemon=True
        )
        self._thread.start()

    def join(self, timeout_s: float | None) -> bool:
        """Wait until the query has ended by itself; return False after *timeout_s*."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    def stop(self) -> None:
        """End the query; a micro-batch in progress is repeated from the checkpoint.

        Raises:
            StreamError: Spark did not end it in time (``spark.sql.streaming.stopTimeout``).
        """
        if self._thread is None:
            return
        self._stopping.set()
        self.progress()
        if self._settle is not None:
            self._settle(self._batch_id, _SETTLE_TIMEOUT_S)
        with self._lock:
            if self._query is not None:
                try:
                    self._query.stop()
                except Exception as error:
                    cause = describe_failure(error)
                    raise StreamError(
                        f"sink {self.name!r} does not stop: {cause}; {_WAY_OUT}"
                    ) from error
        if not self.join(_STOP_TIMEOUT_S):
            raise StreamError(
                f"sink {self.name!r} does not stop, its query still starts; {_WAY_OUT}"
            )
        self._thread = None

    def _batch_id(self) -> int | None:
        progress = self.progress()
        return None if progress is None else progress.batch_id

    def _supervise(self, trigger: Mapping[str, Any]) -> None:
        failures = 0
        while True:
            batch_before = self._progress.batch_id if self._progress else -1
            error = self._await_or_open(trigger)
            with self._lock:
                self._note_progress()
                self._query = None
            if self._stopping.is_set() or error is None:
                self.state = SinkState.STOPPED if self._stopping.is_set() else SinkState.FINISHED
                return
            self.error = error
            has_progressed = self._progress is not None and self._progress.batch_id > batch_before
            failures = 1 if has_progressed else failures + 1
            if failures > self._policy.limit:
                self.state = SinkState.FAILED
                return
            self._pause(failures, error)

    def _await_or_open(self, trigger: Mapping[str, Any]) -> BaseException | None:
        """Wait for the end of the query, starting it first if there is none; return its error."""
        try:
            if self._query is None:
                if self._stopping.is_set():
                    return None
                query = self._open_query(trigger)
                with self._lock:
                    self._query = query
                    self.state = SinkState.RUNNING
                    if self._stopping.is_set():
                        query.stop()
            query = self._query
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - whatever the user's code raised, it is kept
            return error
        return None

    def _pause(self, failures: int, error: BaseException) -> None:
        delay_s = self._policy.delay_s(failures)
        self.state = SinkState.RESTARTING
        self.restarts += 1
        logger.warning(
            "sink %s failed (%d of %d in a row) and restarts from its checkpoint in %.1f s: %s",
            self.name,
            failures,
            self._policy.limit,
            delay_s,
            describe_failure(error),
        )
        self._stopping.wait(delay_s)

    def _note_progress(self) -> None:
        """Keep the last report, because a stopped session has none; the caller holds the lock."""
        if self._query is not None:
            self._progress = QueryProgress.of(self._query) or self._progress

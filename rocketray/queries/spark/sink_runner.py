"""One streaming query that is kept running: started, watched, restarted from its checkpoint.

Invariants
  1. At most one query runs on a checkpoint.
  2. A failure is never lost: it is logged when the query is restarted, and kept when it is not.
  3. After ``stop`` returns, nothing of the query runs any more; where Spark does not end it in
     time, ``stop`` raises.
  4. A topic that does not exist yet is no failure: a runner that may wait looks again until it
     does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rocketray.errors import ConfigError, StreamError, TopicNotFoundError
from rocketray.runtime.waiting_log import logged_wait
from rocketray.topology.app.sink_statistics import SinkState

from .batch_function import REPORT_S
from .failures import describe_failure, place_of_failure
from .sink_progress import Query, QueryProgress

# As long as Spark's own ``spark.sql.streaming.stopTimeout`` (session.py).
_STOP_TIMEOUT_S = 60.0
_SETTLE_TIMEOUT_S = 30.0  # for the function of a micro-batch in progress
_LOOK_AGAIN_S = 0.25  # for a topic
_WRONG = "rocketray.errors.ConfigError:"  # of the source, such as a checkpoint of another filter
_BEGINS = ("Initializing", "Getting offsets", "Processing")  # Spark's words
# A query that has not begun by then is stopped all the same: tracebacks are printed, no more.
_BEGIN_TIMEOUT_S = 5.0
# Spark cannot be interrupted while it starts: in some ten seconds, in 50 on a busy machine.
_START_TIMEOUT_S = 300.0
# The function and its report, until the query has begun, Spark's own time, and the thread's: 160 s.
_RUNNING_STOP_MAX_S = _SETTLE_TIMEOUT_S + REPORT_S + _BEGIN_TIMEOUT_S + 2 * _STOP_TIMEOUT_S
STOP_MAX_S = max(_START_TIMEOUT_S, _RUNNING_STOP_MAX_S)
"""How long those who end a sink wait for it."""
_POLL_S = 0.02  # each look is a call of py4j
_WAY_OUT = "stop its Spark session, or end the process"

logger = logging.getLogger(__name__)


Settle = Callable[[Callable[[], int | None], float], None]
"""Takes a function that returns the last batch Spark has reported, and a timeout in seconds."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The limit of restarts without a finished batch in between, and the delay before each.

    With the limit None a sink is restarted for as long as its host runs.
    """

    limit: int | None = 5
    first_delay_s: float = 1.0  # five restarts by default: 1 + 2 + 4 + 8 + 16 s
    factor: float = 2.0
    max_delay_s: float = 30.0

    def __post_init__(self) -> None:
        is_limit = self.limit is None or self.limit >= 0
        # Not the other way round: a NaN is in no order to any number.
        are_numbers = self.first_delay_s >= 0 and self.factor >= 1 and self.max_delay_s >= 0
        if not is_limit or not are_numbers:
            raise ConfigError(
                f"{self}: the limit and the delays must be 0 or more, the factor 1 or more"
            )

    def is_spent(self, failures: int) -> bool:
        """Return whether that many consecutive failures are too many."""
        return self.limit is not None and failures > self.limit

    def delay_s(self, failures: int) -> float:
        """Return how long to wait after that many consecutive failures."""
        if not self.first_delay_s:
            return 0.0
        try:
            grown = self.first_delay_s * float(self.factor) ** (failures - 1)
        except OverflowError:  # beyond 1.8e308 s
            grown = self.max_delay_s
        # A thread cannot wait for longer than that, some 292 years: it raises.
        return min(self.max_delay_s, grown, threading.TIMEOUT_MAX)


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
        self._may_wait = False
        self.has_run = False
        """Whether a query was ever started: a failure before that is one of the definition."""
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
        self._begin(trigger, self._open_query(trigger))

    def start_soon(self, trigger: Mapping[str, Any]) -> None:
        """Start the query in the runner's thread, when its topic exists.

        An error of the definition makes it fail for good, unless restarts have no limit.
        """
        self._may_wait = True
        self._begin(trigger, None)

    def _begin(self, trigger: Mapping[str, Any], query: Query | None) -> None:
        assert self._thread is None
        self._stopping.clear()
        self.error = None
        self._query = query
        self.has_run |= query is not None
        self.state = SinkState.STARTING if query is None else SinkState.RUNNING
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

        A query that still starts is stopped when it has started; the log says what is waited for.

        Raises:
            StreamError: Spark did not end it in time (``spark.sql.streaming.stopTimeout``), or did
                not start it within five minutes.
        """
        if self._thread is None:
            return
        self._stopping.set()
        # Before the query is stopped, after which Spark may no longer tell its last batch.
        self.progress()
        if self._settle is not None:
            self._settle(self._batch_id, _SETTLE_TIMEOUT_S)
        with self._lock:
            # Under the lock the runner's thread cannot put another query in the place of this one.
            # A report of progress waits meanwhile.
            has_query = self._query is not None
            if self._query is not None:
                try:
                    _await_begin(self._query)
                    self._query.stop()
                except Exception as error:
                    cause = describe_failure(error)
                    raise StreamError(
                        f"sink {self.name!r} does not stop: {cause}; {_WAY_OUT}"
                    ) from error
        waited, limit_s = "the end of its query", _STOP_TIMEOUT_S
        if not has_query:
            waited, limit_s = "Spark to start its query", _START_TIMEOUT_S
        with logged_wait(f"sink {self.name} is being stopped and waits for {waited}"):
            has_ended = self.join(limit_s)
        if not has_ended:
            raise StreamError(
                f"sink {self.name!r} does not stop: it waited {limit_s:g} s for {waited}; {_WAY_OUT}"
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
            if self._may_wait and isinstance(error, TopicNotFoundError):
                self._wait_for_topic(error)
                continue
            self.error = error
            has_progressed = self._progress is not None and self._progress.batch_id > batch_before
            failures = 1 if has_progressed else failures + 1
            if self._policy.is_spent(failures) or self._is_hopeless(error):
                self.state = SinkState.FAILED
                return
            self._pause(failures, error)

    def _is_hopeless(self, error: BaseException) -> bool:
        """Return whether the query would fail again: it never ran, or its options are wrong."""
        is_wrong = describe_failure(error).startswith(_WRONG)
        return self._policy.limit is not None and (is_wrong or not self.has_run)

    def _await_or_open(self, trigger: Mapping[str, Any]) -> BaseException | None:
        """Wait for the end of the query, starting it first if there is none; return its error."""
        try:
            if self._query is None:
                if self._stopping.is_set():
                    return None
                query = self._open_query(trigger)
                with self._lock:
                    self._query = query
                    self.has_run = True
                    self.state = SinkState.RUNNING
                    if self._stopping.is_set():
                        _await_begin(query)
                        query.stop()
            query = self._query
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - whatever the user's code raised, it is kept
            return error
        return None

    def _wait_for_topic(self, error: TopicNotFoundError) -> None:
        if self.state is not SinkState.WAITING:
            self.state = SinkState.WAITING
            logger.warning("sink %s waits for its topic: %s", self.name, error)
        self._stopping.wait(_LOOK_AGAIN_S)

    def _pause(self, failures: int, error: BaseException) -> None:
        delay_s = self._policy.delay_s(failures)
        self.state = SinkState.RESTARTING
        self.restarts += 1
        limit = "" if self._policy.limit is None else f" of {self._policy.limit} in a row"
        place = place_of_failure(error)
        logger.warning(
            "sink %s failed (%d%s) and restarts from its checkpoint in %.1f s: %s%s",
            self.name,
            failures,
            limit,
            delay_s,
            describe_failure(error),
            f" ({place})" if place else "",
        )
        self._stopping.wait(delay_s)

    def _note_progress(self) -> None:
        """Keep the last report, because a stopped session has none; the caller holds the lock."""
        if self._query is not None:
            self._progress = QueryProgress.of(self._query) or self._progress


def _await_begin(query: Query) -> None:
    """Wait until *query* has begun, with a micro-batch if there is one.

    Else the Python processes that plan it would print tracebacks.
    """
    deadline = time.monotonic() + _BEGIN_TIMEOUT_S
    while query.lastProgress is None and query.status["message"].startswith(_BEGINS):
        if time.monotonic() > deadline:
            return
        time.sleep(_POLL_S)

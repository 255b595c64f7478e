"""The run of a batch of messages through a predicate, which may raise, be slow or never return.

One thread runs the predicate (:meth:`PredicateRun.go`); another watches it and may end the run at
any moment (:meth:`PredicateRun.take`). Python cannot interrupt a call, so a run stops only between
calls, and the result of a call that returns after the run was taken is discarded.

Rules
  1. Messages are settled in order, so a run that ends early has settled a prefix of its batch.
  2. The clock is read between calls. When the batch's time is over, the run ends, with at least
     one message settled. The next batch repeats the rest, so a slow predicate is only slow.
  3. If a batch predicate fails on many messages, it is called with halves until the failing
     message is alone; the other messages keep their verdicts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rocketray.errors import PredicateError

FAILED = -1
LATE = -2
Ask = Callable[[int, int], npt.NDArray[np.bool_]]


class PredicateRun:
    """The run of one batch; verdicts are 1 match, 0 none, :data:`FAILED`, :data:`LATE`.

    Attributes:
        error: the error of the first failed message; "" without one.
        is_over: whether the run is over: finished or taken.
        is_slow: whether the batch's time ended before its messages did, though every call returned.
    """

    def __init__(
        self,
        count: int,
        ask: Ask,
        *,
        batch: bool,
        stop_on_error: bool,
        time_limit_s: float,
        clock_s: Callable[[], float],
    ) -> None:
        """Create a run, not started.

        Args:
            count: the number of messages, at least one.
            ask: returns the predicate's verdicts for messages *first* to *stop*; raises
                PredicateError.
            batch: whether *ask* takes many messages in one call.
            stop_on_error: end at the first message that fails.
            time_limit_s: for the batch, and for each call.
            clock_s: a monotonic clock.
        """
        assert count > 0
        self.error = ""
        self._ask = ask
        self._ends = [count] if batch else list(range(count, 0, -1))  # of the calls to come
        self._stop_on_error = stop_on_error
        self._limit_s = time_limit_s
        self._clock_s = clock_s
        self._verdicts = np.zeros(count, np.int8)
        self._settled = 0
        self._asked = 0
        self._began_s = self._called_s = clock_s()
        self.is_over = self.is_slow = self._is_taken = False
        # Held between calls of the predicate and never during one, so take() does not wait for it.
        self._lock = threading.Lock()

    def go(self) -> None:
        """Run the predicate on one message after another; return when the run is over."""
        self._began_s = self._clock_s()
        while self._ends and self._may_call(self._ends[-1]):
            first, stop = self._settled, self._ends[-1]
            try:
                answers: npt.NDArray[np.int8] = self._ask(first, stop).astype(np.int8)
            except PredicateError as error:
                self._asked = first  # the call returned, so no message is late
                if stop - first > 1:
                    # The half before it is asked first; the rest is still on the stack.
                    self._ends.append((first + stop) // 2)
                    continue
                answers = np.array([FAILED], np.int8)
                self.error = self.error or str(error)
                if self._stop_on_error:
                    self._ends = [stop]
            self._ends.pop()
            self._settle(answers)
        self.is_over = True

    def is_overdue(self) -> bool:
        """Return whether a call has been running for longer than the limit."""
        return not self.is_over and self._clock_s() - self._called_s > self._limit_s

    def take(self) -> npt.NDArray[np.int8]:
        """End the run; return the verdicts of its first messages: int8[m], m ≤ count.

        The messages of a call that is still running are :data:`LATE`.
        """
        with self._lock:
            self._is_taken = True
            self._verdicts[self._settled : self._asked] = LATE
            return self._verdicts[: max(self._settled, self._asked)].copy()

    def _may_call(self, stop: int) -> bool:
        with self._lock:
            now = self._called_s = self._clock_s()
            # Not before the first message is settled, or a slow predicate would make no progress.
            self.is_slow = self._settled > 0 and now - self._began_s > self._limit_s
            if self._is_taken or self.is_slow:
                return False
            self._asked = stop
            return True

    def _settle(self, answers: npt.NDArray[np.int8]) -> None:
        with self._lock:
            # Taken, these messages were reported as late already.
            if not self._is_taken:
                self._verdicts[self._settled : self._settled + len(answers)] = answers
                self._settled = self._asked = self._settled + len(answers)

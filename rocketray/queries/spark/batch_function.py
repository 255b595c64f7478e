"""A sink's function of two arguments, as Spark calls it: never interrupted.

py4j logs what such a function raises, with a traceback. Errors of our own need none: the runner of
the query reports them, and that a call is refused while the sink is being stopped is no failure.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketray.errors import StreamError

REPORT_S = 5.0
"""How long a stop waits for a report; Spark commits a batch some 0.1 s after the function's end."""
_POLL_S = 0.01  # a stop takes as much longer at most; py4j answers in a millisecond
_CALLBACKS = logging.getLogger("py4j.clientserver")


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
        _CALLBACKS.addFilter(_is_told)
        self._is_closed, self._done = False, None

    def close(self, reported: Callable[[], int | None], timeout_s: float) -> None:
        """Refuse further calls; wait until the last one has ended and *reported* gives its batch.

        Returns some time after *timeout_s* in any case: Spark reports a function that hangs.
        """
        # Before the lock: a call that waits for it, or comes later, is refused.
        self._is_closed = True
        if not self._is_running.acquire(timeout=timeout_s):
            return
        self._is_running.release()
        deadline = time.monotonic() + REPORT_S
        while self._is_ahead_of(reported()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _is_ahead_of(self, batch_id: int | None) -> bool:
        return self._done is not None and (batch_id is None or batch_id < self._done)


def _is_told(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], StreamError))

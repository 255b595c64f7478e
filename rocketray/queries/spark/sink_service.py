"""The sinks of an app in a thread: beside its agents in ``App.main``, or in a host of its own.

In this thread Spark leaves the signals of the process alone. The JVM is a child of the process that
ends with it, however it ends, because its standard input is closed then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from rocketray.base.cluster import Cluster
from rocketray.base.environment import process_environ
from rocketray.errors import StreamError
from rocketray.topology.app.sink_statistics import SinkState, SinkStatistics

from .java import find_java
from .sink import SinkApp, SinkHost
from .sink_runner import RestartPolicy

_LOOK_AGAIN_S = 0.1  # the statistics change once a second
_TOPIC_GRACE_S = 5.0  # agents that start at the same time create their topics within two
_SETTLE_S = 2.0  # a checkpoint that does not fit is found when the query runs
_BEGUN = (SinkState.RUNNING, SinkState.FINISHED)


class SinkService:
    """Runs the sinks of an app until it is stopped, or one fails for good."""

    def __init__(
        self,
        app: SinkApp,
        place: Path | Cluster | None = None,
        *,
        restarts: RestartPolicy | None = None,
    ) -> None:
        """Look for Java; nothing runs yet. *place* is the node's, by default that of the app.

        Raises:
            ConfigError: there is no Java for Spark, or two sinks have one checkpoint.
        """
        find_java(process_environ())
        node = app.place if place is None else place
        data = node if isinstance(node, Path) else None
        name, address = (node.name, node.ray_address) if isinstance(node, Cluster) else (None, None)
        self._host = SinkHost(app, data=data, cluster=name, ray_address=address, restarts=restarts)
        self._stopping = threading.Event()
        self._statistics: tuple[SinkStatistics, ...] = ()
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None
        """Why it ended, if it ended by itself."""

    def start(self, failed: Callable[[], object] = lambda: None) -> None:
        """Start the thread; it calls *failed* when a sink has failed for good."""
        self._thread = threading.Thread(target=self._run, args=(failed,), name="sinks", daemon=True)
        self._thread.start()

    def statistics(self) -> tuple[SinkStatistics, ...]:
        """Return the state of each sink, about a second old."""
        return self._statistics

    def await_start(self, stopping: threading.Event) -> None:
        """Return when each sink runs, or waits for a topic that others seem not to create.

        Raises:
            StreamError: one failed.
        """
        patient_s = time.monotonic() + _TOPIC_GRACE_S
        begun_s: float | None = None
        while not stopping.wait(_LOOK_AGAIN_S):
            if self.error is not None:
                raise self.error
            sinks, now_s = self.statistics(), time.monotonic()
            for sink in sinks:
                if sink.error is not None:
                    raise StreamError(f"sink {sink.name} failed: {sink.failure()}")
            accepted = _BEGUN if now_s < patient_s else (*_BEGUN, SinkState.WAITING)
            if not sinks or any(sink.state not in accepted for sink in sinks):
                continue
            begun_s = now_s if begun_s is None else begun_s
            if now_s - begun_s >= _SETTLE_S:
                return

    def stop(self) -> None:
        """End the sinks and Spark; a function of a micro-batch under way runs to completion first.

        Where Spark did not end a query in time, ``error`` says so.
        """
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, failed: Callable[[], object]) -> None:
        try:
            self._host.run_until(self._stopping, self._note)
        except Exception as error:  # noqa: BLE001 - kept for who started it
            self.error = error
            failed()

    def _note(self, statistics: tuple[SinkStatistics, ...]) -> None:
        self._statistics = statistics

"""The sinks of an app in a Ray actor: one process, one Spark session, for all of them.

It is named and deployed like the hosts of agents (host.py), and has the same calls. An app has one
such host: a second one would run the same queries on the same checkpoints. Its restart by Ray is
one of all sinks, from their checkpoints.

A sink that fails is restarted for as long as the host is up, and no other sink notices it. Only
what no sink can do without ends the process: the app's module, Spark, Java.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from rocketray.base.cluster import Cluster
from rocketray.queries.spark.sink_runner import RestartPolicy
from rocketray.queries.spark.sink_service import SinkService
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.ray_process.ray_runtime import output_files, ray
from rocketray.topology.app.app_log import show_worker_log

from .code_version import CodeVersion, code_version
from .host import FAILED_START_PAUSE_S, end_process
from .host_failure import HostFailure
from .host_plan import HostPlan
from .host_status import HostStatus
from .planned_app import enter_directory, load_planned
from .stored_failures import store_failure

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.25  # how long a failure of all sinks goes unseen


class SparkHost:
    """The actor. Its constructor starts the sinks, so they also start again with the process."""

    def __init__(
        self,
        plan: HostPlan,
        name: str | None = None,
        *,
        note: Callable[[str, HostFailure], None] = store_failure,
        end: Callable[[], None] = end_process,
    ) -> None:
        show_worker_log(plan.data, name, output_files())
        self._plan, self._name, self._note, self._end = plan, name, note, end
        self._service: SinkService | None = None
        self._version: CodeVersion | None = None
        self._has_failed = False
        self._not_stopped: HostFailure | None = None
        self._started: Future[HostFailure | None] = Future()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sinks {plan.path}", daemon=True)
        self._thread.start()

    def start(self) -> HostFailure | None:
        """Wait until each sink runs or waits for its topic; return the failure if one did not."""
        return self._started.result()

    def status(self) -> HostStatus:
        """Return the sinks' current status."""
        service = self._service
        return HostStatus(
            self._plan,
            socket.gethostname(),
            os.getpid(),
            is_running=self._started.done() and self._thread.is_alive() and not self._has_failed,
            agents=(),
            has_failed=self._has_failed,
            logs=output_files(),
            sinks=() if service is None else service.statistics(),
            version=self._version,
        )

    def stop(self) -> HostFailure | None:
        """End the sinks; a function of a micro-batch under way runs to completion first."""
        self._stopping.set()
        self._thread.join()
        return self._not_stopped

    def _run(self) -> None:
        try:
            service = self._begin()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # told to who deployed the app
            self._has_failed = True
            self._started.set_result(self._tell(error))
            if not self._stopping.wait(FAILED_START_PAUSE_S):
                self._end()
            return
        try:
            # A failure here ends nothing: the caller is told, and the sink is restarted without a
            # limit.
            service.await_start(self._stopping)
            self._started.set_result(None)
        except Exception as error:  # noqa: BLE001  # the same; the sink is restarted meanwhile
            self._started.set_result(self._tell(error))
        while not self._stopping.wait(_LOOK_AGAIN_S):
            if service.error is not None:
                self._has_failed = True
                self._tell(service.error)
                self._end()
                return
        try:
            service.stop()
        except Exception as error:  # noqa: BLE001  # returned to the caller of stop
            self._not_stopped = self._tell(error)

    def _begin(self) -> SinkService:
        """Import the app and start its sinks."""
        plan = self._plan
        enter_directory(plan)
        app = load_planned(plan)
        self._version = code_version(plan.path, system_clock_ms())
        place: Path | Cluster
        if plan.data is not None:
            place = Path(plan.data)
        else:
            # With the address: Spark's processes are not Ray's, and do not inherit which Ray it is.
            place = Cluster(plan.cluster, str(ray.get_runtime_context().gcs_address))
        self._service = SinkService(app, place, restarts=RestartPolicy(limit=None))
        self._service.start()
        return self._service

    def _tell(self, error: BaseException) -> HostFailure:
        path = self._plan.path
        failure = HostFailure.of(error, system_clock_ms(), path.partition(":")[0])
        logger.error("the sinks of app %s failed: %s", path, failure)
        if self._name is not None:
            self._note(self._name, failure)
        return failure

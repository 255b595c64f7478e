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
from dataclasses import replace
from pathlib import Path

from rocketray.base.cluster import Cluster
from rocketray.queries.spark.sink_runner import RestartPolicy
from rocketray.queries.spark.sink_service import SinkService
from rocketray.runtime.ray_process.ray_runtime import ray

from .host import AppHost
from .host_failure import HostFailure
from .host_status import HostStatus

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.25  # how long a failure of all sinks goes unseen


class SparkHost(AppHost):
    """The actor; a stop waits until a function of a micro-batch under way has run to completion."""

    def status(self) -> HostStatus:
        is_running = self._started.done() and self._thread.is_alive() and not self._has_failed
        sinks = () if self._service is None else self._service.statistics()
        return replace(self._status(is_running=is_running), sinks=sinks)

    def _prepare(self) -> None:
        self._service: SinkService | None = None

    def _begin(self) -> HostFailure | None:
        """Return when each sink runs or waits for its topic, or when one did not start."""
        plan = self._plan
        if plan.directory is not None:
            # Relative paths mean what they mean there. An archive is the current directory already:
            # Ray has made it that.
            os.chdir(plan.directory)
        app = self._load()
        place: Path | Cluster
        if plan.data is not None:
            place = Path(plan.data)
        else:
            # With the address: Spark's processes are not Ray's, and do not inherit which Ray it is.
            place = Cluster(plan.cluster, str(ray.get_runtime_context().gcs_address))
        service = SinkService(app, place, restarts=RestartPolicy(limit=None))
        self._service = service
        service.start()
        try:
            service.await_start(self._stopping)
        except Exception as error:  # noqa: BLE001  # the caller is told; the sink is restarted
            return self._tell(error)
        return None

    def _run(self) -> BaseException | None:
        assert self._service is not None
        while not self._stopping.wait(_LOOK_AGAIN_S):
            if self._service.error is not None:
                return self._service.error
        return None

    def _drain(self) -> None:
        assert self._service is not None
        before = self._service.error  # of a sink that failed earlier, and is told by _run
        self._service.stop()
        if self._service.error is not None and self._service.error is not before:
            raise self._service.error

    def _log(self, failure: HostFailure, error: BaseException) -> None:  # noqa: ARG002 - its life's
        logger.error("the sinks of app %s failed: %s", self._plan.path, failure)

"""The gateway actor of a disk, from which other machines fetch what is on it.

Fetches of members and ranges are answered by its Arrow Flight server, which has threads of its own.
Two processes of each disk may serve its port, one at a time: when the first one ends, the second
one has it after some milliseconds, and Ray starts the other again (serving_turn.py). Other calls
come over Ray, and return at once.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rocketray.actors.client.ray_transport import RayTransport
from rocketray.broker.fetching.flight_calls import FlightCalls, Served
from rocketray.broker.fetching.range_api import PlaceApi, RangeApi
from rocketray.broker.fetching.range_service import RangeService
from rocketray.broker.fetching.serving_turn import ServingTurn
from rocketray.broker.retries.dead_letter_api import DeadLettersApi
from rocketray.errors import StreamError
from rocketray.kernels import warm
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.remote.fetch_api import FetchApi
from rocketray.messaging.remote.fetch_sessions import FetchSessions
from rocketray.messaging.remote.tail_api import TailApi
from rocketray.messaging.remote.tail_service import TailService
from rocketray.runtime.calls.endpoint import ServedObjects
from rocketray.runtime.clock import steady_clock_ms, system_clock_ms
from rocketray.runtime.files.home import Home
from rocketray.runtime.periodic import start_periodic_task
from rocketray.runtime.ray_process.ray_runtime import ray, ray_host
from rocketray.services.admin.dead_letter_service import DeadLetterService
from rocketray.services.staging.staged_targets import StagedTargets
from rocketray.services.staging.staging_calls import staging_calls
from rocketray.services.staging.staging_service import StagingService
from rocketray.services.system.stepping import SteppedServices
from rocketray.store.age_clock import AgeClock

from .actor_log import show_log

_LOG = logging.getLogger(__name__)
GATEWAY_THREADS = 16  # for calls over Ray, which return at once; fetches have those of gRPC
STORES_AT_ONCE = 8
"""How many queues staged messages are stored in at the same time."""
_SWEEP_INTERVAL_S = 5.0  # so a session is dropped 20 to 25 s after its last call (IDLE_S)


class GatewayActor(ServedObjects):
    """The Ray shell of fetch sessions, the range service, and the service for dead letters.

    It is started with the first call from another machine or from Spark's writer. That of the first
    disk has the staged batches, and is started with its node if there are any.
    """

    def __init__(self, home: Home) -> None:
        super().__init__()
        show_log(home)
        self._stop = threading.Event()
        data = home.directory()
        node = NodeClient(
            data, RayTransport(data, home.cluster), cluster=home.cluster, disk=home.disk
        )
        self._sessions = FetchSessions(node, time.monotonic)
        self._turn = ServingTurn(data)
        calls = FlightCalls([Served(FetchApi, self._sessions), Served(TailApi, TailService(data))])
        self._staging: StagingService | None = None
        if not home.is_joined:
            clock = AgeClock(system_clock_ms, steady_clock_ms)
            self._storing = ThreadPoolExecutor(STORES_AT_ONCE, thread_name_prefix="storing")
            self._services = SteppedServices("staging", clock)
            self._staging = StagingService(
                *(data, StagedTargets(lambda: node)),
                clock_ms=clock,
                submit=self._storing.submit,
                wake=self._services.wake,
            )
            self._services.stepped = (self._staging,)
            calls = calls.beside(staging_calls(data, self._staging, node.topics))
        self._ranges = RangeService(home, ray_host(), others=calls, turn=self._turn)
        if self._turn.take():
            self._serve()
        else:
            threading.Thread(target=self._take_over, name="turn", daemon=True).start()
            threading.Thread(target=_prepare, args=[node], name="prepare", daemon=True).start()
        self.serve(RangeApi, lambda: self._ranges)
        self.serve(PlaceApi, lambda: self._ranges)
        letters = DeadLetterService(node)
        self.serve(DeadLettersApi, lambda: letters)
        start_periodic_task("sweeping", _SWEEP_INTERVAL_S, self._stop, self._sessions.sweep)

    # Ray may repeat the other calls; repeating a redrive would go beyond its limit.
    @ray.method(max_task_retries=0)  # type: ignore[untyped-decorator]  # Ray's has no type
    def call_once(self, *call: Any, **options: Any) -> Any:
        """Do the same as :meth:`call` for methods that are declared ``endpoint.once``."""
        return self.call(*call, **options)

    def _take_over(self) -> None:
        """Serve the port when the other process has ended."""
        self._turn.wait()
        if not self._stop.is_set():
            self._serve()

    def _serve(self) -> None:
        """Begin to store what is decided, and serve the port if a process before this one did."""
        if self._staging is not None:
            self._services.start()
        self._ranges.service.open_again()

    def staging_problems(self) -> list[str]:
        """Return what is wrong with staged batches, if this process stores them."""
        return [] if self._staging is None else self._staging.problems()

    def ready(self) -> None:
        """Return when the actor can serve calls."""

    def stop(self) -> None:
        """Drop all sessions, and end the service."""
        self._stop.set()
        self._sessions.close()  # first, so that no fetch waits
        self._ranges.close()
        if self._staging is not None:
            self._services.close()
            self._storing.shutdown()


def _prepare(node: NodeClient) -> None:
    """Load the kernels, and find the filter actor, before the first fetch that needs both."""
    warm()
    try:
        node.filters.statistics()
    except StreamError as error:
        _LOG.info("the filter actor is found with the first fetch: %s", error)

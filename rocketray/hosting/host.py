"""An instance of an app in a Ray actor that imports it by path.

- An app is never pickled: the actor gets ``"module:app"`` and imports it, from a directory of its
  machine, or from the archive that Ray has unpacked and made the current directory. The node is
  found by the name of its cluster.
- Ray calls actors outside of the main thread, so there are no signal handlers; the host does what
  ``App.main`` does in a process of its own.
- Mode only flags a crashed app, and a flag restarts nothing. So the host ends the process, Ray
  starts another one, and the groups resume from their committed offsets.
- An app that crashes within ``SETTLE_S`` of its start counts as not started: tasks and timers begin
  last. Then, and where the module cannot be imported, the process waits a little before it ends, so
  that the caller that waits for the start gets the reason, and the next attempt does not follow at
  once.
- The actor's class has no coroutines: Ray would call all its methods on one loop then, where a
  waiting call holds up every other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future

from rocketray.base.cluster import Cluster
from rocketray.errors import ActorError, NodeElsewhereError
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.ray_process.ray_runtime import output_files
from rocketray.topology.app.agent_statistics import AgentStatistics
from rocketray.topology.app.app import App
from rocketray.topology.app.app_log import note_worker_log, show_worker_log
from rocketray.topology.app.running import run_until

from .code_version import CodeVersion, code_version
from .host_failure import HostFailure
from .host_plan import HostPlan
from .host_status import HostStatus
from .planned_app import load_planned
from .stored_failures import store_failure

logger = logging.getLogger(__name__)

CRASH_EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
# Each start of a host takes as much longer; see the module's docstring.
SETTLE_S = 1.0
# The caller asks for the outcome at once, and Ray restarts the actor for ever: twelve attempts a
# minute instead of as many as the machine can start.
FAILED_START_PAUSE_S = 5.0


def end_process() -> None:
    """End the process, so that Ray starts another."""
    logging.shutdown()
    # Not ``sys.exit``, which ends the one thread of Ray's that runs the call.
    os._exit(CRASH_EXIT_CODE)


class ConsumerHost:
    """The actor; :class:`_HostedApp` does the work."""

    def __init__(
        self,
        plan: HostPlan,
        name: str | None = None,
        *,
        note: Callable[[str, HostFailure], None] = store_failure,
        end: Callable[[], None] = end_process,
    ) -> None:
        show_worker_log(plan.data, name, output_files())
        self._hosted = _HostedApp(plan, name, note=note, end=end)

    def start(self) -> HostFailure | None:
        """Wait until the app has started; return the failure if it did not."""
        return self._hosted.start()

    def status(self) -> HostStatus:
        """Return the app's current status."""
        return self._hosted.status()

    def stop(self) -> HostFailure | None:
        """Drain the agents, commit, and leave the groups; return the failure if there was one."""
        return self._hosted.stop()


class _HostedApp:
    """Runs one app on a loop and thread of its own, from construction on. Any thread may call it.

    So a handler that keeps the app's loop busy does not keep the actor from answering, and an actor
    that Ray restarted resumes by itself, because its constructor starts the app. *note* is called
    with each failure and the *name*, for queries after this process has ended.
    """

    def __init__(
        self,
        plan: HostPlan,
        name: str | None,
        *,
        note: Callable[[str, HostFailure], None],
        end: Callable[[], None],
    ) -> None:
        self._plan, self._name, self._note, self._end = plan, name, note, end
        self._app: App | None = None
        self._version: CodeVersion | None = None
        self._has_failed = False
        self._not_stopped: HostFailure | None = None
        self._started: Future[HostFailure | None] = Future()
        self._asked_to_stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"app {plan.path}", daemon=True)
        self._thread.start()

    def start(self) -> HostFailure | None:
        return self._started.result()

    def status(self) -> HostStatus:
        app = self._app
        is_running = app is not None and app.started and not app.should_stop
        told = app and is_running and asyncio.run_coroutine_threadsafe(_statistics(app), self._loop)
        agents, queues = told.result() if told else ((), ())
        return HostStatus(
            self._plan,
            socket.gethostname(),
            os.getpid(),
            is_running,
            agents,
            queues,
            self._has_failed,
            output_files(),
            version=self._version,
        )

    def stop(self) -> HostFailure | None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
            self._loop.call_soon_threadsafe(self._asked_to_stop.set)
        self._thread.join()
        return self._not_stopped

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # cancels what is left
            runner.run(self._live())

    async def _live(self) -> None:
        try:
            app = await self._begin()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # told to who deployed the app
            self._started.set_result(self._fail(error))
            with contextlib.suppress(TimeoutError):
                # Asked to stop, the process stays until it is ended: no next attempt is wanted.
                await asyncio.wait_for(self._asked_to_stop.wait(), FAILED_START_PAUSE_S)
                return
            self._end()
            return
        self._started.set_result(None)
        await run_until(app, self._asked_to_stop)
        if app.crashed:
            self._fail(app.crash_reason)
            self._end()
            return
        try:
            await app.stop()
        except Exception as error:  # noqa: BLE001  # returned to the caller of stop
            self._not_stopped = self._fail(error)

    async def _begin(self) -> App:
        """Import the app and start it; return when it has run for a moment."""
        self._app = app = load_planned(self._plan)
        self._version = code_version(self._plan.path, system_clock_ms())
        app.place = Cluster(self._plan.cluster)
        if self._plan.data is None:
            await self._note_log(app)
        await app.start()
        if not app.crashed:
            with contextlib.suppress(TimeoutError):
                # A timeout is the good end: neither stopped nor crashed, so it is settled.
                await asyncio.wait_for(run_until(app, self._asked_to_stop), SETTLE_S)
        if app.crashed:
            raise app.crash_reason or ActorError("the app crashed without a reason")
        return app

    async def _note_log(self, app: App) -> None:
        """Note the log of a host of a cluster, if the node's directory is on its machine."""
        connection = await app.connect()
        with contextlib.suppress(NodeElsewhereError):
            note_worker_log(connection.files("noting its log"), self._name, output_files())

    def _fail(self, error: BaseException | None) -> HostFailure:
        self._has_failed = True
        path = self._plan.path
        failure = HostFailure.of(error, system_clock_ms(), path.partition(":")[0])
        logger.error("app %s failed: %s", path, failure, exc_info=error)
        if self._name is not None:
            self._note(self._name, failure)
        return failure


async def _statistics(app: App) -> tuple[tuple[AgentStatistics, ...], tuple[tuple[str, int], ...]]:
    agents = tuple(agent.statistics() for agent in app.agents.values())
    return agents, tuple(sorted(map(tuple, app.consumer.assignment())))

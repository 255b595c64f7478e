"""Hosts: an app, or its sinks, in a Ray actor that imports it by path.

- An app is never pickled: the actor gets ``"module:app"`` and imports it, from a directory of its
  machine, or from the archive that Ray has unpacked and made the current directory. The node is
  found by the name of its cluster.
- Ray calls actors outside of the main thread, so there are no signal handlers. A host does what
  ``App.main`` does in a process of its own, in a thread that begins with the actor: so a handler
  that keeps it busy does not keep the actor from answering, and an actor that Ray restarted resumes
  by itself.
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
import logging
import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rocketray.base.cluster import Cluster
from rocketray.errors import ActorError, NodeElsewhereError
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.ray_process.ray_runtime import output_files, starter_paths
from rocketray.topology.app.agent_statistics import AgentStatistics
from rocketray.topology.app.app import App
from rocketray.topology.app.app_log import note_worker_log, show_worker_log
from rocketray.topology.app.loop_stall import LoopStall
from rocketray.topology.app.running import run_until

from .app_path import import_from, load_app
from .code_version import CodeVersion, code_version
from .host_failure import HostFailure
from .host_plan import HostPlan
from .host_status import LOOP_TIMEOUT_S, HostStatus
from .stored_failures import store_failure

logger = logging.getLogger(__name__)

CRASH_EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
# Each start of a host takes as much longer; see the module's docstring.
SETTLE_S = 1.0
# The caller asks for the outcome at once, and Ray restarts the actor for ever: twelve attempts a
# minute instead of as many as the machine can start.
FAILED_START_PAUSE_S = 5.0
_Statistics = tuple[tuple[AgentStatistics, ...], tuple[tuple[str, int], ...]]
"""Of each agent, and the queues that are read: a topic and a queue id each."""
_UPLOADED = "see that no .gitignore or .rayignore leaves it out of the upload"


def end_process() -> None:
    """End the process, so that Ray starts another."""
    logging.shutdown()
    # Not ``sys.exit``, which ends the one thread of Ray's that runs the call.
    os._exit(CRASH_EXIT_CODE)


class AppHost(ABC):
    """The calls of a host, from any thread, and its life, of which a subclass has the steps.

    *note* is called with each failure and the *name*, for queries after this process has ended.
    """

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
        self._version: CodeVersion | None = None
        self._has_failed = False
        self._not_stopped: HostFailure | None = None
        self._started: Future[HostFailure | None] = Future()
        self._stopping = threading.Event()
        self._prepare()
        self._thread = threading.Thread(target=self._live, name=f"app {plan.path}", daemon=True)
        self._thread.start()

    def start(self) -> HostFailure | None:
        """Wait until the host has started; return the failure if something did not start."""
        return self._started.result()

    @abstractmethod
    def status(self) -> HostStatus:
        """Return the current status."""

    def stop(self) -> HostFailure | None:
        """End what runs, in order; return the failure if there was one."""
        self._stopping.set()
        self._thread.join()
        return self._not_stopped

    @abstractmethod
    def _prepare(self) -> None:
        """Create what the calls use from the first one on."""

    @abstractmethod
    def _begin(self) -> HostFailure | None:
        """Start, or raise why not; a failure that is returned ends nothing."""

    @abstractmethod
    def _run(self) -> BaseException | None:
        """Return when asked to stop, or with what ended it before."""

    @abstractmethod
    def _drain(self) -> None:
        """End in order, or raise why not."""

    @abstractmethod
    def _log(self, failure: HostFailure, error: BaseException) -> None:
        """Log a failure."""

    def _is_stopped_within(self, seconds: float) -> bool:
        return self._stopping.wait(seconds)

    def _live(self) -> None:
        try:
            failure = self._begin()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # told to who deployed the app
            self._started.set_result(self._fail(error))
            # Asked to stop, the process stays until it is ended: no next attempt is wanted.
            if not self._is_stopped_within(FAILED_START_PAUSE_S):
                self._end()
            return
        self._started.set_result(failure)
        if (crash := self._run()) is not None:
            self._fail(crash)
            self._end()
            return
        try:
            self._drain()
        except Exception as error:  # noqa: BLE001  # returned to the caller of stop
            self._not_stopped = self._fail(error)

    def _load(self) -> App:
        """Import the app: from its directory, from the archive, or as it is installed."""
        plan = self._plan
        if plan.directory is not None:
            import_from(plan.directory)
        if plan.code is None:
            app = load_app(plan.path)
        else:
            # Ray puts the paths of the program that started the host first, and they may exist
            # here, with other code.
            import_from(Path.cwd(), instead_of=starter_paths())
            app = load_app(plan.path, _UPLOADED)
        self._version = code_version(plan.path, system_clock_ms())
        return app

    def _fail(self, error: BaseException) -> HostFailure:
        self._has_failed = True
        return self._tell(error)

    def _tell(self, error: BaseException) -> HostFailure:
        module = self._plan.path.partition(":")[0]
        failure = HostFailure.of(error, system_clock_ms(), module)
        self._log(failure, error)
        if self._name is not None:
            self._note(self._name, failure)
        return failure

    def _status(self, *, is_running: bool) -> HostStatus:
        """Return the status, without what runs."""
        return HostStatus(
            self._plan,
            socket.gethostname(),
            os.getpid(),
            is_running,
            agents=(),
            has_failed=self._has_failed,
            logs=output_files(),
            version=self._version,
        )


class ConsumerHost(AppHost):
    """The actor of agents; its thread runs the app's loop."""

    _known: _Statistics = (), ()
    """What the loop answered last, for a status while a handler blocks it."""
    _loop: asyncio.AbstractEventLoop

    def status(self) -> HostStatus:
        app = self._app
        if app is None or not app.started or app.should_stop:
            return self._status(is_running=False)
        status = replace(self._status(is_running=True), stall=_stall(app))
        asked = asyncio.run_coroutine_threadsafe(_statistics(app), self._loop)
        try:
            agents, queues = asked.result(LOOP_TIMEOUT_S)
        except TimeoutError:
            asked.cancel()
            agents, queues = self._known
            status = replace(status, stall=_stall(app))  # which may have begun meanwhile
        self._known = agents, queues
        return replace(status, agents=agents, queues=queues)

    def stop(self) -> HostFailure | None:
        """Drain the agents, commit, and leave the groups; return the failure if there was one."""
        with suppress(RuntimeError):  # the loop is closed: it has stopped
            self._loop.call_soon_threadsafe(self._asked_to_stop.set)
        return super().stop()

    def _prepare(self) -> None:
        self._app: App | None = None
        self._asked_to_stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        # Its end cancels what is left.
        with asyncio.Runner(loop_factory=lambda: self._loop) as self._runner:
            super()._live()

    def _begin(self) -> None:
        async def begin() -> None:
            self._app = app = self._load()
            app.place = Cluster(self._plan.cluster)
            if self._plan.data is None:
                await _note_log(app, self._name)
            await app.start()
            if not app.crashed:
                with suppress(TimeoutError):
                    # A timeout is the good end: neither stopped nor crashed, so it is settled.
                    await asyncio.wait_for(run_until(app, self._asked_to_stop), SETTLE_S)
            if (reason := _crash(app)) is not None:
                raise reason

        self._runner.run(begin())

    def _run(self) -> BaseException | None:
        assert self._app is not None
        self._runner.run(run_until(self._app, self._asked_to_stop))
        return _crash(self._app)

    def _drain(self) -> None:
        assert self._app is not None
        self._runner.run(self._app.stop())

    def _is_stopped_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):  # on the loop, which answers calls about the app meanwhile
            self._runner.run(asyncio.wait_for(self._asked_to_stop.wait(), seconds))
        return self._asked_to_stop.is_set()

    def _log(self, failure: HostFailure, error: BaseException) -> None:
        logger.error("app %s failed: %s", self._plan.path, failure, exc_info=error)


def _crash(app: App) -> BaseException | None:
    """Return why an app crashed; None if it did not."""
    if not app.crashed:
        return None
    return app.crash_reason or ActorError("the app crashed without a reason")


def _stall(app: App) -> LoopStall | None:
    return None if app.loop_watch is None else app.loop_watch.stall()


async def _note_log(app: App, name: str | None) -> None:
    """Note the log of a host of a cluster, if the node's directory is on its machine."""
    connection = await app.connect()
    with suppress(NodeElsewhereError):
        note_worker_log(connection.files("noting its log"), name, output_files())


async def _statistics(app: App) -> _Statistics:
    agents = tuple(agent.statistics() for agent in app.agents.values())
    return agents, tuple(sorted(map(tuple, app.consumer.assignment())))

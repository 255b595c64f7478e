"""Apps on the cluster: each instance in a Ray actor that imports it by path.

An app is never pickled: the actor gets ``"module:app"`` and imports it. Ray calls actors outside
of the main thread, so there are no signal handlers; what ``App.main`` does in a process of its own
the host does here. Mode only flags an app that crashed, and a flag restarts nothing: the host ends
the process, Ray starts another one, and the groups go on from their committed offsets.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import faust

from rocketray.errors import ActorError, ConfigError

from .agent import AgentStatistics
from .app import App

__all__ = [
    "HOST_OPTIONS",
    "ConsumerHost",
    "HostStatus",
    "await_start",
    "deploy",
    "import_from",
    "load_app",
]

logger = logging.getLogger(__name__)

CRASH_EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
START_TIMEOUT_S = 120.0
_FAILED_START_PAUSE_S = 5.0  # time for the error to reach who deployed, and between two attempts
_CALLS_AT_ONCE = 4  # status while another call waits for the start or the stop
HOST_OPTIONS: Mapping[str, Any] = {
    "num_cpus": 0,
    "max_restarts": -1,
    "max_task_retries": -1,
    "max_concurrency": _CALLS_AT_ONCE,
}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One instance of an app: where it runs, what its agents did, and the queues it reads.

    ``data`` is the node's data directory, and ``directory`` one from which modules are imported
    too, where they were given. ``queues`` are pairs of a topic and a queue id.
    """

    path: str
    pid: int
    is_running: bool
    agents: tuple[AgentStatistics, ...]
    queues: tuple[tuple[str, int], ...] = ()
    data: str | None = None
    directory: str | None = None


def load_app(path: str) -> App:
    """Import ``"module:app"``; raises :class:`ConfigError` saying what is wrong with it."""
    module_name, separator, name = path.partition(":")
    if not (module_name and separator and name):
        raise ConfigError(f"an app is named as module:app, for example trade:app, not {path!r}")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(f"app {path!r}: {_why_not_imported(module_name, error)}") from error
    app = getattr(module, name, None)
    if isinstance(app, App):
        return app
    if isinstance(app, faust.App):
        raise ConfigError(
            f"app {path!r} is a stock faust.App, which runs with: faust -A {module_name} worker; "
            "make it a rocketray.App to have it run as an actor"
        )
    apps = [f"{module_name}:{found}" for found, each in vars(module).items() if type(each) is App]
    raise ConfigError(
        f"app {path!r}: {module_name} has no rocketray.App named {name!r}; "
        f"it has {', '.join(apps) or 'none at all'}"
    )


def _why_not_imported(module: str, error: Exception) -> str:
    """What a user has to know of *error*, which the import of *module* raised, and where it was."""
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return (
            f"{error}; name a module that can be imported from here, or add its directory to "
            "PYTHONPATH"
        )
    place = traceback.extract_tb(error.__traceback__)[-1]
    if isinstance(error, SyntaxError):
        return f"{module} cannot be imported: {error}"
    return (
        f"{module} cannot be imported: {type(error).__name__}: {error} "
        f"({place.filename}, line {place.lineno})"
    )


def import_from(directory: Path | str) -> None:
    """Let this process import modules of *directory*, before those of the same name elsewhere."""
    place = str(directory)
    if place not in sys.path:
        sys.path.insert(0, place)


class ConsumerHost:
    """Runs one app on a loop and thread of its own, from construction on. Any thread may call it.

    A handler that keeps the app's loop busy so does not keep the actor from answering, and an
    actor that Ray restarted goes on by itself, because its constructor starts the app.
    """

    def __init__(self, path: str, data: str | None, directory: str | None = None) -> None:
        self._path, self._data, self._directory = path, data, directory
        if directory is not None:
            import_from(directory)
        self._app = load_app(path)
        if data is not None:
            self._app.data = data
        self._started: Future[None] = Future()
        self._asked_to_stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"app {path}", daemon=True)
        self._thread.start()

    def start(self) -> HostStatus:
        """Wait until the app has started; raises what its start raised."""
        self._started.result()
        return self.status()

    def status(self) -> HostStatus:
        """What the app does now."""
        is_running = self._app.started and not self._app.should_stop
        agents, queues = self._on_loop(self._statistics()) if is_running else ((), ())
        return HostStatus(
            self._path, os.getpid(), is_running, agents, queues, self._data, self._directory
        )

    def stop(self) -> None:
        """Drain the agents, commit, and leave the groups."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._asked_to_stop.set)
            self._thread.join()

    def _run(self) -> None:
        """The thread: the app's whole life."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._live())
        self._loop.close()

    async def _live(self) -> None:
        try:
            await self._app.start()
            if self._app.crashed:
                raise self._app.crash_reason or ActorError("it crashed while it started")  # noqa: TRY301  # the same answer as to a start that raises
        except Exception as error:  # noqa: BLE001  # told to whoever deployed the app
            self._started.set_exception(error)
            await asyncio.sleep(_FAILED_START_PAUSE_S)
            self._exit(error)
        self._started.set_result(None)
        await self._app.run_until(self._asked_to_stop)
        if self._app.crashed:
            self._exit(self._app.crash_reason)
        await self._app.stop()

    def _exit(self, reason: BaseException | None) -> NoReturn:
        """End the process, so that Ray starts another."""
        logger.error("app %s crashed: %r", self._path, reason)
        logging.shutdown()
        os._exit(CRASH_EXIT_CODE)

    async def _statistics(
        self,
    ) -> tuple[tuple[AgentStatistics, ...], tuple[tuple[str, int], ...]]:
        agents = tuple(agent.statistics() for agent in self._app.agents.values())
        return agents, tuple(sorted(map(tuple, self._app.consumer.assignment())))

    def _on_loop(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def deploy(
    path: str,
    *,
    data: Path | str | None = None,
    consumers: int = 1,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """Start *consumers* instances of the app at *path* as Ray actors; returns their handles.

    Ray must be connected. All instances join the same groups, so they share the messages. Blocks
    until every app has started; raises :class:`ActorError` when one does not.
    """
    import ray  # noqa: PLC0415  # declaring an app does not need Ray

    if consumers < 1:
        raise ConfigError(f"consumers is {consumers}; an app runs in at least one")
    host = ray.remote(**HOST_OPTIONS)(ConsumerHost)
    where = None if data is None else str(data)
    options = {} if env is None else {"runtime_env": {"env_vars": dict(env)}}
    handles = [host.options(**options).remote(path, where) for _ in range(consumers)]
    await_start(path, handles)
    return handles


def await_start(path: str, handles: Sequence[Any]) -> None:
    """Return when all apps have started; end them all and raise when one does not."""
    import ray  # noqa: PLC0415  # declaring an app does not need Ray

    try:
        ray.get([handle.start.remote() for handle in handles], timeout=START_TIMEOUT_S)
    except ray.exceptions.RayError as error:
        for handle in handles:
            ray.kill(handle)
        raise ActorError(f"app {path!r} did not start: {error}") from error

"""Deployment of apps: instances started, awaited and ended in Ray actors. Ray must be connected."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray

from rocketray.actors.client.connection import node_placement
from rocketray.errors import ActorError, ConfigError

from .host import ConsumerHost
from .host_failure import HostFailure

__all__ = ["HOST_OPTIONS", "await_start", "deploy", "end_hosts"]

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
_FAILED_STOP_TIMEOUT_S = 10.0
_LOOK_AGAIN_S = 0.5
_CALLS_AT_ONCE = 4  # status while another call waits for the start or the stop
HOST_OPTIONS: Mapping[str, Any] = {
    "num_cpus": 0,
    "max_restarts": -1,
    "max_task_retries": -1,
    "max_concurrency": _CALLS_AT_ONCE,
}
_ONCE: Mapping[str, Any] = {"max_task_retries": 0}  # an ended process is not called again


def deploy(
    path: str,
    *,
    data: Path | str | None = None,
    consumers: int = 1,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """Start *consumers* instances of the app at *path* as Ray actors; return their handles.

    All instances join the same groups, so they share the messages. Blocks until every app has
    started; raises :class:`ActorError` when one does not.
    """
    if consumers < 1:
        raise ConfigError(f"consumers is {consumers}; give 1 or more")
    host = ray.remote(**HOST_OPTIONS, **node_placement())(ConsumerHost)
    where = None if data is None else str(data)
    options = {} if env is None else {"runtime_env": {"env_vars": dict(env)}}
    handles = [host.options(**options).remote(path, where) for _ in range(consumers)]
    await_start(path, handles)
    return handles


def await_start(
    path: str, handles: Sequence[Any], is_given_up: Callable[[], bool] = lambda: False
) -> None:
    """Return when all apps have started; end them all and raise when one does not.

    Raises:
        ActorError: one failed, with its reason; or not all started in time; or *is_given_up*
            returned True meanwhile.
    """
    calls = [handle.start.options(**_ONCE).remote() for handle in handles]
    end = time.monotonic() + START_TIMEOUT_S
    waiting, why = calls, ""
    while waiting and not why:
        done, waiting = ray.wait(waiting, num_returns=1, timeout=_LOOK_AGAIN_S)
        why = next(filter(None, map(_why_not, done)), "")
        if waiting and not why and is_given_up():
            why = "it was interrupted"
        elif waiting and not why and time.monotonic() > end:
            why = f"{len(waiting)} of {len(handles)} are not up after {START_TIMEOUT_S:g} s"
    if why:
        end_hosts(handles, _FAILED_STOP_TIMEOUT_S)
        raise ActorError(f"app {path!r} did not start: {why}")


def end_hosts(handles: Sequence[Any], timeout_s: float = STOP_TIMEOUT_S) -> list[str]:
    """Drain and end actors; return, for each in order, why it was not drained, or an empty text."""
    calls = [handle.stop.options(**_ONCE).remote() for handle in handles]
    if calls:  # Ray refuses to wait for nothing
        ray.wait(calls, num_returns=len(calls), timeout=timeout_s)
    reasons = [_why_not(call, timeout_s) for call in calls]
    for handle in handles:
        ray.kill(handle)
    return reasons


def _why_not(call: Any, timeout_s: float = 0) -> str:
    """Return why *call* did not complete; empty if it did."""
    try:
        failure: HostFailure | None = ray.get(call, timeout=0)
    except ray.exceptions.GetTimeoutError:
        return f"it had not finished after {timeout_s:g} s"
    except ray.exceptions.RayActorError as error:
        return f"its process ended: {_first_line(error)}"
    except ray.exceptions.RayError as error:
        return _first_line(error)
    return "" if failure is None else str(failure)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)

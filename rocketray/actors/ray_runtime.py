"""Ray as rocketray runs it: on loopback unless a cluster is named, and never joined by chance.

Ray puts its servers on 127.0.0.1 by itself only on Windows and macOS, and whoever joins a Ray that
asks for a token has to say so. Both are environment variables that Ray reads when it is imported,
so what it made of them is set as well: a program may have imported Ray before it came here.

Ray prints what goes wrong in its processes, such as the end of a worker, on the stdout of every
program that joined it, also with ``log_to_driver=False``. Here it goes to the log instead.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

import ray
from ray._raylet import Config  # type: ignore[attr-defined]  # a compiled module
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

from rocketray.errors import ActorError, NodeNotRunningError

__all__ = [
    "NAMESPACE",
    "GetTimeoutError",
    "RayActorError",
    "RayError",
    "RayTaskError",
    "auth_mode",
    "join_ray",
    "ray",
    "start_ray",
]

logger = logging.getLogger(__name__)

NAMESPACE = "rocketray"
_LOOPBACK = "127.0.0.1"
_LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_AUTH_VARIABLE = "RAY_AUTH_MODE"
_KNOCK_TIMEOUT_S = 10.0


def start_ray(num_cpus: int | None) -> None:
    """Start a Ray of this process's own, on loopback; it ends with the process.

    Raises:
        ActorError: it did not start, as on a machine that is too busy.
    """
    _stay_on_loopback()
    _log_reports()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            address="local",  # without it Ray joins any cluster that its session directory names
            namespace=NAMESPACE,
            num_cpus=num_cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:
        raise ActorError(
            f"Ray did not start: {error}; its logs are in the newest session of its temporary "
            "directory; on a busy machine try again"
        ) from error


def join_ray(address: str, mode: str | None = None) -> None:
    """Join the Ray at *address* as a driver; *mode* is how it tells friends from strangers.

    Raises:
        NodeNotRunningError: nothing answers there.
    """
    _knock(address)
    if address.startswith(_LOOPBACK):
        _stay_on_loopback()
    if mode and _AUTH_VARIABLE not in os.environ:
        os.environ[_AUTH_VARIABLE] = mode
        Config.initialize("")  # Ray read the variable when it was imported
    _turn_fault_handler_on()
    _log_reports()
    try:
        ray.init(
            address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR
        )
    except Exception as error:
        raise NodeNotRunningError(f"the Ray at {address} cannot be joined: {error!r}") from error


def _knock(address: str) -> None:
    """Raise :class:`NodeNotRunningError` where nobody listens: Ray would try for a minute or two."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return  # a name that Ray knows, such as "auto"
    try:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_TIMEOUT_S).close()
    except OSError as error:
        raise NodeNotRunningError(
            f"the Ray at {address} does not answer ({error}): its node has ended, or is about to; "
            "start it again with: rocketray start"
        ) from error


def auth_mode() -> str:
    """How this process's Ray tells friends from strangers, for those who join it."""
    return os.environ.get(_AUTH_VARIABLE, "")


def _turn_fault_handler_on() -> None:
    """Do it before Ray does for ``sys.stderr``, where Faust's worker has a log that is no file."""
    if sys.__stderr__ is not None and not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__, all_threads=False)


def _log_reports() -> None:
    """Keep stdout for the program, which may print JSON."""
    ray._private.worker.print_to_stdstream = _log_report  # noqa: SLF001 - Ray has no other way


def _log_report(report: Mapping[str, Any], **_: Any) -> None:
    logger.info("Ray reports: %s", " ".join(map(str, report.get("lines", ()))))


def _stay_on_loopback() -> None:
    os.environ[_LOOPBACK_VARIABLE] = "0"
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # noqa: SLF001 - see the module's docstring

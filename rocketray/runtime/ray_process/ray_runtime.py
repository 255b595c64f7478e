"""Ray as rocketray runs it: on loopback unless a cluster is named, and never joined by chance.

- By itself, Ray puts its servers on 127.0.0.1 only on Windows and macOS, unless an environment
  variable says so. Ray reads it at import, so the value that it derived is set as well: a program
  may have imported Ray before. Access to it is the subject of ``ray_access.py``.
- Ray places an actor on any of its nodes. Our actors use the files of one machine, so they are
  bound to it for good (:func:`pinned`): by a label, which a raylet that replaces another may have
  as well, or by the id of the Ray node, which ends with its raylet.
- By default, Ray runs its workers, our actors, at nice 15, behind all other programs, and only the
  process that starts a Ray can change that. So our own Ray runs them at this process's priority.
- When the machine is short of memory, Ray's memory monitor kills actors that may restart, as ours
  may, before others, whichever program has the memory; and the kernel kills Ray's workers before
  all other programs. Our own Ray runs nothing else, so it does neither: the kernel chooses by size.
- Ray gives its servers 30 s to start. Our own has two minutes, because a machine may be very busy.
- Ray prints errors of its processes, such as the end of a worker, on the stdout of every program
  that joined it, also with ``log_to_driver=False``. Here they go to the log instead.
"""

from __future__ import annotations

import errno
import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rocketray.errors import ActorError, ConfigError, NodeNotRunningError, StreamError
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.state_files import disk_error
from rocketray.runtime.signal_handlers import interrupted_behind

from .ray_access import (
    forget_token,
    is_refused,
    knows_ray,
    ray_directory,
    token_for_node,
    using_token,
)
from .ray_fork import refuse_inherited_ray
from .ray_start import START_MAX_S, small_and_soon
from .ray_watch import RayWatch, connect_error, gcs_away_s
from .raylet_here import no_raylet, tell_of_no_raylet

__all__ = [
    "DISK_LABEL",
    "NODE_LABEL",
    "GetTimeoutError",
    "RayActorError",
    "RayError",
    "RayTaskError",
    "actor_name",
    "cluster_of",
    "has_ray",
    "hears_gcs",
    "is_driver",
    "is_here",
    "join_ray",
    "label_of_machine",
    "leave_ray",
    "logs_directory",
    "namespace_of",
    "output_files",
    "own_processes",
    "pinned",
    "raised_there",
    "ray",
    "ray_host",
    "ray_node_of",
    "ray_session",
    "start_ray",
    "starter_paths",
    "watch_ray",
    "zone_of_machine",
]

logger = logging.getLogger(__name__)

_NAMESPACE = "rocketray"
DISK_LABEL = "rocketray-disk"
"""The label of a Ray node that has a data directory; its value is the directory's UUID."""
NODE_LABEL = "ray.io/node-id"
"""The label that Ray gives each of its nodes; its value is the id."""
_ZONE_LABEL = "ray.io/availability-zone"  # the name that Ray gives it
_LOOPBACK = "127.0.0.1"
_LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_OWN_SETTINGS = {
    "worker_niceness": 0,
    "memory_monitor_refresh_ms": 0,
    "worker_oom_score_adjustment": 0,
    "raylet_start_wait_time_s": START_MAX_S,
}
"""How our own Ray differs from Ray's defaults; a variable named ``RAY_…`` takes precedence."""
_GCS_START_VARIABLE = "RAY_gcs_server_port_wait_time_s"
_DIRECTORY_VARIABLE = "RAY_TMPDIR"
# The name of a socket has 107 bytes at most; the longest of Ray's follows the directory.
_DIRECTORY_MAX_BYTES = 107 - len("/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
_KNOCK_TIMEOUT_S = 10.0  # for a busy machine; Ray itself would try for a minute or two
_GCS_TIMEOUT_S = 2.0  # a standby asks twice in a turn, which counts as 5 s at most
_CALLS_END_S = 2.0  # see leave_ray()
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
# Held while Ray is left: it counts as initialized until then, also a lost one that is waited for.
_LEAVING = threading.Lock()
_START_AGAIN = ": its node has ended, or is about to; start it again with: rocketray start"


def start_ray(num_cpus: int | None, token: Path, disk: str) -> Path | None:
    """Start this process's own Ray, on loopback; it ends with the process.

    Return *token*, the file that has its new token, or None if it requires none. *disk* is the UUID
    of the data directory that its one node has.

    Raises:
        ConfigError: RAY_TMPDIR is too long for the names of sockets; or it is not set, and no
            private directory can be made in /tmp.
        ActorError: it did not start, for example because the machine is too busy.
    """
    refuse_inherited_ray()
    _stay_on_loopback()
    _log_reports()
    # Ray reports its use to its authors unless told otherwise.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault(_GCS_START_VARIABLE, str(START_MAX_S))
    directory = os.environ.get(_DIRECTORY_VARIABLE) or str(ray_directory())
    if (size := len(os.fsencode(directory))) > _DIRECTORY_MAX_BYTES:
        raise ConfigError(
            f"{_DIRECTORY_VARIABLE}={directory} has {size} bytes, of {_DIRECTORY_MAX_BYTES} at most: "
            "the names of Ray's sockets begin with it; name a directory higher up, or unset it"
        )
    made = token_for_node(token)
    try:
        with using_token("", made), small_and_soon(), interrupted_behind():
            ray.init(
                address="local",  # else Ray joins any cluster that its session directory names
                namespace=_NAMESPACE,
                num_cpus=num_cpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=directory,
                labels={DISK_LABEL: disk},
                _system_config={
                    name: value
                    for name, value in _OWN_SETTINGS.items()
                    if f"RAY_{name}" not in os.environ
                },
            )
    except Exception as error:
        raise ActorError(
            f"Ray did not start: {error}; its logs are in {directory}/session_latest; on a busy "
            "machine try again"
        ) from error
    return made


def join_ray(
    address: str,
    mode: str = "",
    token: Path | None = None,
    raylet: str | None = None,
    *,
    advice: str = _START_AGAIN,
) -> None:
    """Join the Ray at *address* as a driver; *token* is the file with the token for it.

    The address "auto" is that of RAY_ADDRESS, or of a Ray that was started on this machine.
    Without one, *mode* is its authentication mode, and Ray finds its token itself. *raylet* is the
    address of this machine's raylet, if it is known; *advice* says what to do if nothing answers.

    Raises:
        NodeNotRunningError: nothing answers there, or it refuses this process.
    """
    refuse_inherited_ray()
    if address == "auto":
        address = _found_ray(advice)
    for server in filter(None, (address, raylet)):
        _knock(server, advice)
    if address.startswith(_LOOPBACK):
        _stay_on_loopback()
    _turn_fault_handler_on()
    _log_reports()
    with using_token(mode, token):
        if is_refused(address):
            raise NodeNotRunningError(f"the Ray at {address} {_refusal(token)}")
        tell_of_no_raylet(address)
        try:
            ray.init(
                address=address,
                namespace=_NAMESPACE,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except Exception as error:
            said = no_raylet(address) or f"the Ray at {address} cannot be joined: {error!r}"
            raise NodeNotRunningError(said) from error


def _refusal(token: Path | None) -> str:
    """Return the text on a Ray that refuses this process, and what to do."""
    if token is None:
        return (
            "asks for a token that this process does not have: set RAY_AUTH_MODE=token, and "
            "RAY_AUTH_TOKEN_PATH to the token file of the user that started that Ray"
        )
    return (
        f"refuses the token in {token}: it is not the one that the node created at its start; stop "
        "the node and start it again, which creates a new one"
    )


def _found_ray(advice: str) -> str:
    """Return the address that Ray means by "auto"; its last Ray may have ended, so it is tried."""
    try:
        services = ray._private.services  # noqa: SLF001 - Ray has no public way
        return str(services.canonicalize_bootstrap_address("auto"))
    except ConnectionError as error:
        raise NodeNotRunningError(f"no Ray runs on this machine{advice}") from error


def _knock(address: str, advice: str) -> None:
    """Raise :class:`NodeNotRunningError` if nothing listens: Ray would try for a minute or two."""
    if not address.rpartition(":")[2].isdecimal():
        return  # not a host with a port, such as "local"
    error = connect_error(address, _KNOCK_TIMEOUT_S)
    if error is not None:
        said = f"the Ray at {address} does not answer ({error}){advice}"
        raise NodeNotRunningError(said) from error


def namespace_of(cluster: str) -> str:
    """Return the namespace in Ray of a cluster's actors: several clusters share one Ray."""
    return f"{_NAMESPACE}-{cluster}"


def cluster_of(namespace: str) -> str | None:
    """Return the cluster with that namespace; None if it is no cluster's."""
    prefix = namespace_of("")
    return namespace.removeprefix(prefix) if namespace.startswith(prefix) else None


def ray_node_of(disk: str) -> str:
    """Return the id of this process's Ray node, or empty if its label says that it has *disk*."""
    context = ray.get_runtime_context()
    labels: Mapping[str, str] = context.get_node_labels()
    return "" if labels.get(DISK_LABEL) == disk else str(context.get_node_id())


def label_of_machine() -> tuple[str, str]:
    """Return the name and value of the label that only this process's Ray node has.

    A raylet that replaces another may have the label of its disk, too, but a new id.
    """
    labels: Mapping[str, str] = ray.get_runtime_context().get_node_labels()
    name = DISK_LABEL if DISK_LABEL in labels else NODE_LABEL
    return name, labels[name]


def ray_host() -> str:
    """Return the IP address that Ray has for this process's machine."""
    return str(ray.util.get_node_ip_address())


def is_here(home: Home) -> bool:
    """Return whether the actors of *home* are bound to this process's Ray node."""
    return ray_node_of(home.uuid) == home.ray_node


def zone_of_machine() -> str:
    """Return the availability zone that the label of this process's Ray node names, or empty."""
    labels: Mapping[str, str] = ray.get_runtime_context().get_node_labels()
    return labels.get(_ZONE_LABEL, "")


def watch_ray(worker: int = 0, *, is_own: bool) -> RayWatch:
    """Return the watch of this process's Ray, its own or another's.

    *worker* is a process of that Ray, by which the others are found.
    """
    context = ray.get_runtime_context()
    (own,) = [each for each in ray.nodes() if each["NodeID"] == context.get_node_id()]
    raylet = f"{own['NodeManagerAddress']}:{own['NodeManagerPort']}"
    gcs = str(context.gcs_address)
    if is_own:
        return RayWatch(gcs, raylet, worker)
    ray_id = ray._private.worker.global_worker.gcs_client.cluster_id.hex()  # noqa: SLF001 - as above
    return RayWatch(
        gcs, raylet, worker, gcs_away_s=gcs_away_s(), knows_us=partial(knows_ray, gcs, ray_id)
    )


def hears_gcs() -> bool:
    """Return whether the GCS of this process's Ray takes a connection; waits for it for 2 s."""
    if not ray.is_initialized():
        return False
    address = str(ray.get_runtime_context().gcs_address)
    return connect_error(address, _GCS_TIMEOUT_S) is None


def own_processes() -> list[int]:
    """Return the pids of the servers of this process's own Ray; none if it joined one."""
    started = ray._private.worker._global_node  # noqa: SLF001 - Ray has no other way
    return [each.process.pid for of_kind in started.all_processes.values() for each in of_kind]


def has_ray() -> bool:
    """Return whether this process has a Ray; waits while it leaves one."""
    with _LEAVING:
        return bool(ray.is_initialized())


def ray_session() -> str:
    """Return the name of this process's time with its Ray: a new one each time; "" without Ray.

    The ids of drivers alone are the same in each session of a Ray that was started again.
    """
    with _LEAVING:
        if not ray.is_initialized():
            return ""
        session = ray._private.worker.global_worker.node.session_name  # noqa: SLF001 - as above
        return f"{session} {ray.get_runtime_context().get_worker_id()}"


def is_driver() -> bool:
    """Return whether this process is a program that joined Ray, and no actor or task of it."""
    return bool(ray._private.worker.global_worker.mode == ray.SCRIPT_MODE)  # noqa: SLF001 - as above


def leave_ray(*, is_lost: bool = False) -> None:
    """Leave the Ray of this process; the next one is entered as the environment says.

    A Ray that *is_lost* is left after a moment, when calls that wait for its answers have ended:
    Ray would end the process after a minute.
    """
    with _LEAVING:
        if is_lost:
            time.sleep(_CALLS_END_S)
        ray.shutdown()
        forget_token()


def pinned(home: Home) -> dict[str, Any]:
    """Return the options of an actor that uses the files of *home*: it runs only there."""
    if home.ray_node:
        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(home.ray_node, soft=False)}
    return {"label_selector": {DISK_LABEL: home.uuid}}


def actor_id_of(actor: Any) -> str:
    """Return Ray's id of an actor, which one that is started under the same name does not have."""
    return str(actor._actor_id.hex())  # noqa: SLF001 - Ray has no public way


def raised_there(error: RayTaskError, data: Path) -> Exception:
    """Return the error of an actor of the node on *data*, if a person can act on it."""
    cause = error.cause
    if isinstance(cause, OSError) and cause.errno in _DISK_ERRORS:
        return disk_error(data, cause)
    return cause if isinstance(cause, StreamError) else error


def actor_name() -> str:
    """Return the name of the actor that this process is."""
    return str(ray.get_runtime_context().get_actor_name())


def output_files() -> tuple[str, ...]:
    """Return the files to which Ray redirects this process's output; none in a driver."""
    worker = ray._private.worker.global_worker  # noqa: SLF001 - Ray has no public way
    paths = worker.get_out_file_path(), worker.get_err_file_path()
    return tuple(str(path) for path in paths if path)


def starter_paths() -> list[str]:
    """Return the directories that Ray put first on this actor's import path.

    They are those of the program that started it: its own, and its current directory.
    """
    if not ray.is_initialized():
        return []
    worker = ray._private.worker.global_worker.core_worker  # noqa: SLF001 - as above
    return list(worker.get_job_config().py_driver_sys_path)


def logs_directory() -> str:
    """Return the log directory, on this machine, of the Ray that this process joined."""
    directory: str = ray._private.worker.global_worker.node.get_logs_dir_path()  # noqa: SLF001 - private
    return directory


def _turn_fault_handler_on() -> None:
    """Enable it before Ray does for ``sys.stderr``, which in Faust's worker is not a file."""
    if sys.__stderr__ is not None and not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__, all_threads=False)


def _log_reports() -> None:
    """Keep stdout for the program, which may print JSON."""
    ray._private.worker.print_to_stdstream = _log_report  # noqa: SLF001 - Ray has no other way


def _log_report(report: Mapping[str, Any], **_: Any) -> None:
    logger.info("Ray reports: %s", " ".join(map(str, report.get("lines", ()))))


def _stay_on_loopback() -> None:
    os.environ[_LOOPBACK_VARIABLE] = "0"
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # noqa: SLF001 - see the top

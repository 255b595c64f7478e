"""What ``rocketray doctor`` looks at; the checks of it are in health_checks.py."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rocketray.base.environment import process_environ
from rocketray.errors import ConfigError, StoreError
from rocketray.runtime.files.node_description import read_description
from rocketray.runtime.files.private_files import is_own_directory, open_to_others
from rocketray.runtime.files.runtime_lock import abandoned
from rocketray.runtime.files.state_files import disk_use
from rocketray.runtime.machine import whereabouts
from rocketray.runtime.process_logs.log_index import read_logs
from rocketray.runtime.processes import is_alive

from . import health_checks as checks
from .health_checks import Finding

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's own place
_MOUNTS = Path("/proc/mounts")
_MAPS = Path("/proc/sys/vm/max_map_count")
_FILES_MAX = 200_000
"""Of Ray's sessions: their sizes are summed up to this number of files."""


def findings(directories: Sequence[Path], ports: Mapping[str, int]) -> Iterator[Finding]:
    """Yield the findings on this machine and on data *directories* on it; *ports* by their use.

    A check that fails itself is a warning with its reason.
    """
    environ = process_environ()
    nodes: dict[Path, dict[str, Any] | None] = {}
    for data in directories:
        nodes[data], damage = _description(data)
        if damage is not None:
            yield damage
    for name, check in _checks(nodes, ports, environ):
        try:
            found = check()
            yield from [found] if isinstance(found, Finding) else found
        except (OSError, ValueError) as error:
            yield Finding(name, "warning", f"unknown, because {error}")


_Check = tuple[str, Callable[[], Finding | Iterator[Finding]]]


def _checks(
    nodes: Mapping[Path, dict[str, Any] | None],
    ports: Mapping[str, int],
    environ: Mapping[str, str],
) -> Iterator[_Check]:
    """Yield the checks of the machine, and of the data directories with what their nodes say."""
    version = sys.version_info
    where = {data: None if node is None else whereabouts(node) for data, node in nodes.items()}
    lives = {data: node for data, node in nodes.items() if where[data] == "here" and node}
    yield (
        "python",
        lambda: checks.check_python((version.major, version.minor, version.micro), sys.prefix),
    )
    yield (
        "platform",
        lambda: checks.check_platform(platform.system(), platform.machine(), sys.byteorder),
    )
    yield "packages", lambda: checks.check_packages(*_packages())
    yield "java", lambda: checks.check_java(_java(environ))
    for data in nodes:
        yield from _checks_of_directory(data)
    yield "shared memory", _shared_memory
    for data in nodes:
        yield "clock", partial(_clock, data, lives=data in lives)
    yield "limits", lambda: checks.check_limits(*_limits())
    modes = {str(node.get("authMode")) for node in lives.values()}
    mode = min(modes, default=None)  # "disabled" before "token"
    yield (
        "ray's access",
        lambda: checks.check_ray_access(mode, environ.get("RAY_AUTH_MODE"), _readable(environ)),
    )
    yield "niceness", lambda: checks.check_niceness(_niceness(lives))
    for use, port in ports.items():
        yield "ports", partial(_port, use, port, lives=bool(lives))
    dead = {
        str(data): int(node.get("pid", 0))
        for data, node in nodes.items()
        if node is not None and where[data] == "gone"
    }
    yield "stale files", lambda: checks.check_stale([str(path) for path in abandoned()], dead)
    yield "ray's files", _sessions


def _checks_of_directory(data: Path) -> Iterator[_Check]:
    found = _existing(data)
    yield "directory", lambda: _directory(data)
    yield "disk", lambda: checks.check_disk(disk_use(found), str(data))
    yield "file system", lambda: checks.check_file_system(_file_system(found), str(data))


def _clock(data: Path, *, lives: bool) -> Finding:
    now_ms = time.time_ns() // 1_000_000
    return checks.check_clock(now_ms, _newest_ms(data), _node_ms(data) if lives else None)


def _description(data: Path) -> tuple[dict[str, Any] | None, Finding | None]:
    try:
        return read_description(data), None
    except StoreError as error:
        advice = "if no node runs there, remove the file; else stop the node first"
        return None, Finding("node", "error", str(error), advice)


def _packages() -> tuple[list[str] | None, dict[str, str | None]]:
    try:
        required = importlib.metadata.requires("rocketray")
    except importlib.metadata.PackageNotFoundError:
        return None, {}
    names = [re.split(r"[ ;<>=!~\[(]", text, maxsplit=1)[0] for text in required or []]
    return required or [], {name: _version(name) for name in names}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _java(environ: Mapping[str, str]) -> tuple[int, str] | str:
    from rocketray.queries.spark.java import find_java

    try:
        java = find_java(environ)
    except ConfigError as error:
        return str(error)
    return java.version, str(java.home)


def _directory(data: Path) -> Finding:
    found = _existing(data)
    return checks.check_directory(
        str(data),
        exists=found == data.resolve(),
        is_own=is_own_directory(found),
        is_writable=os.access(found, os.W_OK | os.X_OK),
        open_bits=open_to_others(found),
    )


def _existing(path: Path) -> Path:
    """Return *path*, or the nearest directory above it that exists."""
    resolved = path.resolve()
    return next(each for each in (resolved, *resolved.parents) if each.is_dir())


def _file_system(directory: Path) -> str | None:
    """Return the kind of the file system that *directory* is on, of the last mount above it."""
    found: tuple[int, str] | None = None
    for line in _MOUNTS.read_text().splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = fields[1].encode().decode("unicode_escape")  # blanks are \040
        if directory.is_relative_to(mount) and (found is None or len(mount) >= found[0]):
            found = len(mount), fields[2]
    return None if found is None else found[1]


def _shared_memory() -> Finding:
    if not _SHARED_MEMORY.is_dir():
        return checks.check_shared_memory(None, 0, is_writable=False)
    use = disk_use(_SHARED_MEMORY)
    writable = os.access(_SHARED_MEMORY, os.W_OK)
    return checks.check_shared_memory(use.used + use.free, use.free, is_writable=writable)


def _newest_ms(data: Path) -> int | None:
    """Return the time of the newest file in the directory and its settings."""
    files = [each for each in (data, data / "config") if each.is_dir() for each in each.iterdir()]
    times = []
    for file in files:
        with suppress(OSError):
            # A file may be gone since the listing, as a node replaces them.
            times.append(file.stat().st_mtime_ns // 1_000_000)
    return max(times, default=None)


def _node_ms(data: Path) -> int | None:
    from rocketray.actors.client.connected_client import LocalClient
    from rocketray.actors.client.local_transport import open_local

    transport = open_local(data.resolve())
    if transport is None:
        return None
    with LocalClient(transport) as node:
        return node.clock_ms()


def _limits() -> tuple[int | None, int | None]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    maps = int(_MAPS.read_text()) if _MAPS.exists() else None
    return None if hard == resource.RLIM_INFINITY else hard, maps


def _readable(environ: Mapping[str, str]) -> str | None:
    """Return the file of Ray's token if others can read it."""
    path = Path(environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return str(path) if open_to_others(path) else None


def _niceness(directories: Iterable[Path]) -> dict[str, int]:
    """Return the priorities of the actors that live, of the nodes on *directories*."""
    found = {}
    for entry in chain.from_iterable(map(read_logs, directories)):
        is_here = entry.machine == socket.gethostname() and is_alive(entry.pid)
        if is_here and not entry.part.startswith("app:"):
            with suppress(OSError):
                # It may have ended since it was seen alive.
                found[entry.name] = os.getpriority(os.PRIO_PROCESS, entry.pid)
    return found


def _port(use: str, port: int, *, lives: bool) -> Finding:
    """Check that *port* can be had, unless a node *lives* that may have it itself."""
    return checks.check_port(use, port, None if lives else _taken(port))


def _taken(port: int) -> str | None:
    """Return why *port* cannot be had."""
    with socket.socket() as server:
        # Else the port of a server that has just ended would seem to be taken.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def _sessions() -> Finding:
    """Sum the files of Ray's sessions in the directory of our own Rays; none is created."""
    directory = Path("/tmp") / f"rocketray-{os.getuid()}" / "ray"  # noqa: S108 - ray_access.py
    sessions = [path for path in directory.glob("session_2*") if path.is_dir()]
    size = count = 0
    for session in sessions:
        for file in session.rglob("*"):
            count += 1
            if count > _FILES_MAX:
                break
            with suppress(OSError):
                size += file.lstat().st_size
    return checks.check_sessions(len(sessions), size, str(directory))

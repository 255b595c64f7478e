"""A machine with a systemd of its own as process 1, over the files of this one.

It has mounts, processes, a network and control groups of its own. What is written there is in memory,
and gone with it.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.harness import machine
from support.harness.patience import patience, wait_until, wait_until_answered
from support.harness.process_tree import children_of
from support.nodes.own_mounts import with_mounts

_OWN = ("--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net")
_BOOT_S = 30.0
_DEVICES = "null:3 zero:5 full:7 random:8 urandom:9"
_MASKED = (  # for devices, clocks and terminals, which are those of this machine
    "dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount "
    "sys-kernel-config.mount sys-fs-fuse-connections.mount systemd-udevd.service "
    "systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-udev-trigger.service "
    "systemd-timesyncd.service systemd-logind.service systemd-sysctl.service "
    "systemd-modules-load.service systemd-journald-audit.socket getty.target timers.target"
)
# $1 is an empty directory, $2 a control group. What is written is in a file system in memory, since it
# may not be below the one that it covers.
_MOUNTS = f"""
mount --make-rprivate /
echo 0 > "$2/cgroup.procs"
mount -t tmpfs -o mode=755 none "$1"
cd "$1"
mkdir written work root
mount -t overlay -o lowerdir=/,upperdir=written,workdir=work none root
cd root
mount -t proc none proc
mount -t sysfs -o ro none sys
mount -t tmpfs -o mode=755 none dev
for each in {_DEVICES}; do mknod -m 666 "dev/${{each%:*}}" c 1 "${{each#*:}}"; done
mkdir dev/shm
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 none dev/shm
mount -t tmpfs -o mode=755 none run
mount -t tmpfs -o mode=1777 none tmp
mount --bind proc/sys proc/sys
mount -o remount,ro,bind proc/sys
rm -f etc/systemd/system/*.wants/*
for each in {_MASKED}; do ln -sf /dev/null "etc/systemd/system/$each"; done
pivot_root . mnt
umount -l /mnt
"""
_BOOT = (
    "mount -t cgroup2 none /sys/fs/cgroup && exec env -i container=other PATH=/usr/sbin:/usr/bin "
    f"{machine.SYSTEMD} --unit=multi-user.target --show-status=0"
)


class BootedMachine:
    """Runs commands there, as root or as another user."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        (inside,) = children_of(process.pid)
        spaces = ("--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup")
        self._entered = ["nsenter", f"--target={inside}", *spaces]

    def run(self, *command: str, user: str = "root", environ: tuple[str, ...] = ()) -> str:
        """Return what *command* prints; it has to succeed."""
        whole = [
            "setpriv",
            f"--reuid={user}",
            f"--regid={user}",
            "--clear-groups",
            "env",
            "-C",
            "/",
        ]
        done = subprocess.run(
            [*self._entered, *whole, *environ, *command],
            capture_output=True, text=True, timeout=patience(120), check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stdout, done.stderr, self.journal())
        return done.stdout

    def state(self, unit: str) -> str:
        """Return whether that unit is active, in a word of systemd's."""
        return self.run("systemctl", "show", "--property=ActiveState", "--value", unit).strip()

    def journal(self) -> str:
        """Return what all units have said."""
        command = [*self._entered, "journalctl", "--no-pager", "--output=cat", "--lines=300"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def processes_of(self, user: str) -> list[str]:
        """Return the commands that run as that *user*."""
        command = [*self._entered, "ps", "-U", user, "-o", "args="]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.splitlines()


@contextmanager
def booted_machine(directory: Path) -> Iterator[BootedMachine]:
    """Boot it in the empty *directory*. Skips where systemd or the rights for it are missing."""
    machine.require("systemd")
    group = _control_groups() / f"rocketray-test-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        before = with_mounts(_MOUNTS, directory, group, names=_OWN)
        process = subprocess.Popen([*before, "unshare", "--cgroup", "sh", "-c", _BOOT])
        try:
            yield _when_booted(process)
        finally:
            process.kill()
            process.wait()
    finally:
        _remove(group)


def _control_groups() -> Path:
    """Return where those of version 2 are."""
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return next(Path(each[1]) for each in lines if each[2] == "cgroup2")


def _when_booted(process: subprocess.Popen[bytes]) -> BootedMachine:
    def booted() -> BootedMachine | None:
        assert process.poll() is None, "systemd ended"
        with suppress(AssertionError, ValueError):
            machine = BootedMachine(process)
            machine.run("systemctl", "start", "multi-user.target")
            return machine
        return None

    return wait_until(booted, "systemd did not start", within_s=_BOOT_S)


def _remove(group: Path) -> None:
    """Remove a control group, when its last processes have ended."""
    for each in (*sorted((path for path in group.rglob("*/")), reverse=True), group):
        if each.is_dir():
            wait_until_answered(each.rmdir, OSError, within_s=_BOOT_S)

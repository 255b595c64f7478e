"""Each check of the doctor, with what is well and with what is not."""

from __future__ import annotations

import pytest

from rocketray.cli.doctor.health_checks import (
    Finding,
    check_clock,
    check_directory,
    check_disk,
    check_file_system,
    check_java,
    check_limits,
    check_niceness,
    check_packages,
    check_platform,
    check_port,
    check_python,
    check_ray_access,
    check_sessions,
    check_shared_memory,
    check_stale,
)
from rocketray.store.retention import DiskUse

GIB = 1 << 30
NOW_MS = 1_790_000_000_000
WELL = [
    check_python((3, 12, 1), "/venv"),
    check_platform("Linux", "x86_64", "little"),
    *check_packages(["numpy>=2.0", "demo==1; extra == 'demo'"], {"numpy": "2.1"}),
    check_java((21, "/jdk")),
    check_directory("/data", exists=True, is_own=True, is_writable=True, open_bits=0o050),
    check_directory("/data", exists=False, is_own=False, is_writable=True, open_bits=0o077),
    check_disk(DiskUse(GIB, 9 * GIB), "/data"),
    check_disk(DiskUse(990 * GIB, 10 * GIB), "/data"),
    check_file_system("ext4", "/data"),
    check_shared_memory(8 * GIB, 4 * GIB, is_writable=True),
    check_clock(NOW_MS, NOW_MS + 59_000, NOW_MS - 59_000),
    check_clock(NOW_MS, None, None),
    *check_limits(None, None),
    *check_limits(4096, 65_530),
    check_ray_access("token", None, None),
    check_niceness({"coordinator": 0}),
    check_niceness({}),
    check_port("metrics", 5557, None),
    *check_stale([], {}),
    check_sessions(3, GIB, "/tmp/ray"),
]
BAD = [
    (check_python((3, 10, 9), "/usr"), "error", "Python 3.10.9 in /usr"),
    (check_python((3, 14, 0), "/usr"), "error", "3.14.0"),
    (check_platform("Darwin", "arm64", "little"), "warning", "Darwin on arm64: not tested"),
    (check_platform("Linux", "s390x", "big"), "error", "s390x"),
    (*check_packages(None, {}), "warning", "unknown, because rocketray is not installed"),
    (*check_packages(["ray>=2.60,<3"], {"ray": "2.9"}), "error", "ray is version 2.9, and <3,>="),
    (*check_packages(["ray>=2.60"], {"ray": None}), "error", "ray is not installed"),
    (check_java("Spark needs Java 17:\n  none"), "warning", "Spark needs Java 17: none; without"),
    (
        check_directory("/d", exists=False, is_own=True, is_writable=False, open_bits=0),
        *("error", "/d cannot be created"),
    ),
    (
        check_directory("/d", exists=True, is_own=False, is_writable=True, open_bits=0),
        *("error", "/d belongs to another user"),
    ),
    (
        check_directory("/d", exists=True, is_own=True, is_writable=False, open_bits=0),
        *("error", "/d cannot be written"),
    ),
    (
        check_directory("/d", exists=True, is_own=True, is_writable=True, open_bits=0o070),
        *("warning", "other users can write to /d"),
    ),
    (check_disk(DiskUse(0, 0), "/d"), "error", "0 B free: sends are refused"),
    (check_disk(DiskUse(92 * GIB // 10, GIB // 2), "/d"), "error", "95 % used, 512.0 MiB free"),
    (check_disk(DiskUse(80 * GIB // 10, 2 * GIB), "/d"), "warning", "80 % used, 2.0 GiB free"),
    (check_file_system(None, "/d"), "warning", "unknown"),
    (check_file_system("tmpfs", "/d"), "warning", "lost with the machine"),
    (check_file_system("overlay", "/d"), "warning", "lost with the container"),
    (check_file_system("nfs4", "/d"), "warning", "not tested"),
    (check_file_system("fuse.sshfs", "/d"), "warning", "not tested"),
    (check_shared_memory(None, 0, is_writable=False), "error", "there is no /dev/shm"),
    (check_shared_memory(GIB, GIB, is_writable=False), "error", "cannot be written"),
    (check_shared_memory(64 << 20, 60 << 20, is_writable=True), "error", "60.0 MiB are free"),
    (check_shared_memory(200 << 20, 200 << 20, is_writable=True), "warning", "little for rings"),
    (check_clock(NOW_MS, NOW_MS + 90_000, None), "warning", "90 s in the future"),
    (check_clock(NOW_MS, None, NOW_MS - 90_000), "warning", "the node's clock differs by 90 s"),
    (*check_limits(256, None), "error", "256 files"),
    (*check_limits(2048, None), "warning", "2048 files"),
    (*check_limits(None, 1000), "warning", "1000 memory maps"),
    (check_ray_access("disabled", None, None), "error", "the node's Ray: it asks for no token"),
    (check_ray_access(None, "disabled", None), "warning", "RAY_AUTH_MODE=disabled"),
    (check_ray_access("token", None, "/r/token"), "warning", "other users can read /r/token"),
    (check_niceness({"filter": 15, "gateway": 0}), "warning", "other programs: filter 15"),
    (check_port("metrics", 80, "Permission denied"), "error", "port 80 cannot be had: Permission"),
    (*check_stale(["/dev/shm/a"], {}), "warning", "left shared memory: /dev/shm/a"),
    (*check_stale([], {"/d": 4711}), "warning", "of process 4711"),
    (check_sessions(30, 3 * GIB, "/r"), "warning", "30 sessions of Ray in /r have 3.0 GiB"),
]


@pytest.mark.parametrize("found", WELL, ids=lambda found: f"{found.check}: {found.text}")
def test_what_is_well_is_ok_and_needs_nothing(found: Finding) -> None:
    assert (found.level, found.advice) == ("ok", "")


@pytest.mark.parametrize(("found", "level", "says"), BAD, ids=lambda each: str(each)[:60])
def test_what_is_not_well_says_so_and_what_to_do(found: Finding, level: str, says: str) -> None:
    assert found.level == level
    assert says in found.text
    assert found.advice or found.check == "file system"


def test_limits_that_are_enough_say_for_how_many_queues() -> None:
    [found] = check_limits(20_000, 65_530)
    assert found.text == "20000 open files, 65530 memory maps: enough for 9,950 queues in a process"
    [found] = check_limits(None, 65_530)
    assert "any number of open files" in found.text
    assert "12,906 queues" in found.text
    [found] = check_limits(None, None)
    assert found.text == "any number of open files, unknown memory maps"


def test_several_limits_are_several_findings() -> None:
    assert [found.level for found in check_limits(256, 1000)] == ["error", "warning"]
    assert len([*check_stale(["/dev/shm/a"], {"/d": 7})]) == 2


def test_a_requirement_that_no_version_fulfils_names_the_command() -> None:
    [found] = check_packages(["ray>=2.60,<3"], {"ray": "3.1"})
    assert found.advice == "pip install 'ray<3,>=2.60'"

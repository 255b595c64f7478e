"""``rocketray doctor`` on this machine, and on broken data directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.harness.command_server import run_here

from rocketray.cli.doctor import health_facts
from rocketray.cli.doctor.health_checks import Finding
from rocketray.runtime.files import paths
from rocketray.runtime.files.paths import node_file, runtime_directory

CHECKS = {
    *(
        "python",
        "platform",
        "packages",
        "java",
        "directory",
        "disk",
        "file system",
        "shared memory",
        "clock",
    ),
    *("limits", "ray's access", "niceness", "stale files", "ray's files", "node", "settings"),
}
ENDED = 2**31 - 1


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM takes long to say its version."""
    monkeypatch.setattr(health_facts, "_java", lambda _: (21, "/jdk"))


def test_every_check_has_a_line_and_nothing_is_changed(tmp_path: Path) -> None:
    done = run_here("doctor", "--data", tmp_path / "data", "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert {each["check"] for each in found} == CHECKS
    assert {each["level"] for each in found} <= {"ok", "warning", "error"}
    assert done.code == int(any(each["level"] == "error" for each in found))
    assert not (tmp_path / "data").exists()


def test_a_node_that_ended_without_stopping_is_named(tmp_path: Path) -> None:
    node_file(tmp_path).write_text(json.dumps({"pid": ENDED, "version": 1}))
    done = run_here("doctor", "--data", tmp_path)
    assert f"node.json is of process {ENDED}, which has ended without stopping" in done.out
    assert (
        f"→ what it had acknowledged is kept; start it again: rocketray start --data {tmp_path}"
        in (done.out)
    )


def test_a_damaged_node_json_is_an_error(tmp_path: Path) -> None:
    node_file(tmp_path).write_text("{")
    done = run_here("doctor", "--data", tmp_path)
    assert done.code == 1
    assert "error    node           " in done.out


def test_shared_memory_that_a_node_left_is_found_and_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a directory of its own: a node that starts removes what others have left in the real one.
    shared = tmp_path / "shm"
    shared.mkdir()
    monkeypatch.setattr(paths, "_SHARED_MEMORY", shared)
    left = runtime_directory(tmp_path / "gone")
    assert left.parent == shared
    left.mkdir(mode=0o700)
    (left / "lock").touch()
    assert str(left) in run_here("doctor", "--data", tmp_path).out
    assert left.is_dir()


def test_a_check_that_fails_itself_is_unknown_and_the_others_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Finding:
        raise OSError("no such device")

    monkeypatch.setattr(health_facts, "_shared_memory", fail)
    done = run_here("doctor", "--data", tmp_path)
    assert "warning  shared memory  unknown, because no such device" in done.out
    assert "  stale files" in done.out


def test_a_port_that_another_has_is_an_error() -> None:
    import socket  # noqa: PLC0415 - of this test alone

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert "in use" in str(health_facts._taken(port))
        assert health_facts._port("metrics", port, lives=True).level == "ok"
    assert health_facts._taken(port) is None


def test_the_file_system_is_that_of_the_nearest_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "a / ext4 rw 0 0\nb /data nfs4 rw 0 0\nc /data/my\\040disk xfs rw 0 0\nshort\n"
    )
    monkeypatch.setattr(health_facts, "_MOUNTS", mounts)
    kinds = {"/srv": "ext4", "/data": "nfs4", "/data/a": "nfs4", "/data/my disk/x": "xfs"}
    assert {path: health_facts._file_system(Path(path)) for path in kinds} == kinds


def test_a_directory_that_is_not_there_has_the_disk_of_its_parent(tmp_path: Path) -> None:
    assert health_facts._existing(tmp_path / "a" / "b") == tmp_path.resolve()

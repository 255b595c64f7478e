"""Shared memory of nodes that died goes with the next start of any node, and no other."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.harness.machine import needs
from support.nodes.local_node import LocalNode

from rocketray.errors import StoreError
from rocketray.runtime.files import paths, runtime_lock
from rocketray.runtime.files.paths import runtime_directory, runtime_link
from rocketray.runtime.files.runtime_lock import (
    RuntimeLock,
    RuntimeMark,
    remove_abandoned,
    remove_runtime,
)

HOLD_UNTIL_KILLED = """
import sys
from pathlib import Path
from rocketray.runtime.files import paths
from rocketray.runtime.files.runtime_lock import RuntimeLock
paths._SHARED_MEMORY = Path(sys.argv[2])
lock = RuntimeLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shared memory of these tests' own: others run nodes beside them."""
    path = tmp_path / "memory"
    path.mkdir()
    monkeypatch.setattr(paths, "_SHARED_MEMORY", path)
    return path


def names(memory: Path) -> set[str]:
    return {path.name for path in memory.iterdir()}


def test_what_a_node_left_that_was_killed_is_removed_and_a_living_one_stays(
    tmp_path: Path, memory: Path
) -> None:
    living, dead = RuntimeLock(tmp_path / "living"), RuntimeLock(tmp_path / "dead")
    (runtime_directory(tmp_path / "dead") / "filter-doorbell").write_bytes(b"x")
    assert remove_abandoned() == []
    dead.close()
    assert remove_abandoned() == [runtime_directory(tmp_path / "dead")]
    assert names(memory) == {runtime_directory(tmp_path / "living").name}
    living.close()


def test_the_kernel_frees_the_lock_of_a_killed_process(tmp_path: Path, memory: Path) -> None:
    data = tmp_path / "data"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_UNTIL_KILLED, str(data), str(memory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert remove_abandoned() == []
        process.kill()
        process.wait()
    assert remove_abandoned() == [runtime_directory(data)]
    assert names(memory) == set()


def test_a_second_share_keeps_the_directory_when_the_first_is_gone(tmp_path: Path) -> None:
    node, its_filter = RuntimeLock(tmp_path / "d"), RuntimeLock(tmp_path / "d")
    node.close()
    assert remove_abandoned() == []
    its_filter.close()
    assert len(remove_abandoned()) == 1


def test_a_node_holds_its_own_as_long_as_it_runs(tmp_path: Path) -> None:
    with LocalNode(tmp_path / "d") as node:
        node.topics.ensure("T", 1)
        assert remove_abandoned() == []
        with node.producer() as producer:
            producer.send("T", b"still here")
    assert not runtime_directory(tmp_path / "d").exists()


def test_only_directories_with_our_name_and_a_lock_are_removed(
    tmp_path: Path, memory: Path
) -> None:
    ours = f"rocketray-{os.getuid()}-{'0' * 16}"
    others = {f"rocketray-{os.getuid() + 1}-{'0' * 16}", f"{ours}0", "rocketray", ours}
    for name in others:
        (memory / name).mkdir()
        if name != ours:
            (memory / name / "lock").touch()
    target = tmp_path / "target"
    target.mkdir()
    (target / "lock").touch()
    (memory / f"rocketray-{os.getuid()}-{'1' * 16}").symlink_to(target)
    assert remove_abandoned() == []
    assert others < names(memory)
    assert target.exists()


def test_what_was_half_removed_goes_too(tmp_path: Path, memory: Path) -> None:
    half = memory / f"{runtime_directory(tmp_path).name}.{'a' * 32}.removed"
    half.mkdir()
    (half / "ring").touch()
    assert remove_abandoned() == [half]
    assert names(memory) == set()


def test_a_start_removes_what_was_there_and_waits_for_one_who_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "d"
    RuntimeLock(data).close()
    (runtime_directory(data) / "ring").touch()
    remove_runtime(data)
    assert not runtime_directory(data).exists()
    remove_runtime(data)

    RuntimeLock(data).close()
    really_remove = runtime_lock._remove
    outcomes: list[str] = []

    def remove_while_another_starts(directory: Path) -> None:
        monkeypatch.setattr(runtime_lock, "_remove", really_remove)
        with pytest.raises(TimeoutError, match="stays locked"):
            remove_runtime(data)
        outcomes.append("the start waited")
        really_remove(directory)

    monkeypatch.setattr(runtime_lock, "_TRIES", 3)
    monkeypatch.setattr(runtime_lock, "_remove", remove_while_another_starts)
    assert remove_abandoned() == [runtime_directory(data)]
    assert outcomes == ["the start waited"]
    lock = RuntimeLock(data)
    assert remove_abandoned() == []
    lock.close()


def squat(directory: Path, *, mode: int = 0o777) -> None:
    """Let another user have made RUNTIME, or this one in a way that others can enter it."""
    directory.mkdir()
    directory.chmod(mode)
    if os.getuid() == 0:
        os.chown(directory, 65534, 65534)


def test_a_directory_that_another_user_put_there_is_left_alone_and_not_used(
    tmp_path: Path, memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "d"
    usual = runtime_directory(data)
    squat(usual)
    (usual / "lock").touch()
    with LocalNode(data) as node:
        used = runtime_directory(data)
        assert used.parent == memory
        assert used.name.startswith(f"{usual.name}-")
        assert (stat.S_IMODE(used.stat().st_mode), used.stat().st_uid) == (0o700, os.getuid())
        node.topics.ensure("T", 1)
        with node.producer() as producer:
            assert producer.send("T", b"x").queue_offset == 0
        assert [path.name for path in usual.iterdir()] == ["lock"]
        assert "is not used" in caplog.text
    assert names(memory) == {usual.name}
    assert not runtime_link(data).is_symlink()
    assert runtime_directory(data) == usual


@needs("root")
def test_what_another_user_made_keeps_no_start_waiting(tmp_path: Path, memory: Path) -> None:
    data = tmp_path / "d"
    usual = runtime_directory(data)
    squat(usual, mode=0o755)
    os.mkfifo(usual / "lock")
    remove_runtime(data)
    assert remove_abandoned() == []
    assert names(memory) == {usual.name}


def test_a_dead_node_under_another_name_is_removed_by_its_next_start_and_by_others(
    tmp_path: Path, memory: Path
) -> None:
    data = tmp_path / "d"
    usual = runtime_directory(data)
    squat(usual)
    data.mkdir()
    RuntimeLock(data).close()
    left = runtime_directory(data)
    assert remove_abandoned() == ([left] if os.getuid() == 0 else [])
    RuntimeLock(data).close()
    assert len(names(memory) - {usual.name}) == 1
    remove_runtime(data)
    if os.getuid() == 0:
        assert names(memory) == {usual.name}


def test_a_link_that_came_with_a_copy_leads_nowhere(tmp_path: Path) -> None:
    data, copy = tmp_path / "d", tmp_path / "copy"
    squat(runtime_directory(data))
    data.mkdir()
    lock = RuntimeLock(data)
    copy.mkdir()
    runtime_link(copy).symlink_to(runtime_link(data).readlink())
    assert runtime_directory(copy) != runtime_directory(data)
    remove_runtime(copy)
    assert runtime_directory(data).exists()
    assert not runtime_link(copy).is_symlink()
    lock.close()


def test_without_shared_memory_what_others_can_enter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "_SHARED_MEMORY", tmp_path / "none")
    data = tmp_path / "d"
    data.mkdir()
    squat(data / "run")
    with pytest.raises(StoreError, match="remove it, and start the node again"):
        RuntimeLock(data)


def test_a_process_notices_that_a_node_created_the_memory_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = RuntimeMark(data)
    assert not before.is_left_behind()
    first = RuntimeLock(data)
    assert before.is_left_behind()
    mark = RuntimeMark(data)
    first.close()
    remove_runtime(data)
    assert not mark.is_left_behind()  # there is no node to go to
    second = RuntimeLock(data)
    assert mark.is_left_behind()
    assert not RuntimeMark(data).is_left_behind()
    second.close()

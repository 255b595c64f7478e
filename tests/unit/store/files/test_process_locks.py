"""A fork holds no lock of its parent's: it may live longer."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.harness.forking import begin_in_fork

from rocketray.runtime.files.node_lock import lock_node, node_holder
from rocketray.store.files.file_system import FileLock
from rocketray.store.files.lock import StoreLock, is_open
from rocketray.store.files.process_locks import held_here


def of_store(directory: Path) -> Callable[[], None]:
    lock = StoreLock(directory)
    return lambda: lock.release(clean=True)


def of_node(directory: Path) -> Callable[[], None]:
    descriptor = lock_node(directory)
    return lambda: os.close(descriptor)


def of_file(directory: Path) -> Callable[[], None]:
    return FileLock(directory / "one", b"").release


@pytest.mark.proves("durability", "A fork holds no lock of its parent")
@pytest.mark.parametrize("take", [of_store, of_node, of_file])
def test_a_lock_ends_with_the_process_that_took_it(
    take: Callable[[Path], Callable[[], None]], tmp_path: Path
) -> None:
    release = take(tmp_path)
    reads, writes = os.pipe()
    hears, says = os.pipe()

    def live_on() -> int:
        os.close(writes)
        os.write(says, b"!")
        return len(os.read(reads, 1))  # until the parent has closed the pipe

    outcome = begin_in_fork(live_on)
    assert os.read(hears, 1) == b"!"
    if take is of_store:
        assert is_open(tmp_path), "the parent's lock stays"
    if take is of_node:
        assert node_holder(tmp_path) is not None
    release()
    take(tmp_path)()  # though the fork lives
    os.close(writes)
    assert outcome() == 0
    for end in (reads, hears, says):
        os.close(end)


def test_a_number_that_is_another_files_by_now_is_left_alone(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    os.write(other, b"content")
    held_here(lock)
    os.dup2(other, lock)
    assert begin_in_fork(lambda: os.pread(lock, 7, 0))() == b"content"
    os.close(lock)
    os.close(other)

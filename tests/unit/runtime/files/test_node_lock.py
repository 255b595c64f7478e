"""The lock of a data directory is had by the node that runs there, whoever asks for it meanwhile."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from rocketray.errors import StoreLockedError
from rocketray.runtime.files.node_lock import lock_file, lock_node, node_holder


def test_a_node_that_starts_while_others_ask_whether_one_runs_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.close(lock_node(tmp_path))
    asking = os.open(lock_file(tmp_path), os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)  # as ``node_holder`` does, in the moment of the start
    pauses = []

    def end_of_question(seconds: float) -> None:
        pauses.append(seconds)
        os.close(asking)

    monkeypatch.setattr("rocketray.runtime.files.node_lock.time.sleep", end_of_question)
    lock = lock_node(tmp_path)
    assert len(pauses) == 1
    assert node_holder(tmp_path) == f"pid {os.getpid()}"
    os.close(lock)


def test_a_second_node_is_refused_and_told_which_process_has_the_first(tmp_path: Path) -> None:
    lock = lock_node(tmp_path)
    with pytest.raises(StoreLockedError, match=f"pid {os.getpid()}"):
        lock_node(tmp_path)
    os.close(lock)
    assert node_holder(tmp_path) is None

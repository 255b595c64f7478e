"""What is told while a command waits, and that nothing is told of what is quick."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.harness.patience import patience, wait_until

from rocketray.actors.client.connection import Connection
from rocketray.cli.arguments import node
from rocketray.cli.terminal import waiting
from rocketray.errors import NodeNotRunningError
from rocketray.runtime.machine import here


def test_a_long_wait_is_told_again_and_again(capsys: pytest.CaptureFixture[str]) -> None:
    told = ""

    def is_told_thrice() -> bool:
        nonlocal told
        told += capsys.readouterr().err
        return told.count("\n") >= 3

    with waiting.waiting("starting", 0.05):
        wait_until(is_told_thrice)
    told += capsys.readouterr().err
    lines = told.splitlines()
    assert len(lines) >= 3
    assert all(re.fullmatch(r"still starting, for \d+ s now", line) for line in lines)
    with waiting.waiting("starting", 3600.0):
        pass
    assert capsys.readouterr().err == "", "what is quick is not told, and the last one has ended"


def test_a_command_that_cannot_reach_its_node_soon_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def open_slowly(_data: Path) -> Connection:
        time.sleep(1.0)
        raise NodeNotRunningError("none")

    monkeypatch.setattr(Connection, "to", open_slowly)
    monkeypatch.setattr(node, "waiting", lambda what: waiting.waiting(what, 0.1))
    with pytest.raises(NodeNotRunningError):
        node.connect(tmp_path)
    assert capsys.readouterr().err.startswith(
        f"still connecting to the node on {tmp_path}, for 0 s"
    )


def test_a_command_ends_with_its_node_and_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Where Ray never answers, as ``rocketray up`` in the foreground asks it."""
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    connection: Any = SimpleNamespace(node={**here(), "pid": ended.pid}, data=tmp_path)
    codes: list[int] = []
    watching = threading.Thread(target=node.end_with_node, args=(connection, codes.append, 0.1))
    watching.start()
    watching.join(1.5)
    assert watching.is_alive()
    assert codes == []
    ended.communicate()
    watching.join(patience(10))
    assert codes == [1]
    assert capsys.readouterr().err == (
        f"rocketray: the node on {tmp_path} has ended; start it again with: rocketray start "
        f"--data {tmp_path}\n"
    )

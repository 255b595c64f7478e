"""The processes of a node are those below the one that node.json names."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from rocketray.console.facts.process_table import processes_of
from rocketray.errors import ActorError


def test_processes_below_the_node_are_listed_with_their_memory(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text(json.dumps({"pid": os.getpid()}))
    child = subprocess.Popen(["sleep", "60"])
    try:
        found = {each["pid"]: each for each in processes_of(tmp_path)}
    finally:
        child.kill()
        child.wait()
    assert found[child.pid]["name"] == "sleep"
    assert found[os.getpid()]["memory"] > found[child.pid]["memory"] > 0
    assert found[os.getpid()]["mapped"] > 0
    assert os.getppid() not in found


def test_odd_names_and_processes_that_ended_are_no_failure(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text('{"pid": 7}')
    for pid, name, parent, command in (
        (7, "a) b (c", 1, b"/usr/bin/python3.11\0-P\0-m\0rocketray\0start\0"),
        (8, "raylet", 7, b"ray::ShardProcessActor  \0\0\0"),
        (9, "other", 1, b"other\0"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} 0 0")
        (tmp_path / str(pid) / "cmdline").write_bytes(command)
        (tmp_path / str(pid) / "statm").write_text(f"10 {pid} 3")
    (tmp_path / "10").mkdir()
    names = [(each["pid"], each["name"]) for each in processes_of(tmp_path, tmp_path)]
    assert names == [(8, "ray::ShardProcessActor"), (7, "rocketray start")]


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"pid": "x"}'])
def test_without_a_process_it_is_unknown(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "node.json").write_text(text)
    with pytest.raises(ActorError, match=r"node\.json does not say which process it is"):
        processes_of(tmp_path)

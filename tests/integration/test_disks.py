"""Real disks that take nothing: one that is mounted to be read only, and one without room."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import COMMAND
from support.own_mounts import with_mounts

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
SMALL_DISK = Path(__file__).parent.parent / "support" / "small_disk.py"


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


def test_a_node_on_a_disk_that_is_read_only_names_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(0o700)
    mount = 'mount --bind -o ro "$1" "$1"'
    read_only = with_mounts("a disk that is read only", mount, data)
    done = run([*read_only, COMMAND, "start", "--data", str(data)])
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()[1:]
    assert said.startswith(f"rocketray: no node can run on {data}: Read-only file system: {data}/")
    assert said.endswith("; name a directory that this user can write to with --data")


def test_a_full_disk_is_named_in_one_line_and_the_node_ends_all_the_same(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=1m,mode=700 none "$1"'
    small = with_mounts("a full disk", mount, tmp_path)
    done = run([*small, sys.executable, str(SMALL_DISK), str(tmp_path)])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    full = f"StoreError: {tmp_path}: No space left on device; see: df {tmp_path}"
    sent = found["said"].pop("send")
    assert sent.startswith("StoreFullError: shard Trade/0: the disk of ")
    assert f"see: df {tmp_path}" in sent
    stopped = found["said"].pop("stop")  # the coordinator cannot save, and stops its shards then
    assert stopped.startswith(f"StoreError: {tmp_path}/shards/Trade/0: flushing failed: ")
    assert len(stopped.splitlines()) == 1
    assert found["said"] == dict.fromkeys(("start", "create"), full)
    assert found["topics"] == ["Trade"]

"""``rocketray backup`` and ``restore`` as commands: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.harness.command_server import run_here
from support.nodes.local_node import LocalNode

from rocketray.broker.backups.manifest import manifest_file
from rocketray.runtime.files.home import identity_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    with LocalNode(data) as node, node.producer() as producer:
        node.topics.ensure("Trade", 2)
        for number in range(6):
            producer.send("Trade", b"%d" % number, queue_id=number % 2)
    identity_of(data)
    return data


def test_a_backup_and_its_restoration_say_what_they_did(data: Path, tmp_path: Path) -> None:
    done = run_here("backup", tmp_path / "monday", "--data", data)
    assert done.code == 0, done.err
    assert done.out.startswith(f"{tmp_path / 'monday'}: 2 queues, ")
    assert "% of" in done.err
    copied = tmp_path / "copy"
    done = run_here("restore", tmp_path / "monday", "--data", copied)
    assert done.code == 0, done.err
    assert done.out.startswith(f"{copied}: 2 queues, ")
    assert done.out.endswith(f"; start it with: rocketray start --data {copied}\n")


def test_programs_get_numbers(data: Path, tmp_path: Path) -> None:
    backup, copied = tmp_path / "monday", tmp_path / "copy"
    [made] = run_here("backup", backup, "--data", data, "--json").lines()
    manifest = json.loads(manifest_file(backup).read_text())
    assert made["backup"] == str(backup)
    assert made["disk"] == manifest["disk"] == identity_of(data)
    assert made["queues"] == manifest["queues"] == {"Trade/0": 3, "Trade/1": 3}
    assert made["files"] == len(manifest["files"])
    assert made["bytes"] == sum(used for _, _, used, _ in manifest["files"])
    [restored] = run_here("restore", backup, "--data", copied, "--json").lines()
    assert restored["data"] == str(copied)
    assert restored["backupOf"] == made["disk"] != restored["disk"] == identity_of(copied)
    assert restored["queues"] == made["queues"]


def test_what_fails_is_said_in_one_line(data: Path, tmp_path: Path) -> None:
    done = run_here("backup", data / "inside", "--data", data)
    assert (done.code, done.out) == (1, "")
    last = done.err.splitlines()[-1]
    assert last.startswith(f"rocketray: {data / 'inside'} is in the data directory")
    done = run_here("restore", data, "--data", tmp_path / "copy")
    assert done.code == 1
    assert done.err.splitlines()[-1] == (
        f"rocketray: {data} is no backup: it has no manifest.json; name the directory of a complete "
        "backup"
    )
    assert run_here("restore", tmp_path / "missing").code == 2

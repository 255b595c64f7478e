"""The main job on a slice of the data: its own comparison, and going on after SIGKILL."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from support.harness.commands import COMMAND, rocketray

from rocketray.queries.spark.file_sink_log import committed_files

pytestmark = [pytest.mark.integration, pytest.mark.timeout(420)]
ROWS = 20_000
LATE = {"destinations": 6179, "late_from_jfk": 320, "red_eyes": 396}  # counted with the csv module


def check(report: dict[str, Any], directory: Path) -> None:
    assert report["ok"] is True
    assert (report["rows"], report["produced"]) == (ROWS, ROWS)
    consumers = {one["name"]: one for one in report["consumers"]}
    assert {name: one["matched"] for name, one in consumers.items()} == LATE
    assert {name: one["expected"] for name, one in consumers.items()} == LATE
    assert Path(report["spark"]["path"]).is_relative_to(directory)
    assert report["spark"]["rows"] == report["spark"]["expected"] == LATE["late_from_jfk"]
    assert {query["by"] for query in report["queries"]} == {"id", "key", "time"}
    assert all(query["found"] > 0 and query["ms"] > 0 for query in report["queries"])


@pytest.mark.slow
def test_a_slice_of_the_data_agrees_with_brute_force(tmp_path: Path) -> None:
    done = rocketray("demo", "--json", "--limit", str(ROWS), timeout_s=400, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    [directory] = (tmp_path / "runs").iterdir()
    check(report, directory)
    assert report["produce_per_s"] > 0
    assert report["consume_per_s"] > 0
    # Files of a micro-batch that was interrupted and done again are not committed.
    files = committed_files(report["spark"]["path"])
    rows = pyarrow.dataset.dataset(list(map(str, files))).to_table()
    assert rows.num_rows == LATE["late_from_jfk"]
    assert set(rows["origin"].to_pylist()) == {"JFK"}
    assert min(rows["dep_delay"].to_pylist()) > 60
    assert "Traceback" not in done.stderr
    assert not (directory / "node.json").exists(), "the node was stopped"


@pytest.mark.proves("durability", "The death of the node's process and its Ray loses no message")
@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    command = [COMMAND, "demo", "--limit", str(ROWS)]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tmp_path)
    assert first.stderr
    for line in first.stderr:
        if b"sent 16,384" in line:
            break
    first.kill()
    first.communicate()
    [directory] = (tmp_path / "runs").iterdir()
    done = rocketray("demo", "--json", "--resume", directory, timeout_s=400, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout.splitlines()[-1]), directory)

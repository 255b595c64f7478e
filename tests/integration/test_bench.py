"""Every benchmark runs, and its rows stand beside a ceiling; the figures are not looked at.

``make test`` runs one; tests/unit/rocketray_bench/test_send.py has what another one sends.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience
from support.harness.source_tree import ROOT
from support.nodes.another_ray import runs

from rocketray_bench.command import BENCHMARKS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOO_LITTLE = {"% of a core", "cores", "MiB", "ns/entry", "ns/message"}
"""Units of which a quick run may use none: memory comes in pages, processor time in ticks."""


FOR_USERS = [pytest.param(name, marks=pytest.mark.slow) for name in BENCHMARKS]
FOR_DEVELOPERS = [
    pytest.param(path.stem, marks=() if path.stem == "scan" else pytest.mark.slow)
    for path in sorted((ROOT / "benchmarks" / "questions").glob("[!_]*.py"))
]


def measured(command: list[str], directory: Path) -> str:
    """What a benchmark prints in a process of its own, as people run it."""
    done = subprocess.run(
        [sys.executable, *command, "--quick"],
        capture_output=True,
        text=True,
        timeout=patience(220),
        cwd=directory,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_rows(rows: list[dict[str, Any]]) -> None:
    assert rows
    for row in rows:
        assert set(row) == {"question", "value", "unit", "ceiling"}
        assert row["value"] > 0 or row["unit"] in TOO_LITTLE


@pytest.mark.parametrize("name", FOR_USERS)
def test_a_benchmark_of_the_command_ends_with_its_rows(name: str, tmp_path: Path) -> None:
    printed = measured(["-m", "rocketray", "bench", name, "--json"], tmp_path)
    check_rows(json.loads(printed.splitlines()[-1])["rows"])


@pytest.mark.parametrize("name", FOR_DEVELOPERS)
def test_a_benchmark_of_the_source_tree_writes_its_rows(name: str, tmp_path: Path) -> None:
    printed = measured([str(ROOT / "benchmarks" / "run.py"), name], tmp_path)
    rows = json.loads((tmp_path / "benchmark-results.json").read_text())["rows"]
    check_rows(rows)
    assert len(printed.splitlines()) == len(rows)


@pytest.mark.slow
def test_peers_that_are_not_there_are_skipped_with_the_reason(tmp_path: Path) -> None:
    """The rows of rocketray alone: its programs write and read all that they are asked for."""
    nowhere = str(tmp_path / "nowhere")
    printed = measured([str(ROOT / "benchmarks" / "python_peers.py"), "--peers", nowhere], tmp_path)
    rows = [line for line in printed.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 13
    assert all("skipped: there is no " in row and " k/s, " in row for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_several_machines_are_measured_and_no_process_stays(
    is_interrupted: bool, tmp_path: Path
) -> None:
    mark, output = f"ROCKETRAY_TEST_MARK={secrets.token_hex(8)}", tmp_path / "figures.json"
    options = ["--quick", "--machines", "2", "--queues", "2", "--output", str(output)]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "benchmarks" / "machines.py"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ) | dict([mark.split("=")]),
        text=True,
    )
    assert process.stdout
    first = process.stdout.readline()
    if is_interrupted and first:
        assert any("raylet" in command for command in marked(mark.encode()))
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=patience(200))
    if "NOT TESTED" in errors:
        pytest.skip(errors)
    assert marked(mark.encode()) == []
    assert first.startswith("2 machines, 2 queues, 1 elsewhere: `send_async` "), errors
    assert process.returncode == int(is_interrupted), errors
    assert output.exists() != is_interrupted
    if not is_interrupted:
        figures = {each["cell"]["way"]: each for each in json.loads(output.read_text())}
        assert set(figures) == {"send_async", "send_many", "records", "arrow"}
        assert all(each["rate"] > 0 and sum(each["used_us"].values()) for each in figures.values())
        assert figures["arrow"]["used_us"]["gateways"] > 0


def marked(mark: bytes) -> list[str]:
    """Those that live and have the mark in their environment."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (each / "environ").read_bytes() and runs(int(each.name)):
                found.append((each / "cmdline").read_text())
    return found

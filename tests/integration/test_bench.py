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

import pytest
from support.harness.patience import patience
from support.harness.source_tree import ROOT
from support.nodes.another_ray import runs

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOO_LITTLE = {"% of a core", "cores", "MiB", "ns/entry", "ns/message"}
"""Units of which a quick run may use none: memory comes in pages, processor time in ticks."""


@pytest.mark.parametrize(
    "name",
    ["scan"]
    + [
        pytest.param(name, marks=pytest.mark.slow)
        for name in (
            "send",
            "acks",
            "crc",
            "bitmaps",
            "idle",
            "latency",
            "consume",
            "remote",
            "staging",
            "groups",
            "reading_again",
            "telemetry",
            "console",
        )
    ],
)
def test_a_benchmark_ends_with_its_rows(name: str, tmp_path: Path) -> None:
    """In a process of its own, as people run it."""
    command = [sys.executable, "-m", "rocketray", "bench", name, "--quick", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patience(220), cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert rows
    for row in rows:
        assert set(row) == {"question", "value", "unit", "ceiling"}
        assert row["value"] > 0 or row["unit"] in TOO_LITTLE


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

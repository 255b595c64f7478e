"""Every benchmark runs, and its rows stand beside a ceiling; the figures are not looked at.

``make test`` runs one; tests/unit/rocketray_bench/test_send.py has what another one sends.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOO_LITTLE = {"% of a core", "MiB", "ns/entry", "ns/message"}
"""Units of which a quick run may use none: memory comes in pages, processor time in ticks."""


@pytest.mark.parametrize(
    "name",
    ["scan"]
    + [
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("send", "bitmaps", "idle", "latency", "consume", "remote", "groups")
    ],
)
def test_a_benchmark_ends_with_its_rows(name: str, tmp_path: Path) -> None:
    """In a process of its own, as people run it."""
    command = [sys.executable, "-m", "rocketray", "bench", name, "--quick", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=220, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert rows
    for row in rows:
        assert set(row) == {"question", "value", "unit", "ceiling"}
        assert row["value"] > 0 or row["unit"] in TOO_LITTLE

"""Spark copies a topic while its driver, its workers, gateways and shards are killed at random."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STRIKES = int(os.environ.get("ROCKETRAY_TEST_SPARK_STRIKES", "12"))
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300 + 60 * STRIKES)]


def copy(directory: Path, seed: int, *words: object) -> dict[str, Any]:
    """Let it all happen in a process of its own, with a node and a Spark of its own."""
    command = [sys.executable, "-m", "support.spark_kills", str(directory), str(seed)]
    done = subprocess.run(
        [*command, *map(str, words)], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, f"seed {seed}"
    sys.stdout.write(f"seed {seed}: {done.stdout}\n")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_each_row_is_in_the_topic_once_whatever_is_killed(tmp_path: Path, seed: int) -> None:
    found = copy(tmp_path, seed, STRIKES, "exactly_once")
    assert (found["missing"], found["strangers"], found["repeated"]) == (0, 0, 0)
    assert sum(found["strikes"].values()) == STRIKES


def test_without_decisions_the_same_kills_repeat_rows(tmp_path: Path, seed: int) -> None:
    found = copy(tmp_path, seed, STRIKES, "at_least_once", "driver", "worker")
    assert (found["missing"], found["strangers"]) == (0, 0)
    assert found["repeated"] > 0, "what the decisions prevent has to happen without them"

"""Histories of real processes that are killed, stopped and starved while messages flow.

Five groups read one topic: with a tag, with SQL92 and with all messages; three have members that are
processes, and two are the agents of an app, of which one keeps order; both agents fail at times. A
producer sends for memory, for disk and in transactions. What each process was told and got is
judged as a whole (tests/support/models/history.py): nothing acknowledged is lost, no filter is wrong,
order is kept where it is promised, each queue has one owner, and what comes twice is what a process
that died had not committed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from support.harness.machine import require
from support.nodes.nemesis import DISKS, KILLS, PAUSES
from support.nodes.own_mounts import with_mounts

MESSAGES = int(os.environ.get("ROCKETRAY_TEST_HISTORY_MESSAGES", "10000"))
ROUNDS = int(os.environ.get("ROCKETRAY_TEST_HISTORY_ROUNDS", "1"))
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900 + MESSAGES // 40),
    pytest.mark.proves(
        "durability",
        "The death of a consumer, the filter actor or the coordinator loses no message",
    ),
    pytest.mark.proves(
        "durability",
        "The same while processes are stopped longer than their leases, the wall clock is "
        "set, the disk is slow, and memory or the disk is full",
    ),
]
SMALL = 'mount -t tmpfs -o size=200m tmpfs /dev/shm; mount -t tmpfs -o size=400m tmpfs "$1"'
rounds = pytest.mark.parametrize("number", range(ROUNDS))


def judge(directory: Path, rng: Random, strikes: Sequence[str], before: Sequence[str] = ()) -> None:
    """Let it all happen, and print what was found."""
    seed = rng.randrange(2**32)
    words = [directory, MESSAGES, seed, *strikes]
    done = subprocess.run(
        [*before, sys.executable, "-m", "support.programs.history_run", *map(str, words)],
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}, strikes {strikes}"
    found = json.loads(done.stdout)
    sys.stdout.write(f"seed {seed}, strikes {strikes}: {found['stored']} stored\n")
    for group, verdict in found["groups"].items():
        sys.stdout.write(f"  {group}: {verdict}\n")
    assert found["violations"] == [], "\n".join(found["chronicle"])


@pytest.mark.slow
def test_a_history_with_kills_keeps_all_promises(tmp_path: Path, rng: Random) -> None:
    judge(tmp_path, rng, rng.sample(KILLS, 4))


@pytest.mark.slow
@rounds
def test_a_long_history_of_kills_keeps_all_promises(tmp_path: Path, seed: int, number: int) -> None:
    rng = Random(seed + number)
    judge(tmp_path, rng, [*rng.sample(KILLS, len(KILLS)), "node", *rng.choices(KILLS, k=3)])


@pytest.mark.slow
@rounds
def test_a_history_of_pauses_and_a_set_clock_keeps_all_promises(
    tmp_path: Path, seed: int, number: int
) -> None:
    rng = Random(seed + number)
    judge(tmp_path, rng, rng.sample(PAUSES, len(PAUSES)))


@pytest.mark.slow
@rounds
def test_a_history_with_a_slow_disk_keeps_all_promises(
    tmp_path: Path, seed: int, number: int
) -> None:
    require("strace")
    rng = Random(seed + number)
    judge(tmp_path, rng, ["slow", *rng.sample(KILLS, 3), "slow", *rng.sample(KILLS, 2)])


@pytest.mark.slow
@rounds
def test_a_history_with_full_memory_and_a_full_disk_keeps_all_promises(
    tmp_path: Path, seed: int, number: int
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    before = with_mounts(SMALL, data)
    rng = Random(seed + number)
    judge(tmp_path, rng, [*DISKS, *rng.sample(KILLS, 3), *DISKS, *rng.sample(KILLS, 2)], before)

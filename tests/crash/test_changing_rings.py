"""A producer that changes a frame while the shard drains it: nothing outside is written or read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.proves(
    "durability",
    "A frame that changes while it is drained is stored whole or refused; a ring that is "
    "cut meanwhile costs the process at most",
)

TESTS = Path(__file__).parents[1]
ROUNDS = 1000  # of a second or so
PROGRAM = [sys.executable, "-m", "support.programs.changing_ring"]


def run(rounds: int, tmp_path: Path, **environ: str) -> str:
    done = subprocess.run(
        [*PROGRAM, str(rounds)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), **environ},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


def test_a_frame_that_changes_while_it_is_drained_is_stored_whole_or_refused(
    tmp_path: Path,
) -> None:
    stored, refused = map(int, run(ROUNDS, tmp_path).split())
    assert stored > 0
    assert refused > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_kernels_stay_within_their_arrays_while_a_frame_changes(tmp_path: Path) -> None:
    """With Numba's own check of every index, which an index outside turns into an error."""
    cache = tmp_path / "numba"
    environ = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    stored, refused = map(int, run(20 * ROUNDS, tmp_path, **environ).split())
    assert any(cache.rglob("*drain*")), "they were compiled for this test"
    assert stored > 0
    assert refused > 0

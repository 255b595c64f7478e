from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rocketray.kernels import PLAIN

TRY = """
import numpy as np
from rocketray import kernels
from rocketray.kernels import hashing
kernels.warm()
out = np.empty(1, np.int32)
hashing.hash_spans(np.frombuffer(b"TagA", np.uint8), np.zeros(1, np.int64), np.full(1, 4), 0, out)
print(kernels.PLAIN, hashing.hash_spans is hashing.hash_spans_plain, out[0])
"""


def run(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", TRY],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.strip()


def test_the_environment_can_force_the_plain_twins() -> None:
    assert run(ROCKETRAY_PLAIN_KERNELS="1") == "True True 2598919"


@pytest.mark.skipif(PLAIN, reason="needs Numba")
def test_every_kernel_compiles_and_is_warm_before_its_first_call() -> None:
    assert run(ROCKETRAY_PLAIN_KERNELS="0") == "False False 2598919"


def test_without_numba_the_twins_run() -> None:
    hide = "import sys; sys.modules['numba'] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", hide + TRY], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "True True 2598919"

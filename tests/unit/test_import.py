"""``import rocketray`` loads a few small modules, so it takes some 20 ms."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.harness.patience import patience

HEAVY = ("faust", "numba", "numpy", "orjson", "pyarrow", "pyspark", "ray", "rich", "typer")
CODE = "import sys\n{statement}\nprint(*sorted(name.partition('.')[0] for name in sys.modules))"
OURS = "import sys\nimport rocketray\nprint(*(n for n in sys.modules if n.startswith('rocketray')))"


def run(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience(60),
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    "statement",
    ["import rocketray", "import rocketray as rr\ndir(rr)", "from rocketray import StreamError"],
)
def test_importing_the_package_loads_nothing_heavy(statement: str) -> None:
    assert not {*HEAVY}.intersection(run(CODE.format(statement=statement)))


def test_importing_the_package_loads_few_modules_of_ours() -> None:
    ours = {"rocketray", "rocketray.errors", "rocketray.base", "rocketray.base.interpreter"}
    assert {*run(OURS)} == ours


def test_the_check_finds_what_is_heavy() -> None:
    assert "numpy" in run(CODE.format(statement="from rocketray import ConsumedBatch"))

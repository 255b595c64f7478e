"""``make bench`` knows each benchmark: those that are shipped, and those of the source tree alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from support.harness.patience import patience
from support.harness.source_tree import ROOT, source_file

from rocketray_bench.command import BENCHMARKS

FOR_USERS = [ROOT / "rocketray_bench" / f"{name}.py" for name in BENCHMARKS]
FOR_DEVELOPERS = sorted((ROOT / "benchmarks" / "questions").glob("[!_]*.py"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What benchmarks/run.py says, in the directory of the run, as another program's."""
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "run.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


@pytest.mark.parametrize("path", [*FOR_USERS, *FOR_DEVELOPERS], ids=lambda path: path.stem)
def test_a_benchmark_asks_in_its_first_line(path: Path) -> None:
    file = source_file(path)
    assert (ast.get_docstring(file.tree) or "").partition("\n")[0].endswith("?")
    assert any(isinstance(each, ast.FunctionDef) and each.name == "run" for each in file.tree.body)


def test_a_benchmark_is_in_one_of_two_places() -> None:
    names = [path.stem for path in (*FOR_USERS, *FOR_DEVELOPERS)]
    assert len({*names}) == len(names)
    assert len(names) > 15


def test_help_lists_all_of_them() -> None:
    shown = {line.split()[0] for line in run("--help").stdout.splitlines() if line.strip()}
    assert {path.stem for path in (*FOR_USERS, *FOR_DEVELOPERS)} <= shown


def test_another_name_is_refused_before_anything_is_measured() -> None:
    done = run("scan", "nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert "invalid choice: 'nonsense'" in done.stderr

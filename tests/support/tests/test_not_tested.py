"""What a run does not test: in its last line, and red where the full form requires it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.harness import machine
from support.harness.machine import NEEDS, Need, told
from support.harness.source_tree import ROOT

PROGRAM = """
import pytest
from support.harness import machine
from support.harness.machine import NEEDS, Need, needs, require

NEEDS["gem"] = Need("what takes a gem", lambda: "there is no gem", "ruby")

@needs("gem")
def test_marked(): ...

def test_asks():
    require("gem")

def test_of_another_kind():
    pytest.skip("of another kind")

def test_passes():
    require("bash")
"""


def run(directory: Path, require: str) -> list[str]:
    """What a run of that program prints, with the project's plugin alone."""
    (directory / "test_some.py").write_text(PROGRAM)
    (directory / "conftest.py").write_text(
        "from support.harness.not_tested import NotTested\n"
        "def pytest_configure(config): config.pluginmanager.register(NotTested())\n"
    )
    (directory / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "."],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
            "ROCKETRAY_TEST_REQUIRE": require,
        },
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


def test_the_last_line_counts_what_the_machine_lacks(tmp_path: Path) -> None:
    lines = run(tmp_path, "")
    assert lines[-2] == "NOT TESTED what takes a gem (gem), 2 tests: there is no gem"
    assert "1 passed, 1 skipped, 2 not tested in " in lines[-1]


def test_where_all_is_required_each_skip_is_red(tmp_path: Path) -> None:
    lines = run(tmp_path, "all")
    assert "2 failed, 1 passed, 1 error in " in lines[-1]
    assert "ROCKETRAY_TEST_REQUIRE=all: this is to be tested here" in lines


def test_a_run_begins_with_what_is_missing_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(NEEDS, "gem", Need("gems", lambda: "there is no gem", "ruby"))
    monkeypatch.setitem(NEEDS, "right", Need("a right", lambda: "only root may"))
    assert told(["gem", "right"]) == [
        "What will not be tested on this machine, and why:",
        "  gems: there is no gem",
        "  a right: only root may",
        "To test it, too: apt-get install ruby",
    ]
    assert told([]) == ["This machine has all that the tests can use."]


def test_a_full_disk_ends_the_run_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(used=200 << 30, free=7 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    (disk,) = machine.obstacles()
    assert disk.startswith("7 GiB are free on the disk of ")
    assert "90% full with under 4 GiB free: make room, or name another" in disk
    usage.free = 9 << 30  # 96 % full, and the product finds it ample
    assert machine.obstacles() == []

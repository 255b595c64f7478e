"""The inner loop finds what changed since main, and the tests nearest to it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.harness.check import changed_files, nearest_tests
from support.harness.machine import needs
from support.harness.source_tree import ROOT


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("rocketray/message.py", ["tests/unit/test_message.py"]),
        ("rocketray/filters/sql92/lexer.py", ["tests/unit/filters/sql92/test_lexer.py"]),
        ("rocketray_demo/report.py", ["tests/unit/rocketray_demo/test_report.py"]),
        (
            "tests/support/models/verdict.py",
            ["tests/support/tests/test_history.py", "tests/support/tests/test_verdict.py"],
        ),
        ("tests/unit/test_message.py", ["tests/unit/test_message.py"]),
        ("tests/test_docs.py", ["tests/test_docs.py"]),
        ("docs/reference/glossary.md", ["tests/test_docs.py"]),
        ("examples/trade.py", ["tests/test_docs.py"]),
        ("tests/unit/test_that_was_deleted.py", []),
        ("tests/integration/test_node.py", []),
        ("Makefile", []),
    ],
)
def test_a_change_is_tested_by_the_tests_nearest_to_it(changed: str, tests: list[str]) -> None:
    assert nearest_tests(changed) == tests
    assert all((ROOT / test).is_file() for test in tests)


def test_a_module_without_a_test_of_its_name_is_tested_by_those_that_import_it() -> None:
    found = nearest_tests("rocketray/kernels/__init__.py")
    assert "tests/property/test_kernels.py" in found
    assert all("rocketray.kernels" in (ROOT / test).read_text() for test in found)


def git(directory: Path, *arguments: str) -> None:
    author = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    subprocess.run(["git", *author, *arguments], cwd=directory, check=True, capture_output=True)


@needs("git")
def test_what_changed_is_everything_since_main_and_what_git_does_not_know(tmp_path: Path) -> None:
    main, clone = tmp_path / "main", tmp_path / "clone"
    main.mkdir()
    git(main, "init", "--initial-branch=main")
    for name in ("kept", "committed", "edited", "deleted"):
        (main / name).write_text("first\n")
    (main / ".gitignore").write_text("ignored\n")
    git(main, "add", ".")
    git(main, "commit", "--message=all")
    git(tmp_path, "clone", str(main), str(clone))
    assert changed_files(clone) == []
    (clone / "committed").write_text("second\n")
    git(clone, "commit", "--all", "--message=one")
    (clone / "edited").write_text("second\n")
    (clone / "deleted").unlink()
    for name in ("new", "ignored"):
        (clone / name).touch()
    assert changed_files(clone) == ["committed", "deleted", "edited", "new"]


def test_no_directory_of_git_has_no_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert changed_files(tmp_path) == []
    monkeypatch.setenv("PATH", str(tmp_path))  # nor has one where there is no git
    assert changed_files(tmp_path) == []

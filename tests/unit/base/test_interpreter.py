"""Spark is told of this interpreter where the path has another, and of nothing where it has this."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketray.base.interpreter import python_for_spark

pytestmark = pytest.mark.proves(
    "spark",
    "The import sets `PYSPARK_PYTHON` where the PATH has another Python",
)


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A directory with python3, and python3.9 beside it, which is another file."""
    return programs(tmp_path / "system", "python3", "python3.9")


@pytest.fixture
def environment(tmp_path: Path, system: Path) -> Path:
    """A virtual environment on the system's python3."""
    directory = tmp_path / "environment" / "bin"
    directory.mkdir(parents=True)
    (directory / "python").symlink_to(system / "python3")
    (directory / "python3").symlink_to("python")
    return directory


def programs(directory: Path, *names: str) -> Path:
    directory.mkdir()
    for name in names:
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    return directory


def test_an_environment_that_is_not_activated_is_named(environment: Path, system: Path) -> None:
    executable = str(environment / "python")
    assert python_for_spark({"PATH": str(system)}, executable) == executable
    assert python_for_spark({"PATH": "/nowhere"}, executable) == executable
    assert python_for_spark({"PATH": str(system)}, str(system / "python3.9")) is not None


def test_nothing_is_said_where_the_path_has_this_interpreter(
    environment: Path, system: Path
) -> None:
    path = f"{environment}:{system}"
    assert python_for_spark({"PATH": path}, str(environment / "python")) is None
    assert python_for_spark({"PATH": str(system)}, str(system / "python3")) is None


def test_who_said_something_is_right(environment: Path, system: Path) -> None:
    executable = str(environment / "python")
    said = {"PATH": str(system), "PYSPARK_PYTHON": "/usr/bin/python3.13"}
    assert python_for_spark(said, executable) is None
    assert python_for_spark({"PATH": str(system), "PYSPARK_GATEWAY_PORT": "1"}, executable) is None
    assert python_for_spark({"PATH": str(system)}, "") is None


@pytest.mark.parametrize(
    ("said", "left"),
    [(None, sys.executable), ("python3", "python3"), ("/opt/python", "/opt/python")],
)
def test_an_import_leaves_a_variable_alone_that_is_set(
    system: Path, said: str | None, left: str
) -> None:
    """``python3`` is Spark's default, and so the way to have the environment as it was."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK")}
    environ |= {"PATH": str(system)} | ({} if said is None else {"PYSPARK_PYTHON": said})
    program = "import os, rocketray; print(os.environ.get('PYSPARK_PYTHON'))"
    told = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    assert told.stdout == f"{left}\n"

"""A user's own program, started by the path of its Python, with a session that is not ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.nodes.shards import Shards

from rocketray.base.environment import process_environ
from rocketray.queries.spark.java import find_java

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

# A python3 of the machine: Spark is there, since its JVM names it, and no package is.
OTHER_PYTHON = """#!/bin/sh
PYTHONPATH=$(echo "$PYTHONPATH" | tr : '\\n' | grep pyspark | paste -sd : -)
export PYTHONPATH
exec {executable} -S "$@"
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """The program's run over a topic of 100 messages, 20 of them with the tag ``pay``."""
    directory = tmp_path_factory.mktemp("job")
    with Shards(directory / "data", Trade=1) as shards:
        shards.fill("Trade", 0, 100)
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "support.programs.path_job",
                str(shards.data),
                "pay",
                "pay|order",
            ],
            env=environ_with_another_python(directory / "bin"),
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.mark.proves("spark", "The import sets `PYSPARK_PYTHON` where the PATH has another Python")
@pytest.mark.slow
def test_a_python_called_by_its_path_finds_the_source(
    job: subprocess.CompletedProcess[str],
) -> None:
    assert job.stdout.split() == ["20", "0"], job.stderr


@pytest.mark.proves("spark", "A filter that is probably a mistake causes a warning")
@pytest.mark.slow
def test_a_doubtful_filter_is_warned_about(job: subprocess.CompletedProcess[str]) -> None:
    (line,) = [line for line in job.stderr.splitlines() if "one-tag" in line]
    assert line.endswith("'pay|order' is one tag, since only || separates tags; write pay || order")


def environ_with_another_python(directory: Path) -> dict[str, str]:
    """This process's environment, with another python3 first on the path."""
    directory.mkdir()
    other = directory / "python3"
    other.write_text(OTHER_PYTHON.format(executable=sys.executable))
    other.chmod(0o755)
    tests = str(Path(__file__).parents[1])
    return {
        **{name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"},
        "PATH": f"{directory}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([tests, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
        "JAVA_HOME": str(find_java(process_environ()).home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }

"""What Ray's C++ prints on file 2 in a command's process is kept in the node's logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketray.cli.arguments.node import ray_stderr_in_file

PROGRAM = """
import logging, os, sys
from pathlib import Path
from rocketray.cli.arguments.node import ray_stderr_in_file
logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
for _ in range(2):  # a second time it is done already
    ray_stderr_in_file(Path(sys.argv[1]))
os.write(2, b"[core_worker.cc:1] a line of Ray\\n")
sys.stderr.write("a line of ours\\n")
logging.warning("a line of the log")
"""


@pytest.mark.parametrize("has_node", [True, False])
def test_lines_of_ray_go_into_a_file_and_ours_stay(tmp_path: Path, has_node: bool) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    if has_node:
        (tmp_path / "node.json").write_text(json.dumps({"logs": str(logs)}))
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == "a line of ours\na line of the log\n"
    if has_node:
        file = logs / "commands.err"
        assert file.read_text() == "[core_worker.cc:1] a line of Ray\n" * 2
        assert file.stat().st_mode & 0o777 == 0o600


def test_in_a_program_that_has_another_stderr_nothing_is_moved(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sys.stderr
    sys.stderr = open(tmp_path / "other", "w")  # noqa: SIM115, PTH123 - closed below
    try:
        ray_stderr_in_file(tmp_path)
        os.write(2, b"still here\n")
    finally:
        sys.stderr.close()
        sys.stderr = before
    assert capfd.readouterr().err == "still here\n"

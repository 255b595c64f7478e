"""The node that a command uses; and what Ray's C++ prints on file 2 is kept in the node's logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketray.base.cluster import Cluster
from rocketray.cli.application import application
from rocketray.cli.arguments import node
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


class _StopError(Exception):
    """Ends a command where it would connect."""


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path | Cluster]:
    """Return the nodes that the commands of a test choose, in a directory of its own."""
    chosen: list[Path | Cluster] = []

    def keep(place: Path | Cluster) -> None:
        chosen.append(place)
        raise _StopError

    monkeypatch.setattr("rocketray.actors.client.connection.Connection.to", keep)
    monkeypatch.chdir(tmp_path)
    for variable in ("ROCKETRAY_DATA", "ROCKETRAY_CLUSTER"):
        monkeypatch.delenv(variable, raising=False)
    return chosen


HERE = Path()
TRADE = Cluster("trade")


@pytest.mark.parametrize(
    ("arguments", "environ", "place"),
    [
        ("topics list", {}, "rocketray-data"),
        ("topics list --data .", {}, HERE),
        ("topics list --data .", {"ROCKETRAY_DATA": "elsewhere"}, HERE),
        ("topics list --data .", {"ROCKETRAY_CLUSTER": "trade"}, HERE),
        ("topics list --data rocketray-data", {"ROCKETRAY_CLUSTER": "trade"}, "rocketray-data"),
        ("topics list", {"ROCKETRAY_DATA": "elsewhere"}, "elsewhere"),
        ("topics list", {"ROCKETRAY_DATA": "elsewhere", "ROCKETRAY_CLUSTER": "trade"}, TRADE),
        ("--cluster trade topics list", {}, TRADE),
        ("--cluster trade topics list", {"ROCKETRAY_DATA": "."}, TRADE),
        ("--cluster trade topics list", {"ROCKETRAY_CLUSTER": "other"}, TRADE),
        (
            "--cluster trade --ray-address head:6379 topics list",
            {},
            Cluster("trade", "head:6379"),
        ),
    ],
)
def test_a_command_uses_the_node_that_its_line_names_before_that_of_the_environment(
    places: list[Path | Cluster],
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    environ: dict[str, str],
    place: str | Path | Cluster,
) -> None:
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    ended = CliRunner().invoke(application(), arguments.split())
    assert isinstance(ended.exception, _StopError), ended.output
    assert places == [Path(place) if isinstance(place, str) else place]


def test_a_cluster_before_one_command_is_not_used_by_the_next_one(
    places: list[Path | Cluster],
) -> None:
    runner = CliRunner()
    runner.invoke(application(), ["--cluster", "trade", "topics", "list"])
    runner.invoke(application(), ["topics", "list", "--data", "."])
    assert places == [TRADE, HERE]
    assert node.chosen_cluster() is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--cluster trade topics list --data .", "name two nodes; leave one out"),
        ("--ray-address head:6379 topics list", "--ray-address before a command needs --cluster"),
        ("--cluster tr/ade topics list", "a name has 1 to 64 ASCII letters"),
    ],
)
def test_two_nodes_or_half_a_node_are_refused_before_anything_is_asked(
    places: list[Path | Cluster], arguments: str, said: str
) -> None:
    ended = CliRunner().invoke(application(), arguments.split())
    assert ended.exit_code != 0
    assert places == []
    assert said in " ".join(f"{ended.output} {ended.exception}".replace("│", " ").split())
